"""Campaigns, codes and hostile rows, through the whole worker (cases L1, L3, S3, D11, D12, D13, D14,
D18, H1, O1, O5, J82; reliability 5.D): whatever one message is, the others are not its business."""

import json
import urllib.parse

import psycopg2.errors
import pytest

from tests.harness import torn_steps as step
from tests.harness.procs import merged
from tests.harness.torn import TornServer
from tests.harness.vendor import Story, vendor


def counts(story):
    return dict(story.sql("select state::text, sum(count)::int from postrider.counts group by 1"))


def sandbox_vendor(sandbox, *, dedup=False, **over):
    return {"main": vendor(f"{sandbox.url}/messages", dedup=dedup,
                           settings={"body": {"lane": "{{kind}}", "t": "{{created_ms}}"}}, **over)}


# ---- many ------------------------------------------------------------------------------------


def test_every_seventh_fails(db, running):
    """L1, scaled from 7,000 to 700: all rows final, none without a state, counters exact."""
    story = Story(db, running)
    keys = list(story.queue("campaign", map(str, range(700))).values())
    bad = set(keys[6::7])
    with TornServer(lambda r: step.answer(400 if r.key in bad else 200)) as server:
        story.work({"main": vendor(server.url)}, in_flight=32)
        rows = story.ended()
        assert len(rows) == 700
        assert {key for key, row in rows.items() if row.state == "failed"} == bad
        assert {row[:4] for key, row in rows.items() if key not in bad} == {("sent", 1, 1, 0)}
        assert counts(story) == {"sent": 600, "failed": 100}
        assert sorted(r.key for r in server.requests) == sorted(keys)  # each once
        assert story.metric("attempts_total", provider="main", outcome="accepted") == 600
        assert story.metric("attempts_total", provider="main", outcome="rejected") == 100


def test_errors_are_not_counted_as_sent(db, running, sandbox):
    """L3: 52 recipients, 20 refused: sent 32, failed 20, 52 in all."""
    story, phones = Story(db, running), sandbox("--reject-last", "777")
    numbers = [f"+9989012{n:02}{'777' if n < 20 else '111'}" for n in range(52)]
    assert story.sql("select postrider.send_many(%s, %s)", numbers, ["hello"]) == [(52,)]
    story.work(sandbox_vendor(phones))
    story.ended()
    assert counts(story) == {"sent": 32, "failed": 20}
    stats = phones.api("/stats")
    assert (stats["taken"], stats["rejected"], stats["requests"]) == (32, 20, 52)
    sent = {n for n, s in story.sql("select recipient, state::text from postrider.messages") if s == "sent"}
    assert sent == set(numbers[20:])


def test_the_vendors_id_is_kept_for_every_message(db, running, sandbox):
    """D18: 500 answers in about a second; 500 ids on 500 rows, each the vendor's own for that key."""
    story, phones = Story(db, running), sandbox("--latency-p50", "300")
    keys = set(story.queue("campaign", map(str, range(500))).values())
    story.work(sandbox_vendor(phones, in_flight=500, timeout_ms=10_000), in_flight=600, lease_s=20)
    rows = story.ended()
    assert {row[:4] for row in rows.values()} == {("sent", 1, 1, 0)}
    ledger = {e["key"]: e["id"] for e in phones.api("/ledger?offset=0&limit=1000")["entries"]}
    assert {key: row.vendor_id for key, row in rows.items()} == ledger
    assert set(ledger) == keys and len(set(ledger.values())) == 500


def test_codes_overtake_a_campaign(db, running, sandbox):
    """O1, J82: the campaign fills every slot it may have; codes sent meanwhile are all out before it is,
    each on its first try."""
    story, phones = Story(db, running), sandbox("--latency-p50", "50", "--dedup", "off")
    story.queue("campaign", map(str, range(800)))
    story.work(sandbox_vendor(phones, in_flight=8), in_flight=8)
    codes = []
    for n in range(20):  # spread over the campaign by what has been delivered, not by time
        phones.api(f"/wait?count={10 * (n + 1)}&timeout_ms=60000")
        codes += story.queue("otp", [f"code {n}"]).values()
    rows = story.ended()
    order = [e["key"] for e in phones.api("/ledger?offset=0&limit=1000")["entries"]]
    assert len(order) == 820
    places = [order.index(code) for code in codes]
    assert places == sorted(places)
    assert max(places) < len(order) - 1
    assert {rows[code][:3] for code in codes} == {("sent", 1, 1)}
    assert phones.api("/stats")["duplicates"] == 0 and phones.api("/stats")["max_in_air"] <= 8


def test_codes_keep_their_slots(db, running):
    """O1, R8: a campaign whose calls all hang holds at most what is not reserved; a code still leaves."""
    story = Story(db, running)
    campaign = set(story.queue("campaign", map(str, range(100))).values())
    reserved = story.sql("select sum(reserved) from postrider.kind where lane < 2")[0][0]
    assert round(reserved, 2) == 0.15
    script = lambda r: step.stall(60) if r.key in campaign else step.answer()  # noqa: E731
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, in_flight=20, timeout_ms=20_000)},
                   in_flight=20, lease_s=30, drain_s=0)
        story.wait(lambda: len(server.requests) == 17, "the campaign to take all it may")
        code = story.queue("otp", ["code"])["code"]
        story.wait(lambda: story.row(code).state == "sent", "the code to be sent")
        assert len(server.requests) == 18  # 20 less 15 %, and the code: the campaign still hangs
        story.worker.kill()


# ---- hostile rows ----------------------------------------------------------------------------

BAD_ROWS = {  # recipient, body: as a superuser or a broken program could write them
    "letters": ("hello", "x"), "no plus": ("998901234567", "x"), "two zeroes": ("00998901234567", "x"),
    "spaces": ("+998 90 123 45 67", "x"), "64 digits": ("+" + "9" * 64, "x"), "too short": ("+123", "x"),
    "empty": ("", "x"), "full width": ("+９９８９０１２３４５６７", "x"), "a tail": ("+998901234567;ext=1", "x"),
    "two numbers": ("+998901234567,+998901234568", "x"), "header": ("+998901234567\r\nX-Evil: 1", "x"),
    "quote": ("+998901234567'; drop table postrider.message; --", "x"), "empty body": ("+998901234567", ""),
}


def smuggle(story, kind, name, recipient, body, sender=None, meta=None):
    """A row that names its lane passes by all checks; only a superuser may do that."""
    return story.sql("insert into postrider.message (due, expires_at, lane, kind, recipient, body, sender,"
                     " meta, key) select now(), now() + interval '1 hour', lane, name, %s, %s, %s, %s,"
                     " gen_random_uuid() from postrider.kind where name = %s returning key::text",
                     recipient, body, sender, meta and json.dumps(meta), kind)[0][0]


def test_rows_that_nobody_checked(db, running):
    """D11, D12, D13, S3: failed with the reason, nothing of it reached the vendor; the rest goes on."""
    story = Story(db, running)
    story.kind("kept", attempts=4)
    before = story.queue("kept", map(str, range(20)))
    bad = {name: smuggle(story, "kept", name, *row) for name, row in BAD_ROWS.items()}
    after = story.queue("kept", map(str, range(20)))
    good = set(before.values()) | set(after.values())
    with TornServer() as server:
        story.work({"main": vendor(server.url)})
        rows = story.ended()
        for name, key in bad.items():
            wrong = "invalid body" if name == "empty body" else "invalid recipient"
            assert rows[key][:5] == ("failed", 1, 0, 0, wrong), (name, rows[key])
            assert [(a.outcome, a.phase) for a in story.attempts(key)] == [("rejected", "queue")], name
        assert {rows[key][:3] for key in good} == {("sent", 1, 1)}
        assert {r.key for r in server.requests} == good and len(server.requests) == 40
        assert counts(story) == {"sent": 40, "failed": len(bad)}
        assert story.door("main") == "open"
        log = story.worker.log_text()
        assert "X-Evil: 1" not in log.splitlines()


NASTY = {
    "quotes": '"},{"to":"+10000000"', "backslash": 'a\\', "line ends": "a\r\nX-Evil: 1\r\n\r\n{}",
    "controls": "\x01\x02\x1b[2J\x7f", "percent": "%0d%0a%00%22", "ampersand": "a&to=+10000000&b#c?d",
    "placeholder": "{{recipient}} {{key}}", "emoji": "😀 ‮ é́ ﷽", "signs": "1+1=2 & 50% off? a#b \"q\" \\ ñ\n",
}


@pytest.mark.parametrize("encoding", ["json", "form"])
def test_values_stay_values(db, running, encoding):
    """D14, H1: text, sender and meta with every delimiter in them: one request each, the same header
    set, and the vendor decodes exactly what was stored."""
    story = Story(db, running)
    story.kind("kept")
    keys = {name: smuggle(story, "kept", name, f"+9989012345{n:02}", text, sender=text, meta={"ref": text})
            for n, (name, text) in enumerate(NASTY.items())}
    settings = {"encoding": encoding, "url": None,
                "body": {"to": "{{recipient}}", "text": "{{body}}", "from": "{{sender}}", "ref": "{{meta.ref}}"}}
    with TornServer() as server:
        settings["url"] = server.url + "?ref={{meta.ref}}&end=1"
        config = merged(vendor(server.url), {"settings": {"body": None}})
        story.work({"main": merged(config, {"settings": settings})})
        rows = story.ended()
        assert {row[:3] for row in rows.values()} == {("sent", 1, 1)}
        assert len(server.requests) == len(NASTY)
        assert len({tuple(sorted(r.headers)) for r in server.requests}) == 1
        for n, (name, key) in enumerate(keys.items()):
            request = next(r for r in server.requests if r.key == key)
            got = request.json() if encoding == "json" else dict(urllib.parse.parse_qsl(
                request.body.decode(), strict_parsing=True))
            text = NASTY[name]
            assert got == {"to": f"+9989012345{n:02}", "text": text, "from": text, "ref": text}, name
            query = urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query, strict_parsing=True)
            assert query == [("ref", text), ("end", "1")], name


def test_a_row_that_the_plugin_cannot_build(db, running):
    """S3, D14: a line end on its way into a header: one attempt, failed as a plugin error, no request; the
    neighbours are sent."""
    story = Story(db, running)
    story.kind("kept", attempts=4)
    bad = smuggle(story, "kept", "bad", "+998901234567", "x", sender="INFO\r\nX-Evil: 1")
    good = [smuggle(story, "kept", "good", f"+99890123450{n}", "x", sender="INFO") for n in range(5)]
    with TornServer() as server:
        story.work({"main": vendor(server.url, settings={"headers": {"X-From": "{{sender}}"}})})
        rows = story.ended()
        assert rows[bad][:5] == ("failed", 1, 0, 0, "plugin_error")
        assert [a.code for a in story.attempts(bad)] == ["plugin_error"]
        assert "call_not_started" in story.worker.log_text()
        assert {rows[key][:3] for key in good} == {("sent", 1, 1)}
        assert sorted(r.key for r in server.requests) == sorted(good)
        assert {r.headers["x-from"] for r in server.requests} == {"INFO"}
        assert not [r for r in server.requests if "x-evil" in r.headers]


def test_a_kind_does_not_vanish_under_its_messages(db, running):
    """5.B24's neighbour: a kind with messages to send is kept, or nobody would send or expire them."""
    story = Story(db, running)
    story.kind("gone")
    key = story.queue("gone", ["a"])["a"]
    for change in ("delete from postrider.kind where name = 'gone'",
                   "update postrider.kind set name = 'other' where name = 'gone'"):
        with pytest.raises(psycopg2.errors.ObjectInUse, match='kind "gone" still has 1 messages to send') as refused:
            story.sql(change)
        assert "cancel" in refused.value.diag.message_hint
    assert story.sql("select postrider.cancel(id) from postrider.message where key = %s", key) == [("canceled",)]
    story.sql("delete from postrider.kind where name = 'gone'")
    assert story.row(key).state == "canceled"


def test_a_huge_text_that_nobody_checked(db, running, sandbox):
    """D11: 1 MB of text. The vendor refuses it (413) and hangs up, so that we may not read it to the end:
    failed or unknown, one request, never sent; and the next message is."""
    story, phones = Story(db, running), sandbox()
    story.kind("kept")
    huge = smuggle(story, "kept", "huge", "+998901234567", "x" * 1_000_000)
    good = story.queue("kept", ["good"])["good"]
    story.work(sandbox_vendor(phones))
    rows = story.ended()
    assert rows[good].state == "sent"
    assert rows[huge].state in ("failed", "unknown") and rows[huge][1:3] == (1, 1)
    assert phones.api("/stats")["taken"] == 1
