"""Connections that tear, through the whole worker (rules R5 and R6; reliability 3.2 to 3.4, 8.1).

Every cut is made on a fresh connection and on one in reuse, where libcurl by itself would send the
request again. The ledger is written before the cut is played, so it holds every request."""

import threading

import pytest

from tests.harness import torn_steps as step
from tests.harness.torn import TornServer
from tests.harness.torn_net import Authority
from tests.harness.vendor import Story, ids_belong, vendor

NEVER = threading.Event()  # a wait that ends with the server
SOON = {"timeout_ms": 1200, "connect_timeout_ms": 1000}  # two of the cuts take all of it

CUTS = {
    "fin": step.fin(),
    "rst": step.rst(),
    "half a status line": step.half_status(),
    "half a status line, rst": step.half_status(end="rst"),
    "only 100": step.interim(100),
    "only 103": step.interim(103),
    "status line only": step.status_line(),
    "half a header": step.half_header(),
    "half a header, rst": step.half_header(end="rst"),
    "short body": step.short_body(),
    "short body, rst": step.short_body(end="rst"),
    "bad chunk": step.bad_chunk(),
    "garbage": step.garbage(),
    "no answer": step.stall(NEVER),
    "an answer byte by byte": step.trickle(0.2),
    "400 kB of headers": step.huge_headers(),
    "100 MB of body": step.huge_body(),
    "100 MB in chunks": step.huge_body(chunked=True),
    "body that is no gzip": step.bad_gzip(),  # last: the answer as such is whole
}


def line_up(story, kind, reused):
    """The messages to be cut, each behind one that opens its connection if that shall be reused."""
    order = [name for cut in CUTS for name in ([f"before {cut}", cut] if reused else [cut])]
    keys = story.queue(kind, order)
    return {cut: keys[cut] for cut in CUTS}, [keys[n] for n in order if n not in CUTS]


def first_requests(server, keys, reused):
    """The first request of each key came where it should: the test has to test what it says."""
    wrong = [r.key for r in server.requests
             if r.key in keys and r.nth == 1 and (r.number == 1) == reused]
    assert not wrong, wrong


REUSED = pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])


@REUSED
def test_hold_sends_once_whatever_is_cut(db, running, reused):
    """C6, C7, D1: the vendor knows no keys. One request each, the doubt is shown, and it stays so."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    cut, before = line_up(story, "kept", reused)
    with TornServer({key: CUTS[name] for name, key in cut.items()}) as server:
        worker = story.work({"main": vendor(server.url, **SOON)}, in_flight=1)
        rows = story.ended()
        first_requests(server, set(cut.values()), reused)
        for name, key in cut.items():
            assert server.request_count(key) == 1, name
            assert rows[key][:6] == ("unknown", 1, 1, 1, "outcome unknown", None), (name, rows[key])
            assert [a.outcome for a in story.attempts(key)] == ["unknown"], name
        for key in before:
            assert rows[key][:3] == ("sent", 1, 1) and server.request_count(key) == 1
        ids_belong(server, rows)
        assert story.metric("attempts_total", provider="main", outcome="unknown") == len(CUTS)
        # 100 MB of answer leave no trace in memory (C6, R11); target: 64 MiB a worker.
        with open(f"/proc/{worker.pid}/status", encoding="ascii") as status:
            peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        assert peak_kb < 64 * 1024


@REUSED
def test_resend_sends_at_most_once_an_attempt(db, running, reused):
    """C7 under `resend`, still no keys at the vendor: requests = attempts, the same key each time."""
    story = Story(db, running)
    story.kind("pressed", on_unknown="resend", base_ms=60_000, cap_ms=60_000)
    cut, _ = line_up(story, "pressed", reused)
    with TornServer({key: [CUTS[name]] * 2 for name, key in cut.items()}) as server:
        story.work({"main": vendor(server.url, **SOON)}, in_flight=1)
        for attempt in (1, 2):  # the minute between two attempts is not waited for
            story.wait(lambda: story.in_state("sending") == 0 and all(
                story.row(key)[:4] == ("pending", attempt, attempt, attempt)
                for key in cut.values()), "every cut to be in doubt, and to wait")
            for name, key in cut.items():
                assert server.request_count(key) == attempt, name
            story.hurry()
        rows = story.ended()
        first_requests(server, set(cut.values()), reused)
        for name, key in cut.items():
            assert rows[key][:4] == ("sent", 3, 3, 2), (name, rows[key])
            assert server.request_count(key) == 3, name
        ids_belong(server, rows)
        assert story.metric("possible_duplicates_total", provider="main") == 2 * len(CUTS)


@REUSED
@pytest.mark.parametrize("on_unknown", ["hold", "resend"])
def test_a_vendor_that_knows_keys_delivers_once(db, running, reused, on_unknown):
    """C7 with de-duplication: whoever sends again, the phone has it once and we know its id."""
    story = Story(db, running)
    story.kind("keyed", on_unknown=on_unknown, base_ms=60_000, cap_ms=60_000)
    cut, _ = line_up(story, "keyed", reused)
    with TornServer({key: [CUTS[name]] for name, key in cut.items()}, dedup=True) as server:
        story.work({"main": vendor(server.url, dedup=True, **SOON)}, in_flight=1)
        story.wait(lambda: all(story.row(key).calls > 0 for key in cut.values()), "first attempts")
        story.hurry()
        rows = story.ended()
        for name, key in cut.items():
            assert rows[key].state == "sent" and rows[key].doubts == 0, (name, rows[key])
            assert server.deliveries(key) == 1, name
            assert rows[key].vendor_id == next(r.id for r in server.requests if r.key == key), name
        assert story.metric("possible_duplicates_total", provider="main") == 0


LEFT_BEHIND = {
    "a stale 200": lambda server: server.inject(),
    "a stale 408": lambda server: server.inject(step.stale_message(408)),
    "half a status line": lambda server: server.inject(b"HTTP/1.1 20"),
    "one byte": lambda server: server.inject(b"\n"),
    "a fin": lambda server: server.close_idle("fin"),
    "a reset": lambda server: server.close_idle("rst"),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_lies_on_an_idle_connection_answers_nobody(db, running, tmp_path, scheme):
    """C8: the next message sees the dirt before it sends, and goes out on a new connection."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    authority = Authority(tmp_path) if scheme == "https" else None
    with TornServer(tls=authority and authority.issue()) as server:
        story.work({"main": vendor(server.url, ca_file=authority and authority.ca_file)},
                   in_flight=1)
        for name, spoil in LEFT_BEHIND.items():
            first = story.queue("kept", ["before"])["before"]
            story.ended()
            assert server.wait_idle()
            assert spoil(server) >= 1, name
            key = story.queue("kept", [name])[name]
            rows = story.ended()
            assert rows[first].state == "sent"
            assert rows[key][:4] == ("sent", 1, 1, 0), (name, rows[key])
            assert server.request_count(key) == 1 and server.deliveries(key) == 1, name
        ids_belong(server, story.rows())
        assert "77" not in {row.vendor_id for row in story.rows().values()}


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_a_connection_that_closes_as_the_request_arrives(db, running, end):
    """C7, the keep-alive race itself: the bytes have left, so it is a doubt and no second try."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["before", "after", "last"])
    closing = {keys["before"]: step.answer_then_close("on_next", end)}
    with TornServer(closing) as server:
        story.work({"main": vendor(server.url)}, in_flight=1)
        rows = story.ended()
        assert rows[keys["before"]].state == rows[keys["last"]].state == "sent"
        assert rows[keys["after"]][:5] == ("unknown", 1, 1, 1, "outcome unknown")
        assert server.request_count(keys["after"]) == (1 if end == "fin" else 0)
        assert server.deliveries(keys["after"]) == 0
        ids_belong(server, rows)


def same_id(name="same"):
    return step.answer(200, {"id": name})


def both_in_doubt(story, keys):
    rows = story.ended()
    for name in ("first", "second"):
        assert rows[keys[name]].state == "unknown", (name, rows[keys[name]])
        assert rows[keys[name]].doubts == 1
        assert story.attempts(keys[name])[-1].outcome == "unknown"
    assert rows[keys["second"]].attempts == 1
    assert story.metric("duplicate_suspects_total") >= 1


def test_one_id_for_two_messages_together(db, running):
    """R5: whose answer was it? Both are in doubt while neither is stored yet."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["first", "second", "other"])
    with TornServer({keys["first"]: same_id(), keys["second"]: same_id()}) as server:
        story.work({"main": vendor(server.url)}, in_flight=8, settle_ms=1000)
        rows = story.ended()
        for name in ("first", "second"):
            assert rows[keys[name]][:4] == ("unknown", 1, 1, 1), (name, rows[keys[name]])
            assert rows[keys[name]].vendor_id == "same"  # kept, for whoever looks into it
            assert server.request_count(keys[name]) == 1
        assert rows[keys["other"]].state == "sent"
        assert story.metric("duplicate_suspects_total") >= 1


def test_one_id_for_two_messages_one_after_another(db, running):
    """R5: the first was called sent already; that is taken back."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    with TornServer(same_id()) as server:
        story.work({"main": vendor(server.url)}, in_flight=8)
        keys = story.queue("kept", ["first"])
        assert story.ended()[keys["first"]].state == "sent"
        keys.update(story.queue("kept", ["second"]))
        story.wait(lambda: story.row(keys["first"]).state != "sent", "the first to be in doubt")
        both_in_doubt(story, keys)
        counts = dict(story.sql("select state::text, count from postrider.counts"))
        assert counts == {"unknown": 2}


def test_one_id_for_a_retried_message_and_another(db, running):
    """R5: the first needed two attempts, so it waits in another line to be stored."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["first", "second"])
    answered = threading.Event()

    def answer_and_tell(conn, request):
        same_id().play(conn, request)
        answered.set()

    script = {keys["first"]: [step.answer(503), step.Step("tells", answer_and_tell, True)],
              keys["second"]: step.after(answered, same_id())}
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, settings={"not_taken": [503]})},
                   in_flight=8, settle_ms=1000)  # the second comes while the first is not stored
        both_in_doubt(story, keys)
        assert story.row(keys["first"]).attempts == 2


def test_one_id_at_two_vendors_is_no_doubt(db, running):
    """R5's neighbour: every vendor numbers for itself."""
    story = Story(db, running)
    story.kind("left", route=["one"])
    story.kind("right", route=["two"])
    left, right = story.queue("left", ["left"]), story.queue("right", ["right"])
    with TornServer(same_id()) as one, TornServer(same_id()) as two:
        story.work({"one": vendor(one.url), "two": vendor(two.url)})
        rows = story.ended()
        assert rows[left["left"]][:2] == rows[right["right"]][:2] == ("sent", 1)
