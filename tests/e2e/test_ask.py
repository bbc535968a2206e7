"""Asking a vendor about lost answers (U3, U6, D1, D2): live losses and dead workers alike, a test for
each shape of look-up. The sandbox's ledger is the judge of what was sent."""

import http.server
import json
import threading

import pytest

from tests.harness.procs import Sandbox, Worker, wait_until
from tests.harness.vendor import Story

N = 1000
LOST = "0.25"  # share of answers lost

# Each dialect with what its plugin has to know. A second of delay, that the test need not wait.
SHAPES = {
    "by key, http": ("http", "http", lambda url: {
        "url": url + "/messages",
        "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}"},
        "accepted": {"status": [200, 201, 202], "id": "/id"},
        "ask": {"url": url + "/messages?key={{key}}", "delay_s": 1,
                
                "found": {"status": 200}, "list": "/messages", "key": "/key", "id": "/id"}}),
    "by key in a list, sinch": ("sinch", "sinch", lambda url: {
        "url": url, "service_plan_id": "sandboxplan", "api_token": "sandbox-token", "from": "Acme",
        "lookup_delay_s": 1}),
    "by time and our reference, eskiz": ("eskiz", "eskiz", lambda url: {
        "url": url, "email": "test@example.uz", "password": "secret", "lookup_delay_s": 1}),
    "by number and time, compared by text, twilio": ("twilio", "twilio", lambda url: {
        "url": url, "account_sid": "AC00000000000000000000000000000001",
        "auth_token": "sandbox-secret", "from": "+15005550006", "lookup_delay_s": 1,
        "worst_answer_s": 1}),
}


def provider(plugin, settings):
    return {"plugin": plugin, "in_flight": 32, "connect_timeout_ms": 1000, "timeout_ms": 1000,
            "settings": settings}


def config(db, plugin, settings, **over):
    return {"database": db.dsn, "listen": "127.0.0.1:0", "in_flight": 64, "lease_s": 5, "poll_ms": 50,
            "settle_allowance_ms": 500, "providers": {"main": provider(plugin, settings)}, **over}


class Asked(Story):
    """A story at a vendor that speaks a dialect."""

    def open(self, shape, *knobs):
        dialect, plugin, settings = SHAPES[shape]
        self.vendor = Sandbox("--dialect", dialect, "--receipts=off", *knobs)
        self.running.append(self.vendor)
        self.config = config(self.db, plugin, settings(self.vendor.url))

    def start(self):
        self.worker = Worker(self.config)
        self.running.append(self.worker)
        return self.worker.wait_ready()

    def load(self, kind, n, first=0):
        return [row[0] for row in self.sql(
            "select postrider.send('+9989' || to_char(i, 'FM00000000'), 'text ' || i, kind => %s)::text"
            " from generate_series(%s, %s) as i", kind, first, first + n - 1)]

    def counts(self):
        return dict(self.sql("select state::text, count(*) from postrider.message group by 1"))

    def quiet(self, timeout=120):
        """Until every message is handed over or ended; unknown is not an end here."""
        self.wait(lambda: not set(self.counts()) & {"pending", "sending", "unknown"},
                  lambda: f"all doubts to be settled: {self.counts()} {self.worker.log_text()[-1500:]}", timeout)
        return self.counts()

    def at_phones(self):
        stats = self.vendor.api("/stats")
        return stats["taken"], stats["keys"], stats["duplicates"]


@pytest.fixture
def asked(db, running):
    return Asked(db, running)


@pytest.mark.limit(240)
@pytest.mark.parametrize("shape", SHAPES)
def test_lost_answers(asked, shape):
    """1,000 messages, a quarter of the answers lost, workers killed: 0 lost, 0 doubled, 0 unknown."""
    asked.open(shape, "--drop-answer", LOST, "--drop-mode=close", "--latency-p50=5")
    asked.kind("asked", on_unknown="ask", attempts=4)
    ids = asked.load("asked", N)
    first = asked.start()
    asked.start()
    wait_until(lambda: asked.vendor.api("/stats")["taken"] > N // 5, 60, "a fifth to be sent")
    first.kill()
    asked.start()
    assert asked.quiet() == {"sent": N}
    assert asked.at_phones() == (N, N, 0)
    asked.wait(lambda: asked.sql("select count(*) from postrider.ask")[0][0] == 0, "no question to be left")
    assert asked.sql("select count(*) from postrider.attempts where outcome = 'accepted' and phase = 'asked'"
                     )[0][0] > N // 8
    assert len(ids) == N


def test_hold_is_settled_by_asking(asked):
    """U6: under hold a look-up may settle the doubt, and never causes a send."""
    asked.open("by key, http", "--drop-answer=1", "--drop-mode=close")
    asked.kind("held", on_unknown="hold")
    asked.load("held", 20)
    asked.start()
    assert asked.quiet() == {"sent": 20}
    assert asked.at_phones() == (20, 20, 0)


def test_hold_never_seen_is_a_label(asked):
    """Not taken, and the vendor's "never seen" is no proof: unknown, `not found`, never sent again."""
    asked.open("by key, http", "--drop-before=1", "--drop-mode=close")
    asked.kind("held", on_unknown="hold")
    asked.load("held", 5)
    asked.start()
    asked.wait(lambda: asked.sql("select count(*) from postrider.message where state = 'unknown'"
                                 " and reason = 'not found'")[0][0] == 5, "the label")
    assert asked.vendor.api("/stats")["requests"] == 5
    assert asked.at_phones() == (0, 0, 0)


def test_proof_of_absence_gives_back(asked):
    """U6: where the vendor's "never seen" is proof, the message is sent again, also under hold."""
    asked.open("by key, http", "--drop-before=1", "--drop-mode=close")
    asked.config["providers"]["main"]["settings"]["ask"]["absence_proves"] = True
    asked.kind("held", on_unknown="hold", attempts=9, base_ms=50, cap_ms=100)
    asked.load("held", 5)
    asked.start()
    asked.wait(lambda: asked.counts().get("unknown") == 5, "five doubts")
    asked.vendor.api("/knobs", "PUT", {"drop_before": 0})
    assert asked.quiet() == {"sent": 5}
    assert asked.at_phones() == (5, 5, 0)


def test_ask_sends_again_what_was_never_seen(asked):
    asked.open("by key, http", "--drop-before=1", "--drop-mode=close")
    asked.kind("asked", on_unknown="ask")
    asked.load("asked", 5)
    asked.start()
    asked.wait(lambda: asked.counts().get("unknown") == 5, "five doubts")
    asked.vendor.api("/knobs", "PUT", {"drop_before": 0})
    assert asked.quiet() == {"sent": 5}
    assert asked.at_phones() == (5, 5, 0)
    reasons = asked.sql("select distinct doubts, calls from postrider.message")
    assert reasons == [(1, 2)], "the first attempt stays on record as a doubt: nothing proved it"


def test_a_look_up_that_fails_is_repeated(asked):
    """A vendor whose look-up is down settles nothing; when it is back, it does."""
    asked.open("by key, http", "--drop-answer=1", "--drop-mode=close", "--lookup-error=1")
    asked.kind("asked", on_unknown="ask")
    asked.load("asked", 3)
    asked.start()
    asked.wait(lambda: asked.sql("select count(*) from postrider.ask where tries >= 2")[0][0] == 3,
               "two look-ups of each")
    assert asked.counts() == {"unknown": 3}
    asked.vendor.api("/knobs", "PUT", {"lookup_error": 0})
    assert asked.quiet() == {"sent": 3}
    assert asked.at_phones() == (3, 3, 0)


def test_equal_texts_are_told_apart(asked):
    """Two messages with one text to one number, one of them never taken: the vendor's one record
    belongs to one of them alone."""
    asked.open("by number and time, compared by text, twilio")
    asked.kind("asked", on_unknown="ask")
    same = "select postrider.send('+998901112233', 'the same text', kind => 'asked')"
    asked.sql(same)
    asked.start()
    assert asked.quiet() == {"sent": 1}
    asked.vendor.api("/knobs", "PUT", {"drop_before": 1, "drop_mode": "close"})
    asked.sql(same)
    asked.wait(lambda: asked.counts().get("unknown") == 1, "the doubt")
    asked.vendor.api("/knobs", "PUT", {"drop_before": 0})
    assert asked.quiet() == {"sent": 2}
    stats = asked.vendor.api("/stats")
    assert stats["taken"] == 2
    assert len(set(asked.sql("select vendor_id from postrider.message"))) == 2


class OneId(http.server.BaseHTTPRequestHandler):
    """A vendor that gives one id to all, and whose record under it is the first message."""

    first = None

    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).first = type(self).first or message["key"]
        self.reply({"id": "the-same"})

    def do_GET(self):
        self.reply({"id": "the-same", "key": type(self).first})

    def log_message(self, *_):
        pass


def test_by_id_one_id_for_two_messages(asked):
    """R5, by the vendor's id: one id came for two messages; the vendor's record says whose it is."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneId)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    asked.config = config(asked.db, "http", {
        "url": url + "/messages", "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}"},
        "accepted": {"status": 200, "id": "/id"},
        "ask": {"url": url + "/messages/{{vendor_id}}", "delay_s": 1, "found": {"status": 200},
                "key": "/key", "id": "/id"}})
    asked.kind("held", on_unknown="hold")
    first, second = asked.load("held", 2)
    asked.start()
    try:
        asked.wait(lambda: asked.counts() == {"sent": 1, "unknown": 1}
                   and asked.sql("select count(*) from postrider.ask where tries >= 2")[0][0] >= 1,
                   lambda: f"both to be asked about: {asked.rows()}")
    finally:
        server.shutdown()
    rows = asked.rows()
    assert rows[OneId.first].state == "sent"
    other = second if OneId.first == first else first
    assert rows[other][:4] == ("unknown", 1, 1, 1), "a record of another message proves nothing about this one"


def test_limit_of_look_ups(asked):
    """Two workers, four look-ups a minute allowed: no minute holds more."""
    asked.open("by key, http", "--drop-answer=1", "--drop-mode=close")
    asked.config["providers"]["main"]["settings"]["ask"]["per_minute"] = 4
    asked.kind("held", on_unknown="hold")
    asked.load("held", 20)
    asked.start()
    asked.start()
    asked.wait(lambda: asked.counts().get("sent", 0) >= 4, "the first four answers")
    budget = asked.sql("select used from postrider.ask_budget where provider = 'main'")[0][0]
    assert budget <= 4
    minutes = asked.sql("select count(*) from postrider.attempts where phase = 'asked'"
                        " group by date_trunc('minute', ended_at)")
    assert all(n <= 5 for (n,) in minutes), minutes  # told a moment after the minute it was asked in


def test_canceled_in_doubt_is_asked_and_never_sent(asked):
    asked.open("by key, http", "--drop-before=1", "--drop-mode=close")
    asked.kind("asked", on_unknown="ask")
    (message,) = asked.load("asked", 1)
    asked.start()
    asked.wait(lambda: asked.counts().get("unknown") == 1, "the doubt")
    asked.sql("select postrider.cancel(%s)", message)
    asked.vendor.api("/knobs", "PUT", {"drop_before": 0})
    asked.wait(lambda: asked.sql("select coalesce(max(misses), 9) from postrider.ask")[0][0] >= 2,
               "two look-ups after which another message would be sent again")
    assert asked.at_phones() == (0, 0, 0)
    assert asked.sql("select state::text, reason from postrider.message") == [("unknown", "canceled")]


def test_equal_texts_when_the_first_was_settled_late(asked):
    """R5: the first of two equal texts was settled by a look-up; the second, never taken, must not be
    taken for sent by the same record."""
    asked.open("by number and time, compared by text, twilio", "--drop-answer=1", "--drop-mode=close")
    asked.kind("asked", on_unknown="ask")
    same = "select postrider.send('+998901112233', 'the same text', kind => 'asked')"
    asked.sql(same)
    asked.start()
    assert asked.quiet() == {"sent": 1}
    asked.vendor.api("/knobs", "PUT", {"drop_answer": 0, "drop_before": 1})
    asked.sql(same)
    asked.wait(lambda: asked.counts().get("unknown") == 1, "the doubt")
    asked.vendor.api("/knobs", "PUT", {"drop_before": 0})
    assert asked.quiet() == {"sent": 2}
    assert asked.vendor.api("/stats")["taken"] == 2
    assert len(set(asked.sql("select vendor_id from postrider.message"))) == 2
