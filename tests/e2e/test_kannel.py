"""Through Debian's Kannel, which nobody here wrote; the fake SMSC's log says what arrived."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.harness.procs import Sandbox, Worker, merged, wait_until
from tests.lab import kannel_gateway as kannel
from tests.lab.kannel import IN_FLIGHT, TEXTS, Message, Run, good, judge
from tests.lab.kannel_gateway import Arrivals, Gateway, on_the_air


@pytest.fixture(scope="module")
def gateway():
    with Gateway() as g:
        yield g


@pytest.fixture(scope="module")
def imitation():
    """The sandbox that says it is a smsbox."""
    with Sandbox("--dialect", "kannel", "--dialect-set", f"username={kannel.USERNAME}",
                 "--dialect-set", f"password={kannel.PASSWORD}") as s:
        yield s


@pytest.fixture
def through(db, gateway):
    """Starts a worker for this gateway; over: the provider's settings."""
    started = []

    def start(**over):
        config = {"database": db.dsn, "in_flight": 8, "lease_s": 8, "settle_allowance_ms": 1000,
                  "listen": "127.0.0.1:0",
                  "providers": {"gateway": {"plugin": "kannel", "in_flight": 8, "connect_timeout_ms": 1000,
                                            "timeout_ms": 4000, "settings": kannel.settings(gateway)}}}
        worker = Worker(merged(config, {"providers": {"gateway": {"settings": over}}}))
        started.append(worker)
        return worker.wait_ready(60)

    yield start
    for worker in started:
        worker.stop()


def state_of(db, message_id):
    return db.sql("select state::text, reason from postrider.messages where id = %s", message_id)[0]


def played(cluster, receipts):
    """The verdict on 240 messages."""
    run = Run(cluster, 240, receipts, say=lambda _: None)
    try:
        verdict = run.verdict(run.play(time.monotonic() + 140))
        log = run.worker.log_text()
    finally:
        run.close()
    assert good(verdict), f"{json.dumps(verdict, indent=1)}\n{log[-3000:]}"
    assert 1 <= verdict["doubts"] <= 2 * IN_FLIGHT  # what was in the air when smsbox died, twice
    return verdict


@pytest.mark.limit(170)
def test_smsbox_killed_twice_nothing_lost_or_doubled(cluster):
    """D1, D7, U1: calls that die with smsbox are in doubt, and stay that under `hold`; the second kill leaves
    calls that the bearerbox took and nobody answered."""
    verdict = played(cluster, receipts=False)
    assert verdict["unknown"] == verdict["doubts"] == verdict["doubted"]
    assert verdict["unknown_arrived"] >= 1  # so sending those again would have doubled them
    assert verdict["receipts"] == {"none": 240}


@pytest.mark.limit(170)
def test_receipts_settle_what_smsbox_never_answered(cluster):
    """U6: the bearerbox took calls whose smsbox was dead before it could say so; their receipts come through
    the next smsbox, and tell. A receipt that a killed smsbox held is lost, so not all need come."""
    verdict = played(cluster, receipts=True)
    assert verdict["settled_by_receipt"] >= 1
    assert verdict["receipts"].get("delivered", 0) >= 240 * 0.8
    assert set(verdict["receipts"]) <= {"delivered", "in_transit", "none"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_text_arrives_as_it_was_written(db, gateway, through, method):
    """H1, byte for byte at the SMSC, in either way to ask."""
    through(method=method)
    first = 5_000_000 if method == "GET" else 6_000_000
    messages = [Message(first + n) for n in range(len(TEXTS))]
    for m in messages:
        db.sql("select postrider.send(%s, %s, kind => 'campaign')", m.number, m.text)
    wait_until(lambda: db.one("select count(*) from postrider.messages where state = 'sent'") == len(messages), 30,
               "all to be sent")
    wait_until(lambda: {m.number for m in messages} <= gateway.arrivals().numbers(), 10, "all to arrive")
    arrived = gateway.arrivals()
    assert not arrived.torn and not arrived.strangers
    for m in messages:
        assert arrived.whole[m.number] == [on_the_air(m.text)], m.kind


def test_a_wrong_password_holds_the_provider(db, gateway, through):
    """L5: 403 "Authorization failed" is the set-up's trouble: nothing is spent, nothing is lost."""
    worker = through(password="wrong")
    message = db.one("select postrider.send('+998907000001', 'salom', kind => 'otp')")
    wait_until(lambda: "Authorization failed for sendsms" in worker.log_text(), 20, "the refusal in the log")
    wait_until(lambda: db.sql("select state::text, attempts from postrider.messages where id = %s", message)
               == [("pending", 0)], 10, "the message to wait again")
    assert gateway.arrivals().copies("+998907000001") == 0


def test_kannel_cuts_long_texts_so_the_plugin_refuses_them(db, gateway, through):
    """Eleven parts where smsbox allows ten: asked directly it says "Accepted" and cuts; postrider does not
    ask."""
    through()
    text = "x" * (153 * 10 + 1)
    query = urllib.parse.urlencode({"username": kannel.USERNAME, "password": kannel.PASSWORD, "from": kannel.SENDER,
                                    "to": "+998907000002", "text": text})
    assert asked(f"{gateway.url}/cgi-bin/sendsms?{query}")[0] == 202
    wait_until(lambda: gateway.arrivals().whole.get("+998907000002"), 10, "the cut text")
    assert gateway.arrivals().whole["+998907000002"] == [text[:1530].encode()]

    db.sql("update postrider.kind set max_segments = 20 where name = 'otp'")
    message = db.one("select postrider.send('+998907000003', %s, kind => 'otp')", text)
    wait_until(lambda: state_of(db, message)[0] == "failed", 20, "the message to fail")
    assert "plugin_error" in state_of(db, message)[1]
    fits = db.one("select postrider.send('+998907000004', %s, kind => 'otp')", text[:1530])
    wait_until(lambda: gateway.arrivals().whole.get("+998907000004"), 20, "the text of ten parts")
    assert gateway.arrivals().whole["+998907000004"] == [text[:1530].encode()]
    wait_until(lambda: state_of(db, fits)[0] == "sent", 10, "the message to be sent")
    assert gateway.arrivals().copies("+998907000003") == 0


@pytest.mark.parametrize("query, status, words", [
    ({}, 202, "0: Accepted for delivery"),
    ({"to": None}, 400, "Missing receiver number, rejected"),
    ({"to": ""}, 400, "Empty receiver number not allowed, rejected"),
    ({"to": "abc"}, 400, "Number(s) has/have been denied by white- and/or black-lists."),
    ({"coding": "9"}, 400, "Coding field misformed, rejected"),
    ({"validity": "-7"}, 400, "Validity field misformed, rejected"),
    ({"dlr-mask": "99"}, 400, "DLR-Mask field misformed, rejected"),
    ({"dlr-url": "ftp://example.com"}, 400, "DLR-URL field misformed, rejected"),
    ({"account": "x" * 65}, 400, "Account field misformed or too long, rejected"),
    ({"charset": "NONSENSE", "coding": "2"}, 400, "Charset or body misformed, rejected"),
    ({"from": None}, 400, "Sender missing and no global set, rejected"),
    ({"password": "x"}, 403, "Authorization failed for sendsms"),
])
def test_smsbox_and_the_sandbox_say_what_the_plugin_reads(gateway, imitation, query, status, words):
    """The sentences of providers/kannel/judge.c and of its fixtures are those of the real program, and so are
    the sandbox's."""
    fields = {"username": kannel.USERNAME, "password": kannel.PASSWORD, "from": kannel.SENDER, "to": "+998907000009",
              "text": "x", **query}
    fields = {k: v for k, v in fields.items() if v is not None}
    for url in (gateway.url, imitation.url):
        assert asked(f"{url}/cgi-bin/sendsms?{urllib.parse.urlencode(fields)}") == (status, words), url


def test_smsbox_and_the_sandbox_refuse_a_form(gateway, imitation):
    for url in (gateway.url, imitation.url):
        assert asked(f"{url}/cgi-bin/sendsms", data=b"username=postrider&to=1&text=x") == (400, "Invalid content-type")


def asked(url, data=None):
    try:
        with urllib.request.urlopen(url, data, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_the_sandbox_cuts_and_replaces_as_smsbox_does(gateway, imitation):
    """Too many parts, and characters GSM-7 has not under coding 0: both are "Accepted". What 7 bit cannot hold is
    lost in the SMSC's driver, so the fake SMSC still shows it; the sandbox is one step further."""
    fields = {"username": kannel.USERNAME, "password": kannel.PASSWORD, "from": kannel.SENDER, "to": "+998907000010",
              "text": "ж" * 671, "coding": "2", "charset": "UTF-8"}
    for url in (gateway.url, imitation.url):
        assert asked(f"{url}/cgi-bin/sendsms?{urllib.parse.urlencode(fields)}")[0] == 202
    wait_until(lambda: gateway.arrivals().whole.get("+998907000010"), 10, "the cut text")
    assert gateway.arrivals().whole["+998907000010"] == [("ж" * 670).encode("utf-16-be")]
    assert phone(imitation, "+998907000010") == "ж" * 670
    fields.update(to="+998907000011", text="oʻ", coding="0")
    assert asked(f"{imitation.url}/cgi-bin/sendsms?{urllib.parse.urlencode(fields)}")[0] == 202
    assert phone(imitation, "+998907000011") == "o?"


def phone(sandbox, number):
    return sandbox.api(f"/phone/{urllib.parse.quote(number)}")["texts"][0]["text"]


# ---- the judge can say the opposite -----------------------------------------------------------------

def line(text):
    return f"2026-12-01 04:11:42 [27654] [0] DEBUG: Got message 1: <{text}>\n"


def test_the_log_is_put_together():
    arrived = Arrivals(
        "2026-12-01 [1] [0] INFO: fakesmsc starting\n"
        + line("Postrider +998900000001 text salom") + line("ikki qator") + line("Postrider +998900000002 ucs-2 %04%1F+%21")
        + line("Postrider +998900000003 udh %05%00%03%07%02%02 data B+%26") + line("Postrider +998900000003 udh %05%00%03%07%02%01 data A")
        + line("Postrider +998900000003 udh %05%00%03%08%02%01 data A") + line("Postrider +998900000001 text salom"))
    assert arrived.whole == {"+998900000001": [b"salom\nikki qator", b"salom"], "+998900000002": [b"\x04\x1f !"],
                             "+998900000003": [b"AB &"]}
    assert arrived.torn == {"+998900000003": 1} and arrived.copies("+998900000003") == 2
    assert arrived.parts == 6 and not arrived.strangers
    assert Arrivals(line("Other +998900000001 text salom")).strangers == ["Other +998900000001 text salom"]


def test_alphabets_on_the_air():
    """3GPP TS 23.038: the euro sign is in GSM-7's extension, the turned comma of oʻ is in neither."""
    assert on_the_air("€5") == "€5".encode() and on_the_air("oʻ") == b"\x00o\x02\xbb"
    assert on_the_air("😀") == b"\xd8\x3d\xde\x00"


def test_the_judge_names_what_must_not_be():
    messages = [Message(n) for n in range(6)]
    sent = {m.number: ("sent", "none") for m in messages}
    sent[messages[4].number] = sent[messages[5].number] = ("unknown", "none")

    class Log:
        def __init__(self, **over):
            self.whole = {m.number: [on_the_air(m.text)] for m in messages[:5]}
            self.whole.update(over.get("whole", {}))
            self.torn, self.parts, self.strangers = over.get("torn", {}), 9, []
            self.copies = lambda n: len(self.whole.get(n, [])) + self.torn.get(n, 0)

    doubted = {messages[4].number, messages[5].number}
    kills = [("killed", 1), ("unanswered", 1)]
    number, text = messages[0].number, on_the_air(messages[0].text)
    fine = judge(messages, sent, doubted, 2, Log(), kills, True)
    assert good(fine), fine
    assert (fine["unknown"], fine["unknown_arrived"], fine["doubted_arrived"]) == (2, 1, 1)
    for log, what in ((Log(whole={number: []}), "lost"), (Log(whole={number: [text, text]}), "doubled"),
                      (Log(whole={number: [text[:-1]]}), "lost"), (Log(whole={number: [text + b"?"]}), "wrong"),
                      (Log(torn={number: 1}), "doubled")):
        bad = judge(messages, sent, doubted, 2, log, kills, True)
        assert bad[what] == 1 and not good(bad), (what, bad)
    assert not good(judge(messages, sent, doubted, 2, Log(), kills, False))
    assert not good(judge(messages, dict(sent, **{number: ("failed", "none")}), doubted, 2, Log(), kills, True))
