"""What follows a doubt, by kind and by what the vendor can prove; and when a message's time is up
(design 2, rules R7 and R8; cases D1, D2, D3, D22, D28, J1, J2, L6, O5, O9, U1)."""

import re
import threading

import pytest

from tests.harness import torn_steps as step
from tests.harness.torn import TornServer
from tests.harness.torn_net import Authority
from tests.harness.vendor import TIMEOUT_MS, Story, vendor

NEVER = threading.Event()

# on_unknown, dedup: state, attempts, doubts left, requests, deliveries, possible duplicates
AFTER_A_LOST_ANSWER = {
    ("hold", False): ("unknown", 1, 1, 1, 1, 0),
    ("hold", True): ("sent", 2, 0, 2, 1, 0),
    ("ask", True): ("sent", 2, 0, 2, 1, 0),
    ("resend", False): ("sent", 2, 1, 2, 2, 1),  # doubled, and counted as what may be
    ("resend", True): ("sent", 2, 0, 2, 1, 0),
}


@pytest.mark.parametrize("on_unknown,dedup", AFTER_A_LOST_ANSWER,
                         ids=lambda v: v if isinstance(v, str) else "dedup" if v else "no keys")
def test_taken_and_the_answer_lost(db, running, on_unknown, dedup):
    """D1, D3: the table of design 2, item 3; the second vendor never sees it."""
    state, attempts, doubts, requests, deliveries, possible = AFTER_A_LOST_ANSWER[on_unknown, dedup]
    story = Story(db, running)
    story.kind("one", on_unknown=on_unknown)
    key = story.queue("one", ["one"])["one"]
    with TornServer([step.fin()], dedup=dedup) as first, TornServer(dedup=dedup) as second:
        story.work({"first": vendor(first.url, dedup=dedup), "second": vendor(second.url, dedup=dedup)})
        row = story.ended()[key]
        assert row[:4] == (state, attempts, attempts, doubts)
        assert first.request_count(key) == requests and first.deliveries(key) == deliveries
        assert len({r.body for r in first.requests}) == 1  # frozen bytes (R2)
        assert second.requests == []
        assert story.metric("possible_duplicates_total", provider="first") == possible
        outcomes = [a.outcome for a in story.attempts(key)]
        assert outcomes == ["unknown", "accepted"][:attempts]


def test_ask_without_a_way_to_ask_is_refused(db, running):
    """Reliability 2: `ask` at a vendor that can neither be asked nor de-duplicates would be at most
    once under a false name. The worker does not start, and says what to do."""
    story = Story(db, running)
    story.kind("asked", on_unknown="ask")
    key = story.queue("asked", ["one"])["one"]
    with TornServer() as server:
        worker = story.work({"main": vendor(server.url)}, wait=False)
        assert worker.wait(60) == 3
        log = worker.log_text()
        assert "asked" in log and "main" in log and "de-duplicates" in log and "hold" in log
        assert server.connections == 0
        assert story.row(key)[:2] == ("pending", 0)


def test_a_timeout_below_the_vendors_worst_answer_is_refused(db, running):
    """D2: giving up before the vendor may answer makes doubts; both numbers are named."""
    story = Story(db, running)
    with TornServer() as server:
        worker = story.work({"main": vendor(server.url, timeout_ms=1234,
                                            settings={"worst_answer_ms": 4321})}, wait=False)
        assert worker.wait(60) == 3
        assert "1234" in worker.log_text() and "4321" in worker.log_text()


def test_slow_is_not_doubtful_until_the_timeout(db, running):
    """D1, D2: an answer inside the timeout is one attempt, sent; one after it is one attempt, unknown,
    and no second request, also when the vendor answers at last."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["in time", "too late"])
    late = threading.Event()
    script = {keys["in time"]: step.after(0.5, step.answer()),
              keys["too late"]: step.after(late, step.answer())}
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, timeout_ms=TIMEOUT_MS)})
        rows = story.ended()
        late.set()
        assert rows[keys["in time"]][:4] == ("sent", 1, 1, 0)
        assert rows[keys["too late"]][:5] == ("unknown", 1, 1, 1, "outcome unknown")
        marker = story.queue("kept", ["marker"])["marker"]
        assert story.ended()[marker].state == "sent"
        assert server.request_count(keys["too late"]) == 1


@pytest.mark.parametrize("on_unknown", ["hold", "ask"])
def test_the_key_window_is_over(db, running, on_unknown):
    """R2: what the vendor has forgotten is not sent again under its key. The day is not waited for:
    the doubt is made a day old while no worker runs."""
    story = Story(db, running)
    story.kind("kept", on_unknown=on_unknown, base_ms=60_000, cap_ms=60_000)
    key = story.queue("kept", ["doubtful"])["doubtful"]
    with TornServer([step.fin()], dedup=True) as server:
        providers = {"main": vendor(server.url, dedup=True)}
        story.work(providers)
        story.wait(lambda: story.row(key)[:4] == ("pending", 1, 1, 1), "the doubt")
        assert story.worker.stop() == 0
        story.sql("update postrider.message set doubt_since = doubt_since - interval '86400 seconds'")
        story.hurry()
        story.work(providers)
        marker = story.queue("kept", ["marker"])["marker"]
        rows = story.ended()
        assert rows[marker].state == "sent"
        assert rows[key][:5] == ("unknown", 1, 1, 1, "key window over")
        assert server.request_count(key) == 1


def test_a_resend_that_would_come_after_the_window(db, running):
    """R2: nor is a resend planned that would be due when the key is forgotten."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", base_ms=20_000, cap_ms=20_000)
    story.kind("pressed", on_unknown="resend", base_ms=20_000, cap_ms=20_000)
    kept, pressed = story.queue("kept", ["a"])["a"], story.queue("pressed", ["b"])["b"]
    with TornServer({kept: step.fin(), pressed: [step.fin()]}, dedup=True) as server:
        story.work({"main": vendor(server.url, dedup=True, settings={"dedup": {"window_s": 8}})})
        story.wait(lambda: story.row(pressed)[:4] == ("pending", 1, 1, 1), "the doubt")
        assert story.metric("possible_duplicates_total", provider="main") == 1
        story.wait(lambda: story.row(kept).state == "unknown", "the other doubt")
        story.hurry()
        rows = story.ended()
        assert rows[kept][:5] == ("unknown", 1, 1, 1, "outcome unknown")
        assert rows[pressed][:3] == ("sent", 2, 2)
        assert (server.request_count(kept), server.request_count(pressed)) == (1, 2)


def test_attempts_end_however_the_errors_alternate(db, running):
    """D28, R7: never more than N that count; one doubt among them, and it is unknown, not failed."""
    courses = {  # what each attempt meets, and how it has to end with N = 3
        "doubts": [step.fin(), step.rst(), step.answer(500), step.answer()],
        "doubt first": [step.fin(), step.answer(503), step.answer(503), step.answer()],
        "doubt last": [step.answer(503), step.answer(503), step.garbage(), step.answer()],
        "no doubt": [step.answer(503)] * 3 + [step.answer()],
        "throttled between": [step.limited("0"), step.answer(503), step.limited("0"),
                              step.answer(503), step.answer(503), step.answer()],
    }
    story = Story(db, running)
    keys = {}
    for n, name in enumerate(courses):  # a throttled provider must not delay the others
        story.kind(f"p{n}", route=[f"p{n}"], on_unknown="resend", attempts=3)
        keys[name] = story.queue(f"p{n}", [name])[name]
    with TornServer({keys[n]: course for n, course in courses.items()}) as server:
        story.work({f"p{n}": vendor(server.url, settings={"not_taken": [503]})
                    for n in range(len(courses))})
        rows = story.ended()
        assert {rows[key].attempts for key in keys.values()} == {3}
        assert {rows[key].reason for key in keys.values()} == {"attempts used up"}
        ends = {name: (rows[key].state, rows[key].doubts, server.request_count(key))
                for name, key in keys.items()}
        assert ends == {"doubts": ("unknown", 3, 3), "doubt first": ("unknown", 1, 3),
                        "doubt last": ("unknown", 1, 3), "no doubt": ("failed", 0, 3),
                        "throttled between": ("failed", 0, 5)}


@pytest.mark.parametrize("dedup", [False, True], ids=["no keys", "dedup"])
def test_a_doubt_and_then_a_rejection(db, running, dedup):
    """R7: the rejection speaks for the second request. Only a vendor that knows keys speaks with it
    for the first as well: it would have repeated an acceptance."""
    story = Story(db, running)
    story.kind("pressed", on_unknown="resend")
    key = story.queue("pressed", ["one"])["one"]
    with TornServer([step.fin(taken=False), step.answer(400)], dedup=dedup) as server:
        story.work({"main": vendor(server.url, dedup=dedup)})
        row = story.ended()[key]
        assert row[:5] == (("failed", 2, 2, 0, "rejected") if dedup else ("unknown", 2, 2, 1, "rejected"))
        assert server.request_count(key) == 2


def test_what_is_unknown_is_counted_as_unknown(db, running):
    """U1, L3's word for it: 8 in doubt read `unknown 8, failed 0`."""
    story = Story(db, running)
    keys = story.queue("campaign", map(str, range(8))).values()
    with TornServer(step.rst()) as server:
        story.work({"main": vendor(server.url)})
        story.ended()
        assert dict(story.sql("select state::text, count from postrider.counts")) == {"unknown": 8}
        story.wait(lambda: 'postrider_messages{kind="campaign",state="unknown"}' in story.worker.metrics(),
                   "the figures to be read")
        assert story.metric("messages", kind="campaign", state="unknown") == 8
        assert 'postrider_messages{kind="campaign",state="failed"}' not in story.worker.metrics()
        assert [server.request_count(key) for key in keys] == [1] * 8


# ---- deadlines -------------------------------------------------------------------------------

BOTH_TIMES = re.compile(r"^expired at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ), seen at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$")


def says_both_times(row):
    times = BOTH_TIMES.match(row.reason or "")
    assert times, row
    assert times[1] <= times[2]


def test_old_messages_do_not_pour_out(db, running):
    """D22, J2: 150 outlived their use while nobody ran; on start they are expired, none is sent."""
    story = Story(db, running)
    story.kind("alert", ttl="1 second")
    story.kind("fresh")
    old = story.queue("alert", map(str, range(150))).values()
    fresh = story.queue("fresh", ["fresh"])["fresh"]
    story.wait(lambda: story.sql("select bool_and(expires_at < clock_timestamp())"
                                 " from postrider.message where kind = 'alert'")[0][0], "their time to pass")
    with TornServer() as server:
        story.work({"main": vendor(server.url)})
        rows = story.ended()
        for key in old:
            assert rows[key][:4] == ("expired", 0, 0, 0)
            says_both_times(rows[key])
        assert [r.key for r in server.requests] == [fresh]
        assert dict(story.sql("select state::text, count from postrider.counts")) == \
            {"expired": 150, "sent": 1}


def test_the_vendor_is_down_for_longer_than_a_code_lives(db, running):
    """O5, L6: scaled down from 120 s and 130 s. Expired by its own deadline, counted, never sent."""
    story = Story(db, running)
    story.sql("update postrider.kind set ttl = '2 seconds' where name = 'otp'")
    keys = story.queue("otp", map(str, range(10))).values()
    server = TornServer()  # its port refuses until it is started
    story.work({"main": vendor(server.url)})
    story.wait(lambda: story.in_state("expired") == 10, "the codes to expire")
    with server.start():
        live = story.queue("transactional", ["live"])["live"]
        rows = story.ended()
        assert rows[live].state == "sent"
        for key in keys:
            assert rows[key][:4] == ("expired", 0, 0, 0)
            assert server.request_count(key) == 0


def test_expiry_is_looked_at_right_before_the_bytes_leave(db, running, tmp_path):
    """O9, R4: alive when claimed and when connecting; over when the handshake at last ends."""
    story = Story(db, running)
    story.kind("code", ttl="3 seconds")
    authority, go = Authority(tmp_path), threading.Event()
    with TornServer(tls=authority.issue(), on_accept=lambda _: step.unread(go)) as server:
        story.work({"main": vendor(server.url, ca_file=authority.ca_file, connect_timeout_ms=10_000,
                                   timeout_ms=12_000)}, lease_s=20)
        key = story.queue("code", ["code"])["code"]
        story.wait(lambda: server.connections > 0, "the connection")
        assert story.row(key).state == "sending"
        story.wait(lambda: story.sql("select expires_at < clock_timestamp() from postrider.message")[0][0],
                   "its time to pass")
        go.set()
        row = story.ended()[key]
        assert row[:4] == ("expired", 0, 0, 0)
        says_both_times(row)
        assert server.requests == [] and server.incomplete == []


def test_no_attempt_is_made_or_planned_past_the_end(db, running):
    """R8, D19: a retry that would come too late is not waited for, whatever the reason to wait."""
    story = Story(db, running)
    waits = {"refused": ([step.answer(503)], "expired"), "throttled": ([step.limited("3600")], "expired"),
             "doubtful": ([step.fin()], "unknown")}
    keys = {}
    for name in waits:
        story.kind(name, route=[name], on_unknown="resend", ttl="10 seconds", base_ms=60_000, cap_ms=60_000)
        keys[name] = story.queue(name, [name])[name]
    with TornServer({keys[n]: course for n, (course, _) in waits.items()}) as server:
        story.work({n: vendor(server.url, settings={"not_taken": [503]}) for n in waits})
        rows = story.ended()
        assert {n: rows[key].state for n, key in keys.items()} == {n: end for n, (_, end) in waits.items()}
        assert [server.request_count(key) for key in keys.values()] == [1, 1, 1]


@pytest.mark.parametrize("first,state", [("refused", "unknown"), ("lost", "sent")])
def test_a_duplicate_of_what_was_refused_is_no_acceptance(db, running, first, state):
    """R6: some vendors keep the key of a request they refused. Their "duplicate" then says nothing:
    the message is not counted as sent, and not sent again. After a lost answer it is proof."""
    story = Story(db, running)
    story.kind("urged", on_unknown="resend", lane=3)
    key = story.queue("urged", ["burnt"])["burnt"]
    refusal = step.answer(503, b'{"error": "later"}') if first == "refused" else step.fin()
    with TornServer({key: [refusal, step.answer(409, b'{"error": "duplicate"}')]}) as server:
        story.work({"main": vendor(server.url, dedup=True, settings={
            "not_taken": [503],
            "dedup": {"duplicate": {"status": 409, "match": {"/error": "duplicate"}}}})})
        story.wait(lambda: story.row(key).state == state, lambda: f"the end: {story.row(key)}")
        assert server.request_count(key) == 2
        row = story.row(key)
        if state == "unknown":
            assert row[:5] == ("unknown", 2, 2, 1, "duplicate of a refused try")
        else:
            assert row.doubts == 0
