"""worker/io/serve.h over bare sockets, with the report and the page behind it (serve_driver).

Who may read what (Q10), what a hostile or broken client may do, what the page and the figures say
(B4, S6, U1), and that twenty open pages are nothing (B1, J88).
"""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest

from tests.harness import clean
from tests.harness.procs import wait_until

PROGRAM = clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "serve_driver"
PAGES = ["/", "/metrics", "/healthz", "/readyz", "/api/status"]


class Driver:
    def __init__(self, *args):
        self.process = clean.spawn([PROGRAM, *map(str, args)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.port = json.loads(line)["port"]
        self.address = json.loads(line)["address"]

    def get(self, path, method="GET", body=None, host="127.0.0.1", **headers):
        """(status, headers, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection(host, self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def raw(self, data):
        """Everything that comes back for these bytes, until the server closes."""
        with self.connect() as s:
            s.sendall(data)
            return read_all(s)

    def turns(self):
        return int(self.get("/loops")[2])

    def stop(self):
        """Ends as it should, or the sanitizer's report is the failure."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        err = self.process.communicate(timeout=20)[1]
        assert self.process.returncode == 0, err


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            data += piece
    return data


@pytest.fixture
def drive():
    started = []

    def start(*args):
        started.append(Driver(*args))
        return started[-1]

    yield start
    for driver in started:
        driver.stop()


# ---- what is answered

@pytest.mark.parametrize("path", PAGES + ["/nowhere"])
def test_every_answer_is_locked_down(drive, path):
    status, headers, _ = drive().get(path)
    assert status == (404 if path == "/nowhere" else 200)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers.get_all("Content-Type") == [headers["Content-Type"]]


@pytest.mark.parametrize("path", PAGES)
def test_head_is_get_without_its_body(drive, path):
    status, headers, body = drive().get(path, "HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 0


def test_wrong_paths_and_methods(drive):
    d = drive()
    assert d.get("/metrics/")[0] == 404
    assert d.get("/../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        status, headers, body = d.get("/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert json.loads(body)["error"]
    status, headers, _ = d.get("/echo")
    assert (status, headers["Allow"]) == (405, "POST")


def test_post_gets_body_query_and_header(drive):
    status, headers, body = drive().get("/echo?q=a%20b&r", "POST", b"\x00binary\xff", X_Mark="m")
    assert (status, body) == (201, b"\x00binary\xff")
    assert (headers["X-Query"], headers["X-Mark"]) == ("a b", "m")


# ---- who may

def test_without_a_token_only_this_host_itself(drive):
    d = drive()
    assert d.get("/api/status")[0] == 200
    for host in ("localhost", "LOCALHOST:1", "127.0.0.2:80", "[::1]", "[::1]:8025"):
        assert d.get("/api/status", Host=host)[0] == 200, host
    # a page elsewhere whose name was made to resolve to 127.0.0.1, and a proxy on this host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "128.0.0.1",
                 "[::2]", "[::1", "", "a" * 200):
        assert d.get("/api/status", Host=host)[0] == 403, host
    assert d.get("/api/status", X_Forwarded_For="203.0.113.9")[0] == 403
    assert d.get("/api/status", Forwarded="for=203.0.113.9")[0] == 403
    assert b" 403 " in d.raw(b"GET /api/status HTTP/1.0\r\n\r\n")
    assert d.get("/metrics", Host="evil.example")[0] == 200  # not guarded


def test_without_a_token_not_another_host(drive):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.200", 9))  # sends nothing; tells the address we would use
        except OSError:
            pytest.skip("this machine has no address beside loopback")
        own = probe.getsockname()[0]
    d = drive("--listen", "0.0.0.0:0")
    assert d.get("/healthz", host=own)[0] == 200
    assert d.get("/api/status", host=own, Host="localhost")[0] == 403


def test_token(drive):
    d = drive("--token", "s3cret-token")
    status, headers, _ = d.get("/api/status")
    assert status == 401 and headers["WWW-Authenticate"].startswith("Bearer")
    for wrong in ("", "s3cret", "s3cret-tokenx", "S3cret-token", "s3cret-token s3cret-token"):
        assert d.get("/api/status", Authorization="Bearer " + wrong)[0] == 401, wrong
    assert d.get("/api/status", Authorization="Basic s3cret-token")[0] == 401
    assert d.get("/api/status", Authorization="Bearer s3cret-token")[0] == 200
    assert d.get("/api/status", Authorization="bearer  s3cret-token", Host="sms.example")[0] == 200
    assert d.get("/api/status", Cookie="a=b; postrider_token=s3cret-token")[0] == 200
    assert d.get("/api/status", Cookie="postrider_token=s3cret")[0] == 401
    assert d.get("/")[0] == 200 and d.get("/healthz")[0] == 200


def test_a_cookie_never_authorises_a_change(drive):
    d = drive("--token", "t")
    assert d.get("/echo", "POST", b"x", Cookie="postrider_token=t")[0] == 401
    assert d.get("/echo", "POST", b"x", Authorization="Bearer t")[0] == 201


# ---- what a client may do to it

def test_body_limit(drive):
    d = drive("--body-max", 1000)
    assert d.get("/echo", "POST", b"x" * 1000)[2] == b"x" * 1000
    assert d.get("/echo", "POST", b"x" * 1001)[0] == 413
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 413 " in d.raw(head + b"Content-Length: 99999999999\r\nConnection: close\r\n\r\n")
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"100\r\n" + b"y" * 256 + b"\r\n"
    assert b" 201 " not in d.raw(chunked + (b"100\r\n" + b"y" * 256 + b"\r\n") * 4 + b"0\r\n\r\n")
    with d.connect() as s:
        s.sendall(chunked + b"0\r\n\r\n")
        assert b" 201 " in s.recv(65536)


JUNK = {
    "zeros": b"\r\n\r\n\x00\x01\x02\r\n\r\n", "version": b"GET / HTTP/9.9\r\n\r\n",
    "no version": b"GET\r\n\r\n", "no host": b"GET / HTTP/1.1\r\n\r\n",
    "long path": b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_junk_is_refused_and_survived(drive, junk):
    d = drive("--timeout", 1)
    with d.connect() as s:
        with contextlib.suppress(OSError):
            s.sendall(junk)
        assert not read_all(s).startswith(b"HTTP/1.1 200")
    assert d.get("/healthz")[0] == 200


def test_a_request_may_come_byte_by_byte_and_two_at_once(drive):
    d = drive()
    with d.connect() as s:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
            s.sendall(bytes([byte]))
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
    one = b"GET /loops HTTP/1.1\r\nHost: localhost\r\n"
    assert d.raw(one + b"\r\n" + one + b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200") == 2


def test_connection_limit_gives_way_again(drive):
    """At the limit a newcomer waits in the kernel's queue, and is served when one has left, not
    only when the next timer happens to fire (here the hour that an idle client may stay)."""
    d = drive("--connections", 4, "--per-address", 4, "--timeout", 3600)
    idle = [d.connect() for _ in range(4)]
    for s in idle:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
    with d.connect() as late:
        late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.pop().close()
        assert late.recv(65536).startswith(b"HTTP/1.1 200")
    for s in idle:
        s.close()


def test_a_limit_of_one_serves_many_in_turn(drive):
    d, answers = drive("--connections", 1, "--per-address", 1, "--timeout", 3600), []

    def ask():
        for _ in range(20):
            answers.append(d.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert [a[:12] for a in answers] == [b"HTTP/1.1 200"] * 100


def test_one_address_cannot_take_every_connection(drive):
    d = drive("--connections", 10, "--per-address", 2)
    taken = [d.connect() for _ in range(2)]
    for s in taken:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
    assert d.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    with socket.create_connection(("127.0.0.1", d.port), 20, ("127.0.0.9", 0)) as other:
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 200")
    for s in taken:
        s.close()


def test_an_idle_client_is_put_out_and_costs_no_turns(drive):
    """Half a request, then silence. The loop sleeps meanwhile: a wrong timer would spin it
    through tens of thousands of turns until the connection's second is over."""
    d = drive("--timeout", 1)
    with d.connect() as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        before = d.turns()
        read_all(s)  # returns when the server closes
        assert d.turns() - before < 200


def test_it_ends_with_clients_connected(drive):
    d = drive()
    half = d.connect()
    half.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\nabc")
    d.turns()  # what came before it has been read
    d.stop()
    half.close()


# ---- where it listens

def test_addresses(drive):
    assert drive("--listen", "localhost:0").address.startswith("127.0.0.1:")
    v6 = drive("--listen", "[::1]:0")
    assert v6.address == f"[::1]:{v6.port}"
    assert v6.get("/api/status", host="::1")[0] == 200
    every = drive("--listen", ":0")
    assert every.get("/healthz")[0] == 200
    assert every.get("/api/status")[0] == 200  # an IPv4 peer seen as ::ffff:127.0.0.1


@pytest.mark.parametrize("listen, words", [
    ("nonsense", 'listen: "nonsense" is not host:port'), ("127.0.0.1:", "is not host:port"),
    ("127.0.0.1:99999", "is not host:port"), ("127.0.0.1:80x", "is not host:port"),
    ("::1:80", "an IPv6 address needs brackets: [::1]:80"),
    ("sms.example:80", '"sms.example" is not an address of this host'),
    ("203.0.113.77:0", "could not listen on 203.0.113.77:0: Cannot assign requested address")])
def test_a_wrong_address_is_said_in_words(listen, words):
    with pytest.raises(AssertionError) as e:
        Driver("--listen", listen)
    assert words in str(e.value)


def test_a_taken_port_is_said_in_words(drive):
    with pytest.raises(AssertionError) as e:
        Driver("--listen", f"127.0.0.1:{drive().port}")
    assert "Address already in use" in str(e.value)


# ---- what it says

def test_metrics_are_prometheus_text(drive):
    _, headers, body = drive("--scene", "storm").get("/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    label = r'[a-z_]+="(?:[^"\\\n]|\\[\\n"])*"'
    sample = re.compile(rf"(postrider_[a-z_]+)(?:\{{{label}(?:,{label})*\}})? (-?[0-9.e+-]+)\n")
    typed, seen = {}, set()
    for line in body.decode().splitlines(True):
        if line.startswith("#"):
            word, name, rest = line[2:].split(" ", 2)
            if word == "TYPE":
                assert name not in typed
                typed[name] = rest.strip()
            continue
        match = sample.fullmatch(line)
        assert match, line
        name = match[1]
        if name not in typed:
            name = re.sub("_(bucket|sum|count)$", "", name)
            assert typed[name] == "histogram", line
        float(match[2])
        key = line.rsplit(" ", 1)[0]
        assert key not in seen, key
        seen.add(key)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in typed.items())
    assert 'postrider_messages{kind="campaign",state="unknown"} 38\n' in body.decode()


def test_status_names_every_doubt(drive):
    """U1: what is unknown is not called failed."""
    status = json.loads(drive("--scene", "storm").get("/api/status")[2])
    count = {(c["kind"], c["state"]): c["count"] for c in status["counts"]}
    assert count["campaign", "unknown"] == 38 and count["otp", "failed"] == 4
    assert [c["label"] for c in status["counts"] if c["state"] == "sent"] == ["handed to vendor"] * 3
    door = {p["name"]: (p["state"], p["reason"]) for p in status["providers"]}
    assert door["third"] == ("held", "HTTP 402: balance too low")
    assert door["reserve"] == ("open", None)


def test_health_is_red_when_claims_stop(drive):
    """S6: the process lives and answers, and says that it does no work."""
    calm, down = drive(), drive("--scene", "down")
    assert calm.get("/healthz")[0] == 200 and calm.get("/readyz")[0] == 200
    status, headers, body = down.get("/healthz")
    assert status == 503 and headers["Content-Type"].startswith("application/json")
    reasons = " ".join(json.loads(body)["reasons"])
    assert "no claim has succeeded for 43.0 s" in reasons and "730 answers wait" in reasons
    assert down.get("/readyz")[0] == 503


# ---- the page

def test_the_page_runs_nothing_but_its_own_script(drive):
    d = drive()
    _, headers, body = d.get("/")
    page = body.decode()
    nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", headers["Content-Security-Policy"])[1]
    assert f"style-src 'nonce-{nonce}'" in headers["Content-Security-Policy"]
    tags = re.findall(r"<(?:script|style)\b[^>]*>", page)
    assert tags == [f'<style nonce="{nonce}">', f'<script nonce="{nonce}">']
    assert "{{nonce}}" not in page
    assert nonce not in d.get("/")[1]["Content-Security-Policy"]  # another one for every answer
    assert not re.search(r"\b(?:https?:)?//[a-z]", re.sub(r"/\*.*?\*/", "", page))
    assert not re.search(r"\son[a-z]+=|\sstyle=|innerHTML|eval\(", page)


def test_the_page_never_says_sent(drive):
    """B4: "sent" is read as "arrived"; here it is only the stored name that is looked up."""
    page = drive().get("/")[2].decode()
    assert '["sent", "handed to vendor"' in page
    assert not re.search(r"\bsent\b", page.replace('"sent"', ""), re.I)


def test_twenty_pages_open(drive):
    """B1, J88: every figure comes from memory, so open pages cost the database nothing."""
    d, wrong = drive(), []

    def look():
        connection = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
        with contextlib.closing(connection):
            for _ in range(25):
                connection.request("GET", "/api/status")
                answer = connection.getresponse()
                if answer.status != 200 or not json.loads(answer.read())["counts"]:
                    wrong.append(answer.status)

    threads = [threading.Thread(target=look) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in threads)
    wait_until(lambda: d.get("/healthz")[0] == 200)
