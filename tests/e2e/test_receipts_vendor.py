"""Messages and their receipts through a vendor that behaves as one: the sandbox in Twilio's dialect
calls the URL it was given, signed over that URL, before its answer, several times, out of order."""

import json

import pytest

from tests.harness.cluster import free_port
from tests.harness.faults import House, armed
from tests.harness.procs import Worker, run, wait_until

ACCOUNT, SECRET = "AC00000000000000000000000000000001", "sandbox-secret"
TOKEN = "vendor-calls-here-0123456789"


class Station:
    """A database, a vendor, and workers the vendor can call back."""

    def __init__(self, cluster, running, sandbox, *knobs):
        self.house, self.running, self.port = House(cluster), running, free_port()
        self.box = sandbox("--dialect", "twilio", "--latency-p50=5", "--identity=text", *knobs)

    def start(self, env=None):
        config = {
            "database": self.house.dsn, "listen": f"127.0.0.1:{self.port}", "in_flight": 32, "lease_s": 10,
            "poll_ms": 50, "settle_allowance_ms": 300, "public_url": f"http://127.0.0.1:{self.port}",
            "providers": {"main": {
                "plugin": "twilio", "in_flight": 32, "timeout_ms": 5000, "receipt_token": TOKEN,
                "settings": {"url": self.box.url, "account_sid": ACCOUNT, "auth_token": SECRET, "from": "+15005550006",
                             "worst_answer_s": 5, "lookup_delay_s": 1, "absence_proves": True}}}}
        self.running.append(Worker(config, env=env))
        return self.running[-1].wait_ready()

    def load(self, numbers, kind="campaign"):
        self.house.sql("select postrider.send_many(%s::text[], array(select 'text ' || i from generate_series(1, %s) i), kind => %s)",
                       numbers, len(numbers), kind)

    def become(self, want):
        """{(state, receipt): number of messages}."""
        def now():
            return {tuple(r[:2]): r[2] for r in self.house.sql(
                "select state::text, receipt::text, count(*) from postrider.message group by 1, 2")}
        wait_until(lambda: now() == want, 60, lambda: f"{want}, is {now()}: {self.house.sql('select result, count(*) from postrider.receipts group by 1')}",
                   interval=0.1)

    def nothing_twice(self, n):
        stats = self.box.api("/stats")
        assert (stats["taken"], stats["duplicates"]) == (n, 0)


@pytest.fixture
def station(cluster, running, sandbox):
    return lambda *knobs: Station(cluster, running, sandbox, *knobs)


def numbers(n, ending=""):
    return [f"+9989{i:0{8 - len(ending)}}{ending}" for i in range(n)]


@pytest.mark.parametrize("knobs", [(), ("--receipt-first=on",), ("--receipt-copies=3", "--receipt-order=shuffled", "--receipt-sent=on")],
                         ids=["after the answer", "before the answer", "thrice and shuffled"])
def test_delivered(station, knobs):
    """R3, R6, R9: whatever the order, every message ends as what became of it."""
    s = station(*knobs)
    worker = s.start()
    s.load(numbers(60) + numbers(5, "9902") + numbers(5, "9911"))
    s.become({("sent", "delivered"): 60, ("sent", "undelivered"): 5, ("sent", "expired"): 5})
    metrics = worker.metrics()
    assert metrics['postrider_receipts_total{provider="main",status="delivered"}'] == 60
    assert metrics['postrider_callbacks_total{provider="main",result="refused"}'] == 0
    assert metrics['postrider_callbacks_total{provider="main",result="unreadable"}'] == 0
    s.nothing_twice(70)
    s.house.counters_agree()


@pytest.mark.parametrize("kind", ["campaign", "transactional"])
def test_lost_answers_are_found_by_their_receipts(station, kind):
    """U6, D6: every third answer is lost. Under `hold` the receipt alone resolves the doubt; under
    `resend` it comes before the resend and stops it. None lost, none doubled, none unknown."""
    s = station("--drop-answer=0.33", "--drop-mode=reset", "--receipt-delay-ms=20", "--lookup-error=1")  # no other way
    s.house.sql("update postrider.kind set backoff_base_ms = 600000, backoff_cap_ms = 600000, ttl = '1 day'")
    s.start()
    s.load(numbers(60), kind)
    s.become({("sent", "delivered"): 60})
    assert s.box.api("/stats")["dropped_answer"] > 5
    assert s.house.one("select count(*) from postrider.attempts where phase = 'receipt' and outcome = 'accepted'") > 5
    s.nothing_twice(60)
    s.house.counters_agree()


@pytest.mark.parametrize("point", ["settle_sent", "receipts_stored"])
def test_a_killed_worker_and_the_vendor_that_repeats(station, point):
    """D7, D8: kill -9 in the midst; receipts that found nobody come again, what was stored is applied,
    and what the vendor never saw is asked about and sent."""
    s = station("--receipt-tries=40", "--receipt-retry-ms=100")
    doomed = s.start(env=armed(point, count=2))
    s.load(numbers(60))
    doomed.wait(60)
    s.start()
    s.become({("sent", "delivered"): 60})
    s.nothing_twice(60)
    s.house.counters_agree()


def test_forged_by_somebody_who_knows_the_address(station):
    """D7: the token is right, the signature is not."""
    s = station("--receipts=off")
    worker = s.start()
    s.load(numbers(1))
    s.become({("sent", "none"): 1})
    [message] = s.box.api("/messages")["messages"]
    url = message["callback"]
    for sign in ("forged", "unsigned"):
        answer = s.box.api("/receipt", "POST", {"id": message["ids"][0], "state": "delivered", "sign": sign, "url": url})
        assert answer["status"] == 403, answer
    s.become({("sent", "none"): 1})
    assert worker.metrics()['postrider_callbacks_total{provider="main",result="refused"}'] == 2
    answer = s.box.api("/receipt", "POST", {"id": message["ids"][0], "state": "delivered", "sign": "genuine", "url": url})
    assert 200 <= answer["status"] < 300, answer
    s.become({("sent", "delivered"): 1})


def test_a_person_writes_back(station):
    s = station()
    worker = s.start()
    call = {"from": "+998901112233", "to": "+15005550006", "text": "СТОП!", "sign": "genuine", "url": f"{worker.url}/receipts/main/{TOKEN}"}
    # A worker that has just started says 503 for a moment.
    wait_until(lambda: 200 <= s.box.api("/inbound", "POST", call)["status"] < 300, 20, "the call to be taken")
    assert s.house.sql("select recipient, class from postrider.suppression") == [("+998901112233", "marketing")]


def test_show_tells_the_story(station):
    s = station("--receipt-sent=on")
    s.start()
    s.load(numbers(1, "9902"))
    s.become({("sent", "undelivered"): 1})
    shown = json.loads(run("show", "--json", str(s.house.one("select id from postrider.message")), dsn=s.house.dsn).stdout)
    assert [e["status"] for e in shown["timeline"] if e["event"] == "receipt"] == ["in_transit", "undelivered"]
    assert [e.get("code") for e in shown["timeline"] if e["event"] == "receipt"][1:] == ["30003"]
