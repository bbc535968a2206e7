"""The vendor double must really do what other tests believe: tests/harness/torn.py.

Each cut is looked at byte by byte over a bare socket, then through libcurl itself, whose silent
resend on a reused connection (RFC 9110, 9.2.2 tells clients not to) is what the ledger must show.
"""
import ctypes
import http.client
import json
import select
import socket
import threading

import pytest

from tests.harness import torn_steps as step
from tests.harness.torn import TornServer
from tests.harness.torn_net import Authority, ClosedPort, SynHole

OK, COULDNT_CONNECT, PARTIAL_FILE, TIMEDOUT, SSL_CONNECT = 0, 7, 18, 28, 35
GOT_NOTHING, RECV_ERROR, BAD_ENCODING, PEER_FAILED = 52, 56, 61, 60


class Curl:
    """One libcurl easy handle: it keeps its connections between the calls."""

    _WRITE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t,
                              ctypes.c_size_t, ctypes.c_void_p)

    def __init__(self, cap=1 << 20, **options):
        self.lib = lib = ctypes.CDLL("libcurl.so.4")
        for name in ("curl_easy_init", "curl_slist_append"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.curl_slist_append.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.handle = ctypes.c_void_p(lib.curl_easy_init())
        self.got, self.cap = bytearray(), cap
        self._write = self._WRITE(self._on_data)
        self._set(20011, self._write)  # WRITEFUNCTION
        self._set(155, ctypes.c_long(options.get("timeout_ms", 20000)))
        self._set(156, ctypes.c_long(options.get("connect_timeout_ms", 5000)))
        self._set(99, ctypes.c_long(1))  # NOSIGNAL
        self._set(10102, ctypes.c_char_p(b""))  # ACCEPT_ENCODING
        if "ca" in options:
            self._set(10065, ctypes.c_char_p(options["ca"].encode()))

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.lib.curl_easy_cleanup(self.handle)

    def _on_data(self, data, size, count, _arg):
        if len(self.got) + size * count > self.cap:
            return 0
        self.got += data[:size * count]
        return size * count

    def _set(self, option, value):
        assert self.lib.curl_easy_setopt(self.handle, ctypes.c_int(option), value) == 0

    def _info(self, what):
        value = ctypes.c_long()
        self.lib.curl_easy_getinfo(self.handle, ctypes.c_int(what), ctypes.byref(value))
        return value.value

    def post(self, url, key, body=b"{}"):
        """(CURLcode, status, body, connections made)"""
        self.got.clear()
        headers = None
        for line in (f"Idempotency-Key: {key}".encode(), b"Expect:"):
            headers = ctypes.c_void_p(self.lib.curl_slist_append(headers, line))
        self._set(10002, ctypes.c_char_p(url.encode()))
        self._set(10023, headers)
        self._set(60, ctypes.c_long(len(body)))
        self._set(10165, ctypes.c_char_p(body))  # COPYPOSTFIELDS
        code = self.lib.curl_easy_perform(self.handle)
        self._set(10023, None)
        self.lib.curl_slist_free_all(headers)
        return code, self._info(0x200002), bytes(self.got), self._info(0x20001A)


def connect(server):
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.settimeout(20)
    return sock


def request_bytes(key, body=b"{}"):
    return (f"POST /messages HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def read_all(sock):
    """(bytes, "fin" or "rst")"""
    data = bytearray()
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return bytes(data), "rst"
        if not piece:
            return bytes(data), "fin"
        data += piece


# --- bytes ----------------------------------------------------------------------------------------

TORN = {
    "fin": (step.fin(), b"", "fin"),
    "rst": (step.rst(), b"", "rst"),
    "half status": (step.half_status(), b"HTTP/1.1 20", "fin"),
    "half status, rst": (step.half_status(end="rst"), b"HTTP/1.1 20", "rst"),
    "only 100": (step.interim(100), b"HTTP/1.1 100 Interim\r\n\r\n", "fin"),
    "only 103": (step.interim(103), b"HTTP/1.1 103 Interim\r\n\r\n", "fin"),
    "status line": (step.status_line(), b"HTTP/1.1 200 OK\r\n", "fin"),
    "half header": (step.half_header(), b"HTTP/1.1 200 OK\r\nContent-Le", "fin"),
    "garbage": (step.garbage(b"\0\xffno"), b"\0\xffno", "fin"),
}


@pytest.mark.parametrize("name", TORN)
def test_cut_sends_exactly_these_bytes_and_ends_like_this(name):
    what, data, end = TORN[name]
    with TornServer(what) as server, connect(server) as sock:
        sock.sendall(request_bytes("k", b'{"a":1}'))
        assert read_all(sock) == (data, end)
        (entry,) = server.requests
        assert (entry.conn, entry.number, entry.key, entry.body) == (1, 1, "k", b'{"a":1}')
        assert (entry.taken, server.deliveries("k")) == (True, 1)


def test_each_cut_can_be_one_before_the_vendor_took_the_message():
    with TornServer(step.rst(taken=False)) as server, connect(server) as sock:
        sock.sendall(request_bytes("k"))
        assert read_all(sock) == (b"", "rst")
        assert (server.request_count("k"), server.deliveries("k")) == (1, 0)


def test_the_cut_waits_for_the_last_byte_of_the_body():
    with TornServer(step.fin()) as server, connect(server) as sock:
        whole = request_bytes("k", b"0123456789")
        sock.sendall(whole[:-1])
        assert not select.select([sock], [], [], 0.1)[0] and server.requests == []
        sock.sendall(whole[-1:])
        assert read_all(sock) == (b"", "fin") and server.request_count("k") == 1


def test_a_request_the_client_gave_up_is_kept_apart():
    with TornServer() as server:
        with connect(server) as sock:
            sock.sendall(request_bytes("k", b"0123456789")[:-3])
        assert server.wait_until(lambda s: s.incomplete)
        assert server.incomplete[0].body == b"0123456" and server.requests == []


def test_trickle_and_wait_lose_nothing():
    go = threading.Event()
    with TornServer(step.after(go, step.trickle(0.001))) as server, connect(server) as sock:
        sock.sendall(request_bytes("k"))
        assert server.wait_requests(1, key="k") and server.deliveries("k") == 1
        assert not select.select([sock], [], [], 0.1)[0]
        go.set()
        reply = http.client.HTTPResponse(sock)
        reply.begin()
        assert (reply.status, json.loads(reply.read())) == (200, {"id": "torn-1"})


def test_unread_requests_fill_the_kernel_and_arrive_later():
    go = threading.Event()
    body = b"x" * 4_000_000
    with TornServer(on_accept=lambda _: step.unread(go), rcvbuf=4096) as server:
        with connect(server) as sock:
            whole = memoryview(request_bytes("k", body))
            done = 0
            while select.select([], [sock], [], 0.3)[1]:
                done += sock.send(whole[done:done + 65536])
            assert done < len(whole) and server.requests == []
            go.set()
            sock.sendall(whole[done:])
            assert server.wait_requests(1, key="k") and server.requests[0].body == body


def test_early_answer_comes_while_the_body_is_sent():
    with TornServer(on_head=lambda request: step.early(413)) as server, connect(server) as sock:
        sock.sendall(request_bytes("k", b"x" * 1000)[:-500])
        reply = http.client.HTTPResponse(sock)
        reply.begin()
        assert (reply.status, server.requests) == (413, [])
        assert [(r.key, r.step) for r in server.incomplete] == [("k", "early 413")]
        sock.sendall(b"x" * 500)  # swallowed: the end is in order
        sock.shutdown(socket.SHUT_WR)
        assert reply.read() == b'{"error": 413}' and read_all(sock) == (b"", "fin")


def test_answers_carry_what_the_script_says():
    script = [step.limited("1.5", "soon"), step.redirect(307, "file:///etc/passwd"),
              step.answer(503, taken=True), step.answer(200, {"state": "lost"}, taken=False)]
    with TornServer(script) as server:
        conn = http.client.HTTPConnection("127.0.0.1", server.port)
        replies = []
        for _ in range(5):
            conn.request("POST", "/messages", b'{"key":"in-body"}')
            reply = conn.getresponse()
            replies.append((reply.status, reply.headers.get_all("Retry-After"),
                            reply.getheader("Location"), json.loads(reply.read())))
        conn.close()
        assert replies == [
            (429, ["1.5", "soon"], None, {"error": 429}),
            (307, None, "file:///etc/passwd", {"error": 307}),
            (503, None, None, {"error": 503}),
            (200, None, None, {"state": "lost"}),
            (200, None, None, {"id": "torn-5"})]
        assert [r.taken for r in server.requests] == [False, False, True, False, True]
        assert (server.request_count("in-body"), server.deliveries("in-body")) == (5, 2)


def test_dedup_takes_a_key_once_and_repeats_the_first_id():
    with TornServer({"a": [step.fin(), step.answer()]}, dedup=True) as server:
        for end in (b"", b"torn-1"):
            with connect(server) as sock:
                sock.sendall(request_bytes("a"))
                sock.shutdown(socket.SHUT_WR)
                assert end in read_all(sock)[0]
        assert (server.request_count("a"), server.deliveries("a")) == (2, 1)


def test_a_mistake_in_a_script_is_not_taken_for_a_torn_connection():
    server = TornServer(lambda request: None).start()
    with connect(server) as sock:
        sock.sendall(request_bytes("k"))
        assert read_all(sock)[0] == b""
    with pytest.raises(RuntimeError, match="script"):
        server.stop()


# --- what libcurl makes of it ---------------------------------------------------------------------


@pytest.mark.parametrize("name,codes", [
    ("fin", {GOT_NOTHING}), ("rst", {RECV_ERROR}), ("half status", {GOT_NOTHING}),
    ("only 100", {GOT_NOTHING}), ("only 103", {GOT_NOTHING})])
def test_fresh_connection_one_request(name, codes):
    with TornServer(TORN[name][0]) as server, Curl() as curl:
        assert curl.post(server.url, "b")[0] in codes
        assert server.request_count("b") == 1


@pytest.mark.parametrize("name,count", [
    ("fin", 2), ("rst", 2), ("half status", 2), ("only 100", 1), ("only 103", 1)])
def test_reused_connection_shows_the_silent_resend(name, count):
    with TornServer({"b": TORN[name][0]}) as server, Curl() as curl:
        assert curl.post(server.url, "a")[:2] == (OK, 200)
        assert curl.post(server.url, "b")[0] in (GOT_NOTHING, RECV_ERROR)
        assert server.request_count("b") == count
        assert [(r.conn, r.number) for r in server.requests][:2] == [(1, 1), (1, 2)]


def test_warm_up_answers_until_the_connection_is_in_reuse():
    with TornServer(step.fin(), warmup=2) as server, Curl() as curl:
        assert [curl.post(server.url, key)[0] for key in "abc"] == [OK] * 3
        # the third met the cut, and its resend the warm-up of a new connection
        assert [(r.key, r.conn, r.step) for r in server.requests] == [
            ("a", 1, "warm-up"), ("b", 1, "warm-up"), ("c", 1, "fin"), ("c", 2, "warm-up")]


@pytest.mark.parametrize("what,codes", [
    (step.short_body(), {PARTIAL_FILE}), (step.bad_chunk(), {RECV_ERROR}),
    (step.bad_gzip(), {BAD_ENCODING, 23}), (step.garbage(), {1, 8}),
    (step.huge_headers(), {27, RECV_ERROR, 100}), (step.stall(60), {TIMEDOUT}),
    (step.half_header(), {OK}), (step.answer(), {OK})])
def test_damaged_answers(what, codes):
    limit = 700 if what.name == "stall" else 20000
    with TornServer(what) as server, Curl(timeout_ms=limit) as curl:
        assert curl.post(server.url, "k")[0] in codes
        assert server.request_count("k") == 1


def test_huge_headers_are_as_large_as_said():
    with TornServer(step.huge_headers(400_000)) as server, connect(server) as sock:
        sock.sendall(request_bytes("k"))
        sock.shutdown(socket.SHUT_WR)
        head = read_all(sock)[0].split(b"\r\n\r\n")[0]
        assert 399_000 < len(head) < 402_000


@pytest.mark.parametrize("chunked", [False, True])
def test_huge_body_stops_when_the_client_stops(chunked):
    with TornServer(step.huge_body(chunked=chunked)) as server, Curl(cap=500_000) as curl:
        code, status, body, _ = curl.post(server.url, "k")
        assert (code, status, set(body)) == (23, 200, {ord("x")})
        assert server.wait_until(lambda s: s.requests[0].sent)
        assert 500_000 < server.requests[0].sent < 100_000_000


def test_huge_body_is_as_long_as_said():
    with TornServer(step.huge_body(3_000_001, chunked=True)) as server, Curl(cap=1 << 23) as curl:
        assert len(curl.post(server.url, "k")[2]) == 3_000_001


# --- connections left in a bad state --------------------------------------------------------------


def test_stale_bytes_are_given_to_the_next_message_by_a_careless_client():
    with TornServer({"b": step.answer(500)}) as server:
        conn = http.client.HTTPConnection("127.0.0.1", server.port)
        conn.request("POST", "/messages", b"{}", {"Idempotency-Key": "a"})
        assert conn.getresponse().read() == b'{"id": "torn-1"}'
        assert server.wait_idle() and server.inject() == 1
        conn.request("POST", "/messages", b"{}", {"Idempotency-Key": "b"})
        reply = conn.getresponse()
        assert (reply.status, json.loads(reply.read())) == (200, {"id": 77})
        assert server.wait_requests(1, key="b") and server.deliveries("b") == 0
        conn.close()


def test_stale_bytes_by_script_wait_for_the_event():
    used = threading.Event()
    script = step.answer_then_stale(step.stale_message(408), used)
    with TornServer({"a": script}) as server, connect(server) as sock:
        sock.sendall(request_bytes("a"))
        reply = http.client.HTTPResponse(sock)
        reply.begin()
        assert reply.read() == b'{"id": "torn-1"}'
        assert not select.select([sock], [], [], 0.1)[0]
        used.set()
        stale = http.client.HTTPResponse(sock)
        stale.begin()
        assert stale.status == 408


def test_close_right_after_the_answer():
    with TornServer(step.answer_then_close()) as server, connect(server) as sock:
        sock.sendall(request_bytes("a"))
        data, end = read_all(sock)
        assert data.endswith(b'{"id": "torn-1"}') and end == "fin"


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_close_when_the_next_request_begins(end):
    with TornServer({"a": step.answer_then_close("on_next", end)}) as server, Curl() as curl:
        assert curl.post(server.url, "a")[:2] == (OK, 200)
        # sent twice by libcurl: the first copy fell into the closing connection
        assert curl.post(server.url, "b")[:2] == (OK, 200)
        assert server.deliveries("b") == 1
        if end == "fin":
            assert server.wait_requests(2, key="b")  # the two connections may end in any order
            assert sorted((r.conn, r.step, r.taken) for r in server.requests if r.key == "b") == [
                (1, "too late", False), (2, "answer 200", True)]
        assert server.connections == 2


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_idle_connections_can_be_closed_by_the_test(end):
    with TornServer() as server, connect(server) as sock:
        sock.sendall(request_bytes("a"))
        reply = http.client.HTTPResponse(sock)
        reply.begin()
        assert reply.read() and server.wait_idle() and server.close_idle(end) == 1
        assert read_all(sock) == (b"", end)


# --- before a request -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def test_tls_with_our_authority(authority):
    with TornServer(tls=authority.issue()) as server, Curl(ca=authority.ca_file) as curl:
        assert curl.post(server.url, "a")[:3] == (OK, 200, b'{"id": "torn-1"}')
        assert curl.post(server.url, "b") == (OK, 200, b'{"id": "torn-2"}', 0)


@pytest.mark.parametrize("name", ["fin", "rst"])
def test_tls_connections_tear_as_well(authority, name):
    with TornServer({"b": TORN[name][0]}, tls=authority.issue()) as server:
        with Curl(ca=authority.ca_file) as curl:
            assert curl.post(server.url, "a")[0] == OK
            assert curl.post(server.url, "b")[0] in (GOT_NOTHING, RECV_ERROR)
            assert server.request_count("b") == 2


@pytest.mark.parametrize("issue,reason", [
    ({"days": -1}, "expired"), ({"names": "DNS:other.example"}, "name"), ({}, "unknown authority")])
def test_tls_certificates_to_refuse(authority, tmp_path, issue, reason):
    trusted = Authority(tmp_path) if reason == "unknown authority" else authority
    with TornServer(tls=authority.issue(**issue)) as server, Curl(ca=trusted.ca_file) as curl:
        assert curl.post(server.url, "a")[0] == PEER_FAILED
        assert server.requests == [] and server.connections == 1


def test_tls_handshake_stall(authority):
    def silent(_number):
        return step.unread(60)
    with TornServer(tls=authority.issue(), on_accept=silent) as server:
        with Curl(ca=authority.ca_file, timeout_ms=700) as curl:
            assert curl.post(server.url, "a")[0] in (TIMEDOUT, SSL_CONNECT)
        assert server.requests == [] and server.connections == 1


def test_closed_port_refuses():
    with ClosedPort() as port, Curl() as curl:
        assert curl.post(port.url, "a")[0] == COULDNT_CONNECT


def test_syn_hole_never_answers():
    with SynHole() as hole, Curl(connect_timeout_ms=700) as curl:
        assert curl.post(hole.url, "a")[0] == TIMEDOUT


def test_many_connections_at_once():
    with TornServer() as server:
        socks = [connect(server) for _ in range(200)]
        for number, sock in enumerate(socks):
            sock.sendall(request_bytes(f"k{number}"))
        assert server.wait_requests(200)
        for sock in socks:
            sock.close()
        assert {r.key for r in server.requests} == {f"k{n}" for n in range(200)}
