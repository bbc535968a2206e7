"""worker/io/http.h against a vendor whose connections tear (cases C1 to C10, A5, R12 of the ledger).

What counts is read at the server: how many complete requests arrived, and for which key. A call's
permits must cover them, zero permits must mean that nothing arrived, and no answer may reach a
message it was not meant for. Each tear is played on a fresh connection and on one in reuse, where
libcurl would send a POST again by itself.
"""
import json
import os
import signal
import socket
import subprocess
import threading

import pytest

from tests.harness import clean
from tests.harness import torn_steps as step
from tests.harness.procs import wait_until
from tests.harness.torn import TornServer
from tests.harness.torn_net import Authority, ClosedPort, SynHole

PROGRAM = clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "http_driver"
BODY = '{"to": "+998000000001", "text": "482913"}'


class Driver:
    """One http_driver process: one pool, whose connections live between the calls."""

    def __init__(self, *args, env=None):
        self.process = clean.spawn([PROGRAM, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env=dict(os.environ, **(env or {})))
        assert self.process.stdout.readline() == "ready\n"

    def send(self, url, **spec):
        self.process.stdin.write(json.dumps({"url": url, "body": BODY, **spec}) + "\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def call(self, url, **spec):
        self.send(url, **spec)
        return self.read()

    def memory_kib(self):
        status = open(f"/proc/{self.process.pid}/status", encoding="ascii").read()
        return int(status.split("VmHWM:")[1].split()[0])

    def finish(self):
        """Ends the input and waits: whatever the driver wanted to send has been sent."""
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(20) == 0


@pytest.fixture
def drivers():
    started = []

    def start(*args, **kwargs):
        started.append(Driver(*args, **kwargs))
        return started[-1]

    yield start
    for driver in started:
        if driver.process.poll() is None:
            driver.finish()


def assert_unsent(result, phase):
    assert result["permits"] == 0
    assert not result["complete"]
    assert result["phase"] == phase
    assert result["status"] == 0


# --- the ways a reply tears (C4, C6 fresh; C7 in reuse) -------------------------------------------

# name: (step, status that was read). Without a final status line the phase is "sent".
TEARS = {
    "fin": (step.fin(), 0),
    "rst": (step.rst(), 0),
    "half status line, fin": (step.half_status(), 0),
    "half status line, rst": (step.half_status("rst"), 0),
    "only 100": (step.interim(100), 0),
    "only 103": (step.interim(103), 0),
    "status line": (step.status_line(), 200),
    "half header, fin": (step.half_header(), 200),
    "half header, rst": (step.half_header(end="rst"), 200),
    "half header of a 500": (step.half_header(500), 500),
    "short body, fin": (step.short_body(), 200),
    "short body, rst": (step.short_body(end="rst"), 200),
    "bad chunk": (step.bad_chunk(), 200),
    "chunks without an end": (step.raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), 200),
    "bad length": (step.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n{}"), 200),
    "negative length": (step.raw(b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"), None),
    "two lengths": (step.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\n{}"),
                    200),
    "garbage": (step.garbage(), 0),
    "HTTP/0.9": (step.raw(b'{"id": 1}'), 0),
    "four digits": (step.raw(b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}"), 0),
    "huge headers": (step.huge_headers(), 200),
    "many headers": (step.answer(200, headers=[(f"X-{i}", "y") for i in range(1000)]), 200),
    "huge body": (step.huge_body(), 200),
    "huge chunked body": (step.huge_body(chunked=True), 200),
}


@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize("name", TEARS)
def test_a_torn_reply_is_one_request_and_no_answer(drivers, name, reused):
    tear, status = TEARS[name]
    with TornServer(tear, warmup=int(reused)) as server:
        driver = drivers()
        if reused:
            assert driver.call(server.url, key="warm")["complete"]
        result = driver.call(server.url, key="torn")
        memory = driver.memory_kib()
        driver.finish()
    assert server.request_count("torn") == 1
    assert server.requests[-1].number == 1 + reused
    assert result["permits"] == 1
    assert not result["complete"]
    if status is not None:
        assert result["status"] == status
        assert result["phase"] == ("reply" if status else "sent")
    assert not result["timed_out"] and not result["dirty"] and not result["tls_untrusted"]
    assert memory < 64 * 1024


@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
def test_c4_silence_is_a_timeout_after_a_permit(drivers, reused):
    never = threading.Event()
    with TornServer(step.stall(never), warmup=int(reused)) as server:
        driver = drivers()
        if reused:
            driver.call(server.url, key="warm")
        result = driver.call(server.url, key="torn", timeout_ms=300)
        driver.finish()
    assert result["timed_out"] and not result["complete"]
    assert (result["permits"], result["phase"], result["status"]) == (1, "sent", 0)
    assert server.request_count("torn") == 1


def test_a_reply_that_trickles_past_the_limit_is_a_timeout(drivers):
    never = threading.Event()
    with TornServer(step.trickle(never, step.answer(200))) as server:
        result = drivers().call(server.url, key="torn", timeout_ms=300)
    assert result["timed_out"] and not result["complete"]
    assert (result["permits"], result["phase"]) == (1, "sent")


def test_a_body_beyond_the_cap_stops_the_vendor(drivers):
    with TornServer(step.huge_body(100_000_000)) as server:
        result = drivers("--body-cap", "1000").call(server.url, key="big")
        server.wait_until(lambda s: s.requests[0].sent)
    assert (result["complete"], result["status"]) == (False, 200)
    assert (result["body_len"], result["body"]) == (1000, "x" * 1000)
    assert server.requests[0].sent < 50_000_000


def test_a_body_of_exactly_the_cap_is_complete(drivers):
    with TornServer(step.answer(200, body=b"y" * 1000)) as server:
        result = drivers("--body-cap", "1000").call(server.url)
    assert (result["complete"], result["body"]) == (True, "y" * 1000)


# --- replies that are whole -----------------------------------------------------------------------

WHOLE = {
    "length": (step.answer(200, body=b"{}"), 200, "{}"),
    "chunks and a trailer": (step.raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n",
        end="keep"), 200, "{}"),
    "until close": (step.raw(b"HTTP/1.1 200 OK\r\n\r\n{}"), 200, "{}"),
    "HTTP/1.0": (step.raw(b"HTTP/1.0 200 OK\r\n\r\n{}"), 200, "{}"),
    "204": (step.answer(204), 204, ""),
    "100 and 103 first": (step.raw(
        b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}", end="keep"), 202, "{}"),
    "500": (step.answer(500, body=b"no"), 500, "no"),
    "599": (step.answer(599, body=b"no"), 599, "no"),
    "407": (step.answer(407, body=b"no", headers=[("Proxy-Authenticate", "Basic")]), 407, "no"),
    "401": (step.answer(401, body=b"no", headers=[("WWW-Authenticate", "Negotiate, NTLM, Digest "
                                                   'realm="a", nonce="b"')]), 401, "no"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_reply_is_complete(drivers, name):
    honest, status, body = WHOLE[name]
    with TornServer(honest) as server:
        driver = drivers()
        result = driver.call(server.url, key="whole")
        driver.finish()
    assert result["complete"] and result["phase"] == "complete"
    assert (result["permits"], result["status"], result["body"]) == (1, status, body)
    assert "x-early" not in result["headers"] and "x-late" not in result["headers"]
    assert server.request_count("whole") == 1
    assert "authorization" not in server.requests[0].headers


def test_bytes_under_a_content_coding_are_not_touched(drivers):
    with TornServer(step.bad_gzip()) as server:
        result = drivers().call(server.url)
        assert "accept-encoding" not in server.requests[0].headers
    assert result["complete"]  # it was asked for plain: what the bytes mean is the plugin's to judge
    assert result["headers"]["content-encoding"] == "gzip"
    assert result["body"].startswith("\x1f\x8b")


def test_headers_are_given_in_lower_case_whole_and_trimmed(drivers):
    reply = (b"HTTP/1.1 429 Slow\r\nRETRY-After:   7 \t\r\nX-Fold: a\r\n  b\r\nEmpty:\r\n"
             b"X-Utf: \xc3\xa9\r\nContent-Length: 0\r\n\r\n")
    with TornServer(step.raw(reply, end="keep")) as server:
        result = drivers().call(server.url)
    assert result["complete"] and result["status"] == 429
    assert result["headers"] == {"retry-after": "7", "x-fold": "a b", "empty": "",
                                 "x-utf": "\xc3\xa9", "content-length": "0"}


def test_an_early_refusal_is_an_answer(drivers):
    with TornServer(on_head=lambda _request: step.early(413)) as server:
        driver = drivers()
        result = driver.call(server.url, body_size=8_000_000)
        driver.finish()
    assert (result["complete"], result["status"], result["permits"]) == (True, 413, 1)
    assert server.requests == []


def test_each_answer_reaches_its_own_message(drivers):
    echo = step.answer(200, body=lambda request: {"echo": request.key})
    with TornServer(lambda r: step.after(0.001 * (hash(r.key) % 50), echo)) as server:
        driver = drivers("--parallel", "60", "--max-calls", "120")
        for i in range(300):
            driver.send(server.url, key=f"k{i}", id=f"k{i}")
        results = [driver.read() for _ in range(300)]
        driver.finish()
    assert sorted(r["id"] for r in results) == sorted(f"k{i}" for i in range(300))
    for result in results:
        assert result["complete"] and result["permits"] == 1
        assert json.loads(result["body"])["echo"] == result["id"]
    assert len(server.requests) == 300
    assert server.connections <= 60


# --- answers to nobody (C8): bytes on an idle connection ------------------------------------------

STALE = {
    "full 200": step.stale_message(),
    "408": step.stale_message(408),
    "half a 200": b"HTTP/1.1 200 OK\r\nContent-",
    "one byte": b"\n",
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("name", STALE)
def test_c8_a_stale_answer_reaches_nobody(drivers, tmp_path, name, tls):
    authority = Authority(tmp_path) if tls else None
    script = {"second": step.answer(500)}
    with TornServer(script, tls=authority.issue() if tls else None) as server:
        driver = drivers(*(["--ca", authority.ca_file] if tls else []))
        assert driver.call(server.url, key="first")["complete"]
        assert server.wait_idle()
        assert server.inject(STALE[name]) == 1
        result = driver.call(server.url, key="second")
        third = driver.call(server.url, key="third")
        driver.finish()
    assert (result["complete"], result["status"], result["permits"]) == (True, 500, 1)
    assert not result["dirty"]
    assert third["complete"] and third["status"] == 200
    assert third["connect_us"] == 0
    assert [r.key for r in server.requests] == ["first", "second", "third"]
    assert server.connections == 2


def _connections(port):
    """The kernel's lines (local port, remote port, state, queues) about TCP over IPv4 at `port`."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            _, local, remote, state, queues = line.split()[:5]
            ends = [int(address.split(":")[1], 16) for address in (local, remote)]
            if port in ends:
                yield *ends, state, queues


def _established(port):
    return [c for c in _connections(port) if c[1] == port and c[2] == "01"]


def test_one_dirty_connection_does_not_lead_to_the_next(drivers):
    both = threading.Barrier(2)

    def play(conn, request):
        both.wait(20)  # two calls at once, so two connections
        step.answer().play(conn, request)

    with TornServer({"warm": [step.Step("together", play, True)] * 2}) as server:
        driver = drivers("--parallel", "2")
        for _ in range(2):
            driver.send(server.url, key="warm")
        assert driver.read()["complete"] and driver.read()["complete"]
        assert server.wait_idle(2) and server.inject() == 2
        result = driver.call(server.url, key="cold")
        driver.finish()
    assert result["complete"] and result["permits"] == 1
    assert json.loads(result["body"])["id"] == server.requests[2].id
    assert server.connections == 3


def test_a_second_address_takes_over_and_stays(drivers):
    """localhost is ::1 first on most machines, and nobody listens there."""
    with TornServer() as server:
        driver = drivers()
        url = f"http://localhost:{server.port}/"
        results = [driver.call(url, key=f"k{i}") for i in range(3)]
        driver.finish()
    assert all(r["complete"] and r["permits"] == 1 and not r["dirty"] for r in results)
    assert server.connections == 1


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_an_idle_connection_that_ended_is_not_used(drivers, end):
    with TornServer() as server:
        driver = drivers()
        driver.call(server.url, key="first")
        assert server.wait_idle() and server.close_idle(end) == 1
        wait_until(lambda: not _established(server.port), what="the end to arrive")
        result = driver.call(server.url, key="second")
        driver.finish()
    assert result["complete"] and result["permits"] == 1
    assert server.deliveries("second") == server.request_count("second") == 1


def test_an_answer_with_junk_behind_it_taints_no_other(drivers):
    double = step.raw(b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"id": 1}' + step.stale_message(),
                      end="keep")
    with TornServer({"first": double, "second": step.answer(500)}) as server:
        driver = drivers()
        first = driver.call(server.url, key="first")
        second = driver.call(server.url, key="second")
        driver.finish()
    assert first["body"] == '{"id": 1}'
    assert (second["status"], second["permits"]) == (500, 1)
    assert server.request_count("second") == 1


# --- libcurl's own resend (R12) -------------------------------------------------------------------

RESENT = {"fin": step.fin(), "rst": step.rst(), "half status line": step.half_status()}


@pytest.mark.parametrize("name", RESENT)
def test_a_resend_is_allowed_where_it_is_harmless(drivers, name):
    with TornServer({"again": [RESENT[name]]}, dedup=True) as server:
        driver = drivers()
        driver.call(server.url, key="warm")
        result = driver.call(server.url, key="again", may_repeat=True)
        driver.finish()
    assert result["complete"] and result["status"] == 200
    assert result["permits"] == server.request_count("again") == 2


def test_the_gate_is_asked_before_a_resend_too(drivers):
    with TornServer({"again": [step.rst()]}) as server:
        driver = drivers()
        driver.call(server.url, key="warm")
        result = driver.call(server.url, key="again", may_repeat=True, gate=1)
        driver.finish()
    assert (result["permits"], result["phase"], result["complete"]) == (1, "sent", False)
    assert result["gate_calls"] == 2
    assert server.request_count("again") == 1


def test_a_race_with_the_vendors_close_stays_one_request(drivers):
    with TornServer({"first": step.answer_then_close("on_next", "rst")}) as server:
        driver = drivers()
        driver.call(server.url, key="first")
        result = driver.call(server.url, key="second")
        driver.finish()
    assert result["permits"] == 1 and not result["complete"]
    assert server.request_count("second") == 0


# --- nothing left (C1 to C3) ----------------------------------------------------------------------


@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
def test_a_closed_gate_lets_nothing_out(drivers, reused):
    with TornServer() as server:
        driver = drivers()
        if reused:
            driver.call(server.url, key="warm")
        result = driver.call(server.url, key="gated", gate=0)
        driver.finish()
    assert_unsent(result, "gate")
    assert result["gate_calls"] == 1 and not result["dirty"]
    assert server.request_count("gated") == 0
    assert server.incomplete == []


def test_c1_a_name_nobody_knows(drivers):
    result = drivers().call("http://nobody.invalid/messages", timeout_ms=3000)
    assert_unsent(result, "queue")


def test_c2_a_port_that_refuses(drivers):
    with ClosedPort() as port:
        result = drivers().call(port.url)
    assert_unsent(result, "connect")
    assert not result["timed_out"]


def test_c2_a_port_that_swallows(drivers):
    with SynHole() as port:
        result = drivers().call(port.url, connect_timeout_ms=200)
    assert_unsent(result, "connect")
    assert result["timed_out"]


@pytest.mark.parametrize("fault", ["expired", "wrong name", "unknown CA"])
def test_c3_a_certificate_that_is_not_theirs(drivers, tmp_path, fault):
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    trusted = Authority(tmp_path / "other") if fault == "unknown CA" else authority
    certificate = authority.issue(days=-1 if fault == "expired" else 30,
                                  names="DNS:other.example" if fault == "wrong name" else
                                  "DNS:localhost,IP:127.0.0.1")
    with TornServer(tls=certificate) as server:
        driver = drivers("--ca", trusted.ca_file)
        result = driver.call(server.url, key="secret")
        driver.finish()
    assert_unsent(result, "tls")
    assert result["tls_untrusted"]
    assert server.requests == server.incomplete == []


def test_c3_a_handshake_that_stalls(drivers, tmp_path):
    authority = Authority(tmp_path)
    never = threading.Event()
    with TornServer(tls=authority.issue(), on_accept=lambda _n: step.unread(never)) as server:
        result = drivers("--ca", authority.ca_file).call(server.url, timeout_ms=300)
    assert_unsent(result, "tls")
    assert result["timed_out"] and not result["tls_untrusted"]


def test_c3_no_tls_behind_the_port(drivers):
    with TornServer(on_accept=lambda _n: step.garbage()) as server:
        result = drivers().call(server.url.replace("http:", "https:"))
    assert_unsent(result, "tls")
    assert not result["tls_untrusted"]


@pytest.mark.parametrize("name", ["fin", "rst", "half header, fin", "short body, fin"])
def test_tears_under_tls_on_a_connection_in_reuse(drivers, tmp_path, name):
    authority = Authority(tmp_path)
    with TornServer(TEARS[name][0], warmup=1, tls=authority.issue()) as server:
        driver = drivers("--ca", authority.ca_file)
        warm = driver.call(server.url, key="warm")
        result = driver.call(server.url, key="torn")
        driver.finish()
    assert warm["complete"] and server.requests[0].conn == 1  # tickets are no stale bytes
    assert result["permits"] == server.request_count("torn") == 1
    assert not result["complete"]


# --- nowhere else (C10) ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_c10_a_redirect_is_an_answer_and_is_not_followed(drivers, status):
    with TornServer() as other:
        with TornServer(step.redirect(status, other.url)) as server:
            driver = drivers()
            result = driver.call(server.url, key="moved", headers={"Authorization": "Bearer x"})
            driver.finish()
        assert (result["complete"], result["status"], result["permits"]) == (True, status, 1)
        assert result["headers"]["location"] == other.url
        assert server.request_count("moved") == 1
        assert other.connections == 0


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://127.0.0.1:1/", "/messages", ""])
def test_c10_wherever_it_points(drivers, target):
    with TornServer(step.redirect(302, target)) as server:
        driver = drivers()
        result = driver.call(server.url)
        driver.finish()
    assert (result["complete"], result["status"], result["body"]) == (True, 302, '{"error": 302}')
    assert len(server.requests) == 1


def test_the_environment_does_not_steer(drivers, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    with TornServer() as proxy, TornServer() as server:
        driver = drivers(env={"http_proxy": proxy.url, "ALL_PROXY": proxy.url, "no_proxy": "",
                              "HOME": str(tmp_path)})
        assert driver.call(server.url)["complete"]
        driver.finish()
        assert "authorization" not in server.requests[0].headers
        assert proxy.connections == 0


# --- what leaves ----------------------------------------------------------------------------------


def test_the_request_is_what_was_asked_for_and_no_more(drivers):
    with TornServer() as server:
        driver = drivers()
        driver.call(server.url + "?a=%20b", key="k", headers={"Content-Type": "text/plain",
                                                            "X-Empty": "", "X-A": "b"})
        driver.finish()
    request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/messages?a=%20b")
    assert request.body.decode() == BODY
    assert request.headers == {"host": f"127.0.0.1:{server.port}", "accept": "*/*",
                               "idempotency-key": "k", "content-type": "text/plain",
                               "x-empty": "", "x-a": "b", "content-length": str(len(BODY))}


@pytest.mark.parametrize("method,body,length", [
    ("GET", None, None), ("POST", None, "0"), ("POST", "", "0"), ("PUT", "ab", "2"),
    ("PATCH", "ab", "2"), ("DELETE", None, None), ("DELETE", "ab", "2"), ("GET", "ab", "2")])
def test_methods(drivers, method, body, length):
    with TornServer() as server:
        driver = drivers()
        # A handle serves many calls: nothing of the one before may show.
        driver.call(server.url, method="DELETE", body="before", headers={"X-Before": "1"})
        driver.call(server.url, method="HEAD", body=None, timeout_ms=500)
        assert driver.call(server.url, method=method, body=body)["complete"]
        driver.finish()
    request = server.requests[-1]
    assert (request.method, request.body.decode()) == (method, body or "")
    assert request.headers.get("content-length") == length
    assert not {"content-type", "expect", "x-before"} & set(request.headers)


def test_the_body_is_copied(drivers):
    with TornServer() as server:
        driver = drivers()
        assert driver.call(server.url, body_size=3_000_000)["complete"]
        driver.finish()
    assert server.requests[0].body == b"x" * 3_000_000


@pytest.mark.parametrize("spec", [
    {"headers": {"X-A": "b\r\nX-Evil: 1"}}, {"headers": {"X-A": "b\nX-Evil: 1"}},
    {"headers": {"X-A: 1\r\nX-Evil": "1"}}, {"headers": {"": "1"}}, {"headers": {"a b": "1"}},
    {"headers": {"content-length": "1"}}, {"headers": {"Transfer-Encoding": "chunked"}},
    {"headers": {"Expect": "100-continue"}}, {"method": "POST /x HTTP/1.1\r\nX-Evil: 1\r\n"},
    {"method": ""}, {"timeout_ms": 0}, {"key": "a\r\nb"}])
def test_a_request_that_would_break_the_framing_is_refused(drivers, spec):
    with TornServer() as server:
        driver = drivers()
        assert "refused" in driver.call(server.url, **spec)
        driver.finish()
        assert server.connections == 0


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "messages", "httpx://a/"])
def test_only_http(drivers, url):
    assert "refused" in drivers().call(url)


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999/", "http://a b/", "http://a\r\nb/"])
def test_a_url_without_sense_sends_nothing(drivers, url):
    assert_unsent(drivers().call(url, timeout_ms=3000), "queue")


# --- ends we choose -------------------------------------------------------------------------------


def test_a_call_given_up_after_its_permit_says_so(drivers):
    never = threading.Event()
    with TornServer(step.stall(never)) as server:
        driver = drivers()
        driver.send(server.url, key="cut", abort_ms=200)
        assert server.wait_requests(1)
        result = driver.read()
        driver.finish()
    assert (result["permits"], result["phase"], result["complete"]) == (1, "sent", False)
    assert not result["timed_out"]


def test_a_call_given_up_while_connecting_sent_nothing(drivers):
    with SynHole() as port:
        assert_unsent(drivers().call(port.url, abort_ms=50), "connect")


def test_a_call_given_up_at_once_sent_nothing(drivers):
    with TornServer() as server:
        driver = drivers()
        driver.send(server.url, key="cut", abort_ms=0)
        result = driver.read()
        driver.finish()
    assert result["permits"] == server.request_count("cut") + len(server.incomplete)


def test_an_error_of_the_multi_handle_ends_its_calls_as_they_stand(drivers):
    """Case of section 3.4: CURLM errors are ambiguous for every handle in flight."""
    never = threading.Event()
    script = {f"stall{i}": step.stall(never) for i in range(3)}
    with TornServer(script) as server:
        driver = drivers("--parallel", "4")
        for key in script:
            driver.send(server.url, key=key, id=key)
        assert server.wait_requests(3)
        driver.process.send_signal(signal.SIGUSR1)
        driver.send(server.url, key="last", id="last")
        results = {r["id"]: r for r in (driver.read() for _ in range(4))}
        after = driver.call(server.url, key="after")
        driver.finish()
    for key in script:
        assert (results[key]["permits"], results[key]["phase"]) == (1, "sent")
        assert not results[key]["complete"] and not results[key]["timed_out"]
        assert server.request_count(key) == 1
    assert results["last"]["permits"] >= server.request_count("last")
    assert after["complete"]


def test_a_pool_freed_with_calls_in_the_air(drivers):
    never = threading.Event()
    with TornServer(step.stall(never)) as server:
        driver = drivers("--parallel", "3")
        for i in range(3):
            driver.send(server.url, key=f"k{i}")
        assert server.wait_requests(3)
        driver.process.terminate()
        assert driver.process.wait(20) == 0  # under a sanitizer: nothing leaked, nothing touched


def _queues(port):
    """(bytes received and unread at `port`, bytes on their way to it) by the kernel's tables."""
    unread = unsent = 0
    for local, remote, state, queues in _connections(port):
        tx, rx = (int(n, 16) for n in queues.split(":"))
        if local == port and state == "01":
            unread = rx
        elif remote == port:
            unsent = tx
    return unread, unsent


def test_a5_what_a_killed_process_had_not_delivered_never_arrives(drivers):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        driver = drivers()
        driver.send(f"http://127.0.0.1:{port}/", body_size=2_000_000)
        conn, _ = listener.accept()
        with conn:
            wait_until(lambda: min(_queues(port)) > 0, what="bytes at both ends")
            driver.process.kill()
            driver.process.wait()  # its sockets are closed by now, one way or the other
            got = _read_to_the_end(conn)
    assert 0 <= got <= 65536  # what had arrived; the sender's kernel held hundreds of kilobytes


def _read_to_the_end(conn):
    conn.settimeout(20)
    got = 0
    try:
        while data := conn.recv(65536):
            got += len(data)
    except ConnectionResetError:
        pass
    return got
