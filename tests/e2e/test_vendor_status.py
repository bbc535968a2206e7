"""What the vendor answers, through the whole worker: statuses, Retry-After, odd bodies
(design's table of outcomes; reliability 3.5; cases C10, C12, C13, C14, L5, L10, D12, H1, H2, J87)."""

import calendar
import email.utils
import time

import pytest

from tests.harness import torn_steps as step
from tests.harness.torn import TornServer
from tests.harness.vendor import Story, ids_belong, vendor

# Proven not taken, for good: the message is at fault.
REJECTED = [400, 406, 410, 411, 413, 414, 415, 417, 418, 421, 422, 428, 431, 451]
# Proven not taken, and another try may go better.
REFUSED = [425, 501, 505, 511, 521, 523, 525, 526]
# The set-up is at fault, or the account: no message is.
HELD = [401, 402, 403, 404, 405, 407, 426]
# Nobody knows: gateways say these after the vendor took it, or before.
UNKNOWN = [203, 204, 206, 207, 300, 301, 302, 303, 307, 308, 408, 409, 500, 502, 503, 504, 507, 508,
           520, 522, 524, 527, 599]


def test_every_status_means_what_the_table_says(db, running):
    """C12, D1, L10, H3: without de-duplication, under hold; each doubt taken and not taken."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", attempts=3)
    names = [(s, t) for s in UNKNOWN for t in (True, False)] + [(s, False) for s in REJECTED + REFUSED]
    keys = dict(zip(names, story.queue("kept", [f"{s} {t}" for s, t in names]).values()))
    fine = story.queue("kept", ["200", "201", "202"])
    script = {key: [step.answer(status, taken=taken)] for (status, taken), key in keys.items()}
    script.update({key: step.answer(int(status)) for status, key in fine.items()})
    with TornServer(script) as server:
        story.work({"main": vendor(server.url)})
        rows = story.ended()
        for (status, taken), key in keys.items():
            if status in UNKNOWN:
                want, requests = ("unknown", 1, 1, 1, "outcome unknown"), 1
            elif status in REJECTED:
                want, requests = ("failed", 1, 1, 0, "rejected"), 1
            else:
                want, requests = ("sent", 2, 2, 0, None), 2
            assert rows[key][:5] == want, (status, taken, rows[key])
            assert server.request_count(key) == requests, status
        for status in REFUSED:
            outcomes = [a.outcome for a in story.attempts(keys[status, False])]
            assert outcomes == ["refused", "accepted"], status
        for status, key in fine.items():
            assert rows[key][:5] == ("sent", 1, 1, 0, None), status
        ids_belong(server, rows)
        assert story.door("main") == "open"  # bad numbers and doubts shut no door
        for outcome, n in {"unknown": 2 * len(UNKNOWN), "rejected": len(REJECTED),
                           "refused": len(REFUSED), "accepted": len(REFUSED) + 3}.items():
            assert story.metric("attempts_total", provider="main", outcome=outcome) == n


@pytest.mark.parametrize("on_unknown", ["hold", "resend"])
def test_a_doubtful_status_of_a_vendor_with_keys_is_asked_again(db, running, on_unknown):
    """C12, C18: the same key goes again; taken or not, the phone has it once."""
    story = Story(db, running)
    story.kind("keyed", on_unknown=on_unknown)
    names = [(s, t) for s in UNKNOWN + [422] for t in (True, False)]
    keys = dict(zip(names, story.queue("keyed", [f"{s} {t}" for s, t in names]).values()))
    with TornServer({key: [step.answer(status, taken=taken)]
                     for (status, taken), key in keys.items()}, dedup=True) as server:
        story.work({"main": vendor(server.url, dedup=True)})
        rows = story.ended()
        for (status, taken), key in keys.items():
            assert rows[key][:5] == ("sent", 2, 2, 0, None), (status, taken, rows[key])
            assert server.request_count(key) == 2 and server.deliveries(key) == 1, (status, taken)
            taken_as = next(r.id for r in server.requests if r.key == key and r.taken)
            assert rows[key].vendor_id == taken_as, (status, taken)


def test_reused_key_and_duplicate(db, running):
    """C18: 422 for ever is never called failed; a declared duplicate is an acceptance."""
    story = Story(db, running)
    story.kind("keyed", on_unknown="resend", attempts=3)
    keys = story.queue("keyed", ["422 always", "duplicate", "plain 409"])
    script = {keys["422 always"]: step.answer(422),
              keys["duplicate"]: [step.fin(), step.answer(409, {"code": "dup", "first": "first-7"})],
              keys["plain 409"]: step.answer(409, {"code": "busy"})}
    rule = {"dedup": {"duplicate": {"status": 409, "match": {"/code": "dup"}, "id": "/first"}}}
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, dedup=True, settings=rule)})
        rows = story.ended()
        assert rows[keys["422 always"]][:4] == ("unknown", 3, 3, 3)
        assert rows[keys["plain 409"]][:4] == ("unknown", 3, 3, 3)
        assert rows[keys["duplicate"]][:4] == ("sent", 2, 2, 0)
        assert rows[keys["duplicate"]].vendor_id == "first-7"
        assert server.deliveries(keys["duplicate"]) == 1


# ---- bodies ----------------------------------------------------------------------------------


def test_a_body_without_proof_is_no_acceptance(db, running):
    """H2, D12: a 2xx proves nothing by itself; and it never means `try again` under hold."""
    bodies = {"empty": b"", "html": b"<html>Please log in</html>", "no id": {"status": "ok"},
              "id null": {"id": None}, "id empty": {"id": ""}, "id zero": {"id": 0},
              "id minus": {"id": "-1"}, "id list": {"id": ["a"]}, "a list": ["a"],
              "broken": b'{"id": "a', "not utf-8": b'{"id": "\xff\xfe"}', "NUL": b'{"id": "a\\u0000b"}'}
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", bodies)
    with TornServer({keys[n]: step.answer(202, body) for n, body in bodies.items()}) as server:
        story.work({"main": vendor(server.url)})
        rows = story.ended()
        for name, key in keys.items():
            assert rows[key][:4] == ("unknown", 1, 1, 1), (name, rows[key])
            assert rows[key].vendor_id is None and server.request_count(key) == 1, name


def test_an_answer_may_lack_its_id_where_that_is_declared(db, running):
    """D12, D18: 202 with an empty body, from a vendor that gives no ids: one attempt, sent."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", map(str, range(20)))
    with TornServer(step.answer(202, b"")) as server:
        story.work({"main": vendor(server.url, settings={"accepted": {"id_optional": True}})})
        rows = story.ended()
        assert {row[:5] for row in rows.values()} == {("sent", 1, 1, 0, None)}
        assert {row.vendor_id for row in rows.values()} == {None}
        assert [server.request_count(key) for key in keys.values()] == [1] * 20


def test_errors_inside_a_200(db, running):
    """H2: 200 with an error in it is judged by the declared rule, with the vendor's own code."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", attempts=3)
    keys = story.queue("kept", ["bad number", "busy", "no rule", "fine"])
    script = {keys["bad number"]: step.answer(200, {"err": "E14", "say": "no such\n number"}, taken=False),
              keys["busy"]: [step.answer(200, {"err": "E2"}, taken=False)],
              keys["no rule"]: step.answer(200, {"err": "E99"})}
    rules = {"rejected": [{"status": 200, "match": {"/err": "E14"}}],
             "not_taken": [{"status": 200, "match": {"/err": "E2"}}],
             "error": "/err", "detail": "/say"}
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, settings=rules)})
        rows = story.ended()
        assert rows[keys["bad number"]][:4] == ("failed", 1, 1, 0)
        assert rows[keys["busy"]][:4] == ("sent", 2, 2, 0)
        assert rows[keys["no rule"]][:4] == ("unknown", 1, 1, 1)
        assert rows[keys["fine"]][:4] == ("sent", 1, 1, 0)
        assert story.attempts(keys["bad number"])[0].code == "E14"
        ids_belong(server, rows)


def test_first_error_is_final_only_if_it_is(db, running):
    """L10: 503 declared as not taken, twice, then 202: sent, attempts 3; a bad number: once."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", attempts=3)
    keys = story.queue("kept", ["temporary", "bad number", "used up"])
    script = {keys["temporary"]: [step.answer(503), step.answer(503), step.answer(202)],
              keys["bad number"]: step.answer(400), keys["used up"]: step.answer(503)}
    with TornServer(script) as server:
        story.work({"main": vendor(server.url, settings={"not_taken": [503]})})
        rows = story.ended()
        assert rows[keys["temporary"]][:4] == ("sent", 3, 3, 0)
        assert rows[keys["bad number"]][:5] == ("failed", 1, 1, 0, "rejected")
        assert rows[keys["used up"]][:5] == ("failed", 3, 3, 0, "attempts used up")
        assert [server.request_count(keys[n]) for n in keys] == [3, 1, 3]
        assert [a.outcome for a in story.attempts(keys["temporary"])] == ["refused", "refused", "accepted"]


def test_redirects_are_not_followed(db, running):
    """C10: neither the message nor the credentials go anywhere else."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    with TornServer() as elsewhere:
        places = {"other host": elsewhere.url, "other path": "/elsewhere", "itself": "/messages",
                  "file": "file:///etc/passwd", "nowhere": "http://"}
        names = [f"{status} {place}" for status in (301, 302, 303, 307, 308) for place in places]
        keys = story.queue("kept", names)
        script = {keys[n]: step.redirect(int(n[:3]), places[n[4:]]) for n in names}
        with TornServer(script) as server:
            story.work({"main": vendor(server.url, settings={"headers": {"Authorization": "Bearer x"}})})
            rows = story.ended()
            assert {row[:4] for row in rows.values()} == {("unknown", 1, 1, 1)}
            assert len(server.requests) == len(names)
            assert {r.target for r in server.requests} == {"/messages"}
            assert {r.headers["authorization"] for r in server.requests} == {"Bearer x"}
        assert elsewhere.connections == 0


def test_an_answer_before_the_body_was_read(db, running):
    """C6, 8.1: 413 while the request is on its way is a whole answer: not taken."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["early", "fine"])
    with TornServer(on_head=lambda r: step.early(413) if r.key == keys["early"] else None) as server:
        story.work({"main": vendor(server.url)})
        rows = story.ended()
        assert rows[keys["early"]][:5] == ("failed", 1, 1, 0, "rejected")
        assert rows[keys["fine"]].state == "sent"
        assert server.deliveries(keys["early"]) == 0 and len(server.incomplete) == 1


# ---- the vendor's door -----------------------------------------------------------------------


def of_path(server, provider):
    return [r for r in server.requests if r.target == f"/{provider}"]


class Doors:
    """Many providers on one server, each with a kind of its own: doors that shut one by one."""

    def __init__(self, story, names, **kind):
        self.story, self.names = story, names
        for name in names:
            story.kind(name, route=[name], on_unknown="hold", **kind)
        self.keys = {name: list(story.queue(name, ["a", "b", "c"]).values()) for name in names}

    def work(self, server, **over):
        base = server.url.rpartition("/")[0]
        self.story.work({name: vendor(f"{base}/{name}", **over) for name in self.names})


def test_a_wrong_setup_or_an_empty_account_holds_the_queue(db, running):
    """L5, R8: 401, 402, 403 and their like: every row stays, nothing is burnt, all leave by themselves
    when the vendor is himself again."""
    story = Story(db, running)
    doors = Doors(story, [f"p{status}" for status in HELD])
    well = []
    with TornServer(lambda r: step.answer() if well else step.answer(int(r.target[2:]))) as server:
        doors.work(server)
        story.wait(lambda: all(story.door(p) == "held" for p in doors.names), "all doors to be held")
        story.wait(lambda: story.in_state("sending") == 0, "the answers to be stored")
        for row in story.rows().values():
            assert row.state == "pending" and row.attempts == 0 and row.doubts == 0, row
        burnt = len(server.requests)
        assert burnt <= 3 * len(HELD)
        assert not [r for r in server.requests if r.taken]
        well.append(True)
        rows = story.ended()
        assert {row[:2] for row in rows.values()} == {("sent", 1)}
        for name, keys in doors.keys.items():
            assert [server.deliveries(key) for key in keys] == [1, 1, 1], name
            assert story.door(name) == "open"
            assert story.metric("attempts_total", provider=name, outcome="held") >= 1
        held = [a for keys in doors.keys.values() for a in story.attempts(keys[0])
                if a.outcome == "held"]
        assert held and {a.phase for a in held} == {"complete"}
        alerts = [line for line in story.worker.log_text().splitlines() if "provider_paused" in line]
        for name in doors.names:
            assert any(f"provider={name} why=held" in line for line in alerts), name


def when(seconds):
    """An HTTP date so many seconds from now, rounded down as dates are."""
    return email.utils.formatdate(int(time.time()) + seconds, usegmt=True)


RETRY_AFTER = {  # what the header says, and the least seconds it asks for
    "seconds": (lambda: ["2"], 2.0), "date": (lambda: [when(4)], 3.0),
    "two": (lambda: ["1", "3"], 3.0), "two, other order": (lambda: ["3", "1"], 3.0),
    "none": (lambda: [], 0), "zero": (lambda: ["0"], 0), "negative": (lambda: ["-5"], 0),
    "past date": (lambda: [when(-3600)], 0), "text": (lambda: ["soon"], 0),
    "21 digits": (lambda: ["1" + "0" * 20], 0), "exponent": (lambda: ["1e21"], 0),
    "fraction": (lambda: ["1.5"], 0), "blank": (lambda: [""], 0),
}


def test_retry_after_in_every_form(db, running):
    """C14, H5: the pause is the provider's, not the message's: nothing goes there before it is
    over. What means nothing is as good as absent, and no attempt is burnt."""
    story = Story(db, running)
    forms = {f"p{i}": form for i, form in enumerate(RETRY_AFTER)}
    doors = Doors(story, list(forms))

    def script(request):
        name = request.target[1:]
        if len(of_path(server, name)) == 0:  # the one asked about is not in the ledger yet
            return step.limited(*RETRY_AFTER[forms[name]][0]())
        return step.answer()

    with TornServer(script) as server:
        doors.work(server, in_flight=1)
        rows = story.ended()
        for name, form in forms.items():
            requests = of_path(server, name)
            assert len(requests) == 4, (form, requests)
            assert requests[1].arrived - requests[0].arrived >= RETRY_AFTER[form][1], form
            assert [rows[key][:2] for key in doors.keys[name]] == [("sent", 1)] * 3, form
            assert rows[requests[0].key].calls == 2, form
            assert [server.deliveries(key) for key in doors.keys[name]] == [1] * 3, form
            assert story.metric("attempts_total", provider=name, outcome="throttled") == 1


def test_throttled_for_ever(db, running):
    """C13, C14, J87: a vendor that only says `later` burns no attempt and ends no message before
    its time; the message's own deadline does, or the cap on calls, and nothing runs hot."""
    story = Story(db, running)
    for name, ttl, calls in (("p0", "5 seconds", 100), ("p2100", "5 seconds", 100), ("capped", "1 hour", 3)):
        story.kind(name, route=[name], ttl=ttl, max_calls=calls)
    keys = {n: story.queue(n, [n])[n] for n in ("p0", "p2100", "capped")}
    far = email.utils.formatdate(calendar.timegm((2100, 1, 1, 0, 0, 0)), usegmt=True)
    with TornServer(lambda r: step.limited(far if r.target == "/p2100" else "0")) as server:
        base = server.url.rpartition("/")[0]
        story.work({name: vendor(f"{base}/{name}") for name in keys})
        story.wait(lambda: story.door("p2100") == "paused", "the door to be shut")
        rows = story.ended()
        for name in ("p0", "p2100"):
            row = rows[keys[name]]
            assert (row.state, row.attempts, row.doubts) == ("expired", 0, 0), row
            assert row.calls == len(of_path(server, name))
        assert len(of_path(server, "p2100")) == 1
        assert 2 <= len(of_path(server, "p0")) <= 30  # 0.2 s to 1 s apart, for at most 10 s
        capped = rows[keys["capped"]]
        assert (capped.state, capped.calls, capped.reason) == ("failed", 3, "too many calls")
        assert len(of_path(server, "capped")) == 3
        assert not [r for r in server.requests if r.taken]
