"""What vendors report comes in, is kept before it is answered, and changes messages by rank
(R1 to R11, U6, D3 to D8). The callbacks are made here, signed as the vendor would sign."""

import contextlib
import hashlib
import hmac
import http.client
import json
import signal
import socket
import threading
import uuid

import psycopg2.errors
import pytest

from tests.harness.faults import House, armed, requests_of, start
from tests.harness.procs import run, wait_until

TOKEN = "wJalrXUtnFEMIK7MDENGbPxRfiCYEX"
SECRET = "a secret of the vendor"
SETTINGS = {
    "dedup": None, "key_header": "Idempotency-Key",
    "receipt": {
        "list": "/events", "ref": "/ref", "id": "/id", "status": "/status", "code": "/code", "time": "/at",
        "statuses": {"SENT": "in_transit", "DELIVRD": "delivered", "UNDELIV": "undelivered",
                     "EXPIRED": "expired", "REJECTD": "rejected"},
        "inbound": {"from": "/from", "to": "/to", "text": "/text", "id": "/id"},
        "signature": {"scheme": "hmac-sha256", "secret": SECRET, "header": "X-Signature"},
        "answer": {"status": 202, "body": "{\"ok\":true}", "content_type": "application/json"},
    },
}


def receiving(running, house, box, *, settings=None, provider=None, **over):
    """A worker that takes receipts at /receipts/main/TOKEN."""
    main = {"receipt_token": TOKEN, "settings": {**SETTINGS, **(settings or {})}, **(provider or {})}
    return start(running, house, box, public_url="https://sms.example.com/", providers={"main": main}, **over)


def event(ref=None, status="DELIVRD", vendor_id=None, **more):
    named = {"ref": ref, "id": vendor_id, "status": status}
    return {k: v for k, v in {**named, **more}.items() if v is not None}


def signed(body, secret=SECRET):
    return {"X-Signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
            "Content-Type": "application/json"}


def post(worker, *events, path=f"/receipts/main/{TOKEN}", body=None, headers=None):
    """One callback; (status, body)."""
    if body is None:
        body = json.dumps({"events": list(events)}).encode()
    return worker.http(path, "POST", body, signed(body) if headers is None else headers)


def told(worker, *events):
    """Taken; a worker that has just started may say 503 for a moment, and vendors repeat then."""
    answers = []
    wait_until(lambda: answers.append(post(worker, *events)) or answers[-1][0] != 503, 20, "an answer")
    assert answers[-1] == (202, b'{"ok":true}')


def row(house, message):
    [found] = house.sql("select state::text, receipt::text, reason from postrider.messages where id = %s", message)
    return found


def becomes(house, message, *want):
    wait_until(lambda: row(house, message)[:len(want)] == want, 30,
               lambda: f"{want}: {row(house, message)}, {house.sql('select * from postrider.receipts')}")


def results(house):
    """How the receipts ended, by number; None: still open."""
    return dict(house.sql("select result, count(*) from postrider.receipts group by 1"))


def metric(worker, name, **labels):
    inner = ",".join(f'{k}="{v}"' for k, v in labels.items())
    return worker.metrics()[f"postrider_{name}" + (f"{{{inner}}}" if inner else "")]


def sent(house, n=1, kind="campaign"):
    ids = house.load(n, kind)
    house.settled()
    assert house.states()["sent"] >= n
    return ids


@pytest.fixture
def desk(cluster, running, sandbox):
    """A database, a vendor and a worker that takes receipts."""
    house = House(cluster)
    box = sandbox("--latency-p50=5")
    return house, box, receiving(running, house, box).wait_ready()


def test_the_common_case(desk):
    """R7, R11: reported twice, both kept with both times; counted; shown by `show`."""
    house, _, worker = desk
    [one] = sent(house)
    told(worker, event(one, "SENT", at="2026-01-02T03:04:05Z"))
    becomes(house, one, "sent", "in_transit")
    told(worker, event(one, "DELIVRD", code="000"))
    becomes(house, one, "sent", "delivered")
    wait_until(lambda: metric(worker, "receipts_total", provider="main", status="delivered") == 1, 20, "the counter")
    assert metric(worker, "receipts_total", provider="main", status="in_transit") == 1
    assert metric(worker, "callbacks_total", provider="main", result="stored") == 2
    shown = run("show", one, dsn=house.dsn).stdout
    assert "receipt    delivered" in shown
    lines = [line for line in shown.splitlines() if "receipt from main" in line]
    assert len(lines) == 2, shown
    assert "in transit" in lines[0] and "delivered" in lines[1] and "code 000" in lines[1]
    timeline = json.loads(run("show", "--json", one, dsn=house.dsn).stdout)["timeline"]
    receipts = [e for e in timeline if e["event"] == "receipt"]
    assert [e["status"] for e in receipts] == ["in_transit", "delivered"]
    assert receipts[0]["vendor_at"] == "2026-01-02T03:04:05.000Z" and "vendor_at" not in receipts[1]
    assert [e["result"] for e in receipts] == ["applied", "applied"]


@pytest.mark.parametrize("named_by", ["ref", "k in the URL"])
def test_early(cluster, running, sandbox, named_by):
    """R3, D1: the receipt comes before the answer to the request: parked, then applied."""
    house, box = House(cluster), sandbox("--latency-p50=1500")
    worker = receiving(running, house, box).wait_ready()
    [one] = house.load(1)
    wait_until(lambda: house.states() == {"sending": 1}, 20, "the call")
    if named_by == "ref":
        told(worker, event(one))
    else:
        body = json.dumps({"events": [event(vendor_id="v")]}).encode()
        assert post(worker, body=body, path=f"/receipts/main/{TOKEN}?k={one}")[0] == 202
    wait_until(lambda: metric(worker, "receipts_open_total", provider="main", **{"as": "parked"}) == 1, 20, "parking")
    assert row(house, one)[:2] == ("sending", "none")
    becomes(house, one, "sent", "delivered")
    assert requests_of(box, one) == 1


def test_late_and_out_of_order(desk):
    """R6, D4: what is final stays, whatever comes after it; everything is kept."""
    house, _, worker = desk
    one, two = sent(house, 2)
    told(worker, event(one, "DELIVRD"))
    becomes(house, one, "sent", "delivered")
    told(worker, event(one, "SENT"), event(one, "UNDELIV"), event(two, "EXPIRED"), event(two, "SENT"))
    becomes(house, two, "sent", "expired")
    wait_until(lambda: None not in results(house), 20, "all to be applied")
    assert row(house, one)[:2] == ("sent", "delivered")
    assert results(house) == {"applied": 2, "no news": 3}


def test_a_hundred_times_at_once(desk):
    """R9, D3: one effect, a hundred good answers."""
    house, _, worker = desk
    [one] = sent(house)
    answers = []
    threads = [threading.Thread(target=lambda: [answers.append(post(worker, event(one))[0]) for _ in range(10)])
               for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert answers == [202] * 100
    wait_until(lambda: None not in results(house), 30, "all to be applied")
    assert results(house) == {"applied": 1, "no news": 99}
    assert row(house, one)[:2] == ("sent", "delivered")
    assert metric(worker, "receipts_total", provider="main", status="delivered") == 1
    assert house.one("select count(*) from postrider.callback") == 100


def test_parts(desk):
    """R4: three parts; two arrive, one does not."""
    house, _, worker = desk
    [one] = sent(house)
    house.sql("insert into postrider.vendor_ref (provider, vendor_id, message_id, part, parts)"
              " select 'main', 'part-' || i, %s, i, 3 from generate_series(1, 3) i", one)
    told(worker, event(vendor_id="part-1"), event(one, vendor_id="part-3"))
    becomes(house, one, "sent", "in_transit")
    told(worker, event(vendor_id="part-2", status="UNDELIV", code="30008"))
    becomes(house, one, "sent", "undelivered", "2 of 3 parts arrived")
    shown = run("show", one, dsn=house.dsn).stdout
    assert "receipt    undelivered (2 of 3 parts arrived)" in shown
    assert "part 2 of 3: not delivered, code 30008" in shown


def test_nobody_and_nowhere(desk):
    """D5, R9: an unknown id is answered well and kept; a wrong address tells nothing."""
    house, _, worker = desk
    told(worker, event(str(uuid.uuid4())), event(vendor_id="never given out"))
    wait_until(lambda: metric(worker, "receipts_open_total", provider="main", **{"as": "parked"}) == 2, 20, "parking")
    assert results(house) == {None: 2}
    wrong = [f"/receipts/main/{TOKEN}x", f"/receipts/main/{TOKEN[:-1]}", f"/receipts/Main/{TOKEN}", f"/receipts/other/{TOKEN}",
             f"/receipts/main/{TOKEN}/", "/receipts/main/", "/receipts/main", "/receipts/", f"/receipts//{TOKEN}", "/receipts/main/nobody's%20token"]
    answers = {post(worker, event(), path=path) for path in wrong}
    assert {status for status, _ in answers} == {404} and len(answers) == 1
    assert house.one("select count(*) from postrider.callback") == 1


def test_a_hundred_in_one_call(desk):
    house, _, worker = desk
    ids = sent(house, 100)
    told(worker, *[event(i, "DELIVRD" if n % 4 else "UNDELIV") for n, i in enumerate(ids)])
    wait_until(lambda: house.sql("select receipt::text, count(*) from postrider.message group by 1 order by 1") ==
               [("delivered", 75), ("undelivered", 25)], 30, "all to be applied")
    assert house.one("select count(*) from postrider.callback") == 1


def test_what_we_do_not_know_the_vendor_does(cluster, running, sandbox):
    """U6: under `hold` a lost answer is unknown for ever; a receipt resolves it, whatever it says."""
    house, box = House(cluster), sandbox("--drop-answer=1", "--drop-mode=reset")
    worker = receiving(running, house, box).wait_ready()
    ids = house.load(3)
    house.settled()
    assert house.states() == {"unknown": 3}
    told(worker, event(ids[0], "DELIVRD", vendor_id="SM1"), event(ids[1], "SENT"), event(ids[2], "REJECTD", code="7"))
    becomes(house, ids[0], "sent", "delivered")
    becomes(house, ids[1], "sent", "in_transit")
    becomes(house, ids[2], "sent", "undelivered")
    assert house.one("select vendor_id from postrider.messages where id = %s", ids[0]) == "SM1"
    assert house.sql("select distinct outcome::text, phase from postrider.attempts") == [("accepted", "receipt")]
    assert house.one("select sum(doubts) from postrider.message") == 0
    assert [requests_of(box, i) for i in ids] == [1, 1, 1]
    house.counters_agree()


def test_a_planned_resend_is_stopped(cluster, running, sandbox):
    """D6: a doubt waits for its resend, the receipt comes first: the resend does not happen."""
    house, box = House(cluster), sandbox("--drop-answer=1", "--drop-mode=reset")
    house.sql("update postrider.kind set backoff_base_ms = 3600000, backoff_cap_ms = 3600000 where name = 'transactional'")
    worker = receiving(running, house, box).wait_ready()
    [one] = house.load(1, "transactional")
    wait_until(lambda: house.sql("select state::text, doubts::int from postrider.message") == [("pending", 1)], 20, "the doubt")
    told(worker, event(one, "SENT"))
    becomes(house, one, "sent", "in_transit")
    assert house.one("select due from postrider.message") is None
    assert requests_of(box, one) == 1
    house.counters_agree()


@pytest.mark.parametrize("kind", ["otp", "transactional"])
def test_one_that_came_before_the_doubt_stops_the_resend(cluster, running, sandbox, kind):
    """D1, U6: the call hangs, the receipt is stored meanwhile, then the answer is lost: no resend, though
    the vendor neither de-duplicates nor can be asked and the kind says `resend`."""
    house, box = House(cluster), sandbox("--dedup=off", "--drop-answer=1", "--drop-mode=hang")
    worker = receiving(running, house, box, provider={"timeout_ms": 2000}).wait_ready()
    ids = house.load(20, kind)
    wait_until(lambda: box.api("/stats")["taken"] == 20, 20, "the calls to hang")
    told(worker, *[event(one, "DELIVRD") for one in ids])
    wait_until(lambda: house.states() == {"sent": 20}, 60, lambda: f"the receipts to settle all: {house.states()}")
    stats = box.api("/stats")
    assert (stats["requests"], stats["duplicates"]) == (20, 0)
    wait_until(lambda: house.one("select count(*) from postrider.message where receipt = 'delivered'") == 20, 20,
               "the receipts to be applied")
    house.counters_agree()


def test_a_receipt_contradicts_what_was_answered(cluster, running, sandbox):
    """D6: "refused", said the answer, and the handset has it: sent, and counted as odd. A receipt
    that says the same as the answer changes nothing."""
    house, box = House(cluster), sandbox("--status-all=400")
    worker = receiving(running, house, box, settings={"rejected": [400]}).wait_ready()
    one, two = house.load(2)
    house.settled()
    if house.states() != {"failed": 2}:
        pytest.fail(str(house.sql("select outcome::text, code from postrider.attempt")))
    told(worker, event(one, "DELIVRD"), event(two, "UNDELIV"))
    becomes(house, one, "sent", "delivered", "receipt contradicts")
    assert row(house, two)[:2] == ("failed", "none")
    assert metric(worker, "receipt_contradictions_total") == 1
    assert results(house) == {"applied": 1, "confirmed": 1}
    house.counters_agree()


def test_forged_and_garbage(desk):
    """D7: refused, counted, and nothing is changed or kept."""
    house, _, worker = desk
    [one] = sent(house)
    good = json.dumps({"events": [event(one)]}).encode()
    forgeries = [signed(good, "another secret"), signed(good + b" "), {"Content-Type": "application/json"},
                 {**signed(good), "X-Signature": ""}, {**signed(good), "X-Signature": "0" * 64}]
    assert [post(worker, body=good, headers=h)[0] for h in forgeries] == [403] * len(forgeries)
    junk = [b"{", b"[]", b"\x00\xff\xfe", b"events=1"]
    assert [post(worker, body=b)[0] for b in junk] == [400] * len(junk)
    assert post(worker, body=b"{", headers={})[0] == 403  # who is not known is not told what is wrong
    assert metric(worker, "callbacks_total", provider="main", result="refused") == len(forgeries) + 1
    assert metric(worker, "callbacks_total", provider="main", result="unreadable") == len(junk)
    assert row(house, one)[:2] == ("sent", "none")
    assert house.one("select count(*) from postrider.callback") == 0
    log = worker.log_text()
    assert log.count("callback_refused") == log.count("callback_unreadable") == 1  # not a line each
    told(worker, event(one))
    becomes(house, one, "sent", "delivered")


def test_big_and_slow_and_many(desk):
    """D7: 10 MB, a sender that dawdles, hundreds of connections: messages go out all the while."""
    house, _, worker = desk
    host, port = worker.wait_address().split(":")
    head = f"POST /receipts/main/{TOKEN} HTTP/1.1\r\nHost: x\r\n".encode()
    with socket.create_connection((host, int(port)), 20) as s, contextlib.suppress(OSError):
        s.sendall(head + b"Content-Length: 10000000\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 413")
    with socket.create_connection((host, int(port)), 20) as s, contextlib.suppress(OSError):
        s.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            s.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")  # until it is put out
        assert b" 202 " not in s.recv(65536)
    crowd = [socket.create_connection((host, int(port)), 20) for _ in range(600)]
    for s in crowd:
        with contextlib.suppress(OSError):
            s.sendall(head + b"Content-Length: 200000\r\n\r\n[")
    sent(house, 500)
    assert house.one("select count(*) from postrider.callback") == 0
    for s in crowd:
        s.close()
    wait_until(lambda: worker.http("/healthz")[0] == 200, 20, "a place")
    [one] = sent(house)
    wait_until(lambda: post(worker, event(one))[0] == 202, 20, "a place")
    becomes(house, one, "sent", "delivered")


def test_the_database_is_down(own_cluster, running, sandbox):
    """D8: nothing is promised that is not stored: 503, and a repeat later on is taken."""
    house, box = House(own_cluster), sandbox("--latency-p50=5")
    worker = receiving(running, house, box).wait_ready()
    [one] = sent(house)
    house.close()
    own_cluster.stop()
    wait_until(lambda: post(worker, event(one))[0] == 503, 20, "503")
    assert post(worker, event(one))[0] == 503
    assert metric(worker, "callbacks_total", provider="main", result="unstored") >= 2
    own_cluster.start()
    wait_until(lambda: post(worker, event(one))[0] == 202, 30, "the repeat")
    becomes(house, one, "sent", "delivered")


@pytest.mark.parametrize("point", ["receipts_stored", "receipts_applied"])
def test_kill_around_the_apply(cluster, running, sandbox, point):
    """D8: what is committed is applied, by the next worker at the latest; the vendor may repeat."""
    house, box = House(cluster), sandbox("--latency-p50=5")
    sender = receiving(running, house, box).wait_ready()
    [one] = sent(house)
    sender.stop()
    doomed = receiving(running, house, box, env=armed(point)).wait_ready()

    def dead():
        with contextlib.suppress(OSError, http.client.HTTPException):
            post(doomed, event(one))
        return not doomed.alive()

    wait_until(dead, 20, "the end")
    assert doomed.wait() == -signal.SIGKILL
    before = house.one("select count(*) from postrider.receipts")
    assert before >= 1
    assert row(house, one)[:2] == ("sent", "none" if point == "receipts_stored" else "delivered")
    again = receiving(running, house, box).wait_ready()
    becomes(house, one, "sent", "delivered")
    told(again, event(one))
    wait_until(lambda: results(house) == {"applied": 1, "no news": before}, 20, lambda: f"the repeat: {results(house)}")


def test_kill_while_the_apply_waits(cluster, running, sandbox):
    """D8: the worker dies in the midst of applying: nothing of it happened, and nothing is lost."""
    house, box = House(cluster), sandbox("--latency-p50=5")
    doomed = receiving(running, house, box).wait_ready()
    [one] = sent(house)
    lock = cluster.connect(house.dsn, autocommit=False)
    with contextlib.closing(lock):
        lock.cursor().execute("select 1 from postrider.message where id = %s for update", (one,))
        told(doomed, event(one))
        wait_until(lambda: house.one("select count(*) from pg_stat_activity where datname = %s and wait_event_type = 'Lock'",
                                     house.name) > 0, 20, "the look to wait")
        doomed.kill()
        assert results(house) == {None: 1}
    receiving(running, house, box).wait_ready()
    becomes(house, one, "sent", "delivered")
    assert results(house) == {"applied": 1}


def test_one_that_cannot_be_stored(desk):
    """The database refuses one callback's data: its vendor is told to repeat, all others are kept."""
    house, _, worker = desk
    ids = sent(house, 20)
    house.sql("alter table postrider.receipt_event add constraint cursed check (vendor_id <> 'cursed')")
    answers = {}

    def tell(i, vendor_id):
        answers[i] = post(worker, event(i, vendor_id=vendor_id))[0]

    threads = [threading.Thread(target=tell, args=(i, "cursed" if n == 7 else f"v{n}")) for n, i in enumerate(ids)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert answers.pop(ids[7]) == 503
    assert set(answers.values()) == {202}
    wait_until(lambda: results(house) == {"applied": 19}, 20, "the others")
    assert row(house, ids[7])[:2] == ("sent", "none")


def test_two_workers_take_and_apply(desk, running):
    """Each takes callbacks; each receipt is applied once, by either."""
    house, box, one = desk
    two = receiving(running, house, box).wait_ready()
    ids = sent(house, 60)
    for n, i in enumerate(ids):
        told((one, two)[n % 2], event(i, "SENT"), event(i, "DELIVRD"))
    wait_until(lambda: house.sql("select distinct receipt::text from postrider.message") == [("delivered",)], 30, "all")
    wait_until(lambda: None not in results(house), 20, "all to be applied")
    raised = [metric(w, "receipts_total", provider="main", status="delivered") for w in (one, two)]
    assert sum(raised) == 60


def test_a_new_token(desk):
    """SIGHUP: the old address is gone, the new one works."""
    house, _, worker = desk
    [one] = sent(house)
    config = json.loads(worker.config.read_text())
    config["providers"]["main"]["receipt_token"] = "A" * 16
    worker.write_config(config)
    worker.reload()
    wait_until(lambda: post(worker, event(one))[0] == 404, 20, "the reload")
    assert post(worker, event(one), path="/receipts/main/" + "A" * 16)[0] == 202
    becomes(house, one, "sent", "delivered")


def test_people_write_back(desk):
    """A message that is nothing but STOP puts its sender on the list; nothing of it is in the log."""
    house, _, worker = desk
    person = {"from": "998901234567", "to": "1234"}
    told(worker, {**person, "text": "Please stop this", "id": "in-1"}, {**person, "text": "‘To‘xtat!’", "id": "in-2"})
    assert house.sql("select recipient, class, source from postrider.suppression") == [("+998901234567", "marketing", "inbound")]
    told(worker, {**person, "text": "START", "id": "in-3"})
    assert house.sql("select recipient from postrider.suppression") == []
    told(worker, {**person, "text": "‘To‘xtat!’", "id": "in-2"})  # the vendor's repeat
    assert house.sql("select recipient from postrider.suppression") == []
    assert house.sql("select body, word from postrider.inbound order by id") == \
        [("Please stop this", None), ("‘To‘xtat!’", "marketing"), ("START", "start")]
    assert "901234567" not in worker.log_text() and "stop this" not in worker.log_text()


def test_who_may_read_what(desk):
    """Raw callbacks and people's words are for operators; a viewer sees what was reported."""
    house, _, worker = desk
    [one] = sent(house)
    told(worker, event(one), {"from": "998901234567", "text": "hello"})
    becomes(house, one, "sent", "delivered")
    house.sql("set role postrider_viewer")
    try:
        assert house.sql("select status from postrider.receipts") == [("delivered",)]
        for table in ("callback", "inbound", "receipt_event", "suppression"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                house.sql(f"select * from postrider.{table}")
    finally:
        house.sql("reset role")


@pytest.mark.parametrize("token", ["short", "x" * 129, "with a blank in it", "slash/slash/slash/", "ünïcödë-ünïcödë-"])
def test_tokens_that_are_refused(cluster, sandbox, running, token):
    done = receiving(running, House(cluster), sandbox(), provider={"receipt_token": token})
    assert done.wait() != 0
    assert "receipt_token: must be 16 to 128 letters, digits, _ or -" in done.log_text()
    assert token not in done.log_text()
