"""Answers that come after their handler has returned, routes by prefix, and limits on how a request
may come (worker/io/serve.h over bare sockets, with serve_driver)."""
import contextlib
import http.client
import socket
import threading

import pytest

from tests.e2e.test_serve import Driver, read_all
from tests.harness.procs import wait_until


@pytest.fixture
def drive():
    started = []

    def start(*args):
        started.append(Driver(*args))
        return started[-1]

    yield start
    for driver in started:
        driver.stop()


def test_an_answer_may_come_later(drive):
    d = drive()
    assert d.get("/later/a%20b?ms=30&q=%2B")[::2] == \
        (200, b"/later/a b /later/a%20b?ms=30&q=%2B ")
    status, headers, body = d.get("/later/x?ms=5", "POST", b"what was sent")
    assert (status, body) == (200, b"/later/x /later/x?ms=5 what was sent")
    assert headers["Cache-Control"] == "no-store"


def test_others_are_served_meanwhile_and_the_connection_lives_on(drive):
    d = drive()
    connection = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
    with contextlib.closing(connection):
        for name in ("one", "two"):
            connection.request("POST", f"/later/{name}", b"body of " + name.encode())
            assert d.get("/healthz")[0] == 200
            before = d.turns()
            d.get("/healthz")
            assert d.turns() - before < 50  # the sleeping one does not spin the loop
            d.get("/release")
            assert connection.getresponse().read() == \
                f"/later/{name} /later/{name} body of {name}".encode()


def test_many_wait_and_are_answered_together(drive):
    d = drive("--connections", 200, "--per-address", 200)
    clients = [d.connect() for _ in range(100)]
    for i, s in enumerate(clients):
        s.sendall(b"GET /later/%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % i)

    def all_answered():
        d.get("/release")
        return True

    # A request not read yet when the others are let go is let go by the next call.
    done = []
    threads = [threading.Thread(target=lambda s=s: done.append(read_all(s))) for s in clients]
    for t in threads:
        t.start()
    wait_until(lambda: all_answered() and len(done) == 100, 20, "all answers", interval=0.05)
    for t in threads:
        t.join(20)
    assert sorted(int(a.rpartition(b"/later/")[2]) for a in done) == list(range(100))
    for s in clients:
        s.close()


def test_a_client_that_leaves_while_it_waits(drive):
    d = drive("--connections", 2, "--per-address", 2)
    s = d.connect()
    s.sendall(b"GET /later/x HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: d.get("/healthz")[0] == 200)
    s.close()
    d.get("/release")
    with d.connect() as a, d.connect() as b:  # both places are free again
        for c in (a, b):
            c.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert read_all(c).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("query", [b"?ms=3600000", b""], ids=["with a timer", "held"])
def test_it_ends_with_answers_owed(drive, query):
    """`held` answers are the driver's own: without a lost callback, nothing is told."""
    d = drive()
    s = d.connect()
    s.sendall(b"POST /later/x" + query + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    d.get("/healthz")
    if not query:
        d.get("/release")
    d.stop()
    s.close()


def test_prefixes(drive):
    d = drive()
    assert d.get("/later?ms=1")[0] == 404
    assert d.get("/laterx/a?ms=1")[0] == 404
    assert d.get("/later/?ms=1")[2] == b"/later/ /later/?ms=1 "
    assert d.get("/later/a/b/../c?ms=1")[2] == b"/later/a/b/../c /later/a/b/../c?ms=1 "
    assert d.get("//later/?ms=1")[0] == 404  # and "/" is no prefix
    assert b" 405 " in d.raw(b"PUT /later/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def test_a_target_is_visible_ascii(drive):
    raw = drive().raw(b"GET /later/\xd0\xb6\x01?ms=1&\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 400") or raw.endswith(b" /later/%D0%B6%01?ms=1&%FF ")


def test_a_route_has_its_own_body_limit(drive):
    d = drive("--body-max", 100)
    assert d.get("/later/x?ms=1", "POST", b"x" * 5000)[0] == 200
    assert d.get("/later/x?ms=1", "POST", b"x" * 5001)[0] == 413
    assert d.get("/echo", "POST", b"x" * 101)[0] == 413


def test_bodies_have_a_limit_together(drive):
    """Many half-sent bodies cannot fill the memory: what is declared beyond is refused at once."""
    d = drive("--bodies-max", 12000)
    held = [d.connect() for _ in range(2)]
    for s in held:
        s.sendall(b"POST /later/x?ms=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + b"y" * 4990)
    wait_until(lambda: d.get("/later/x?ms=1", "POST", b"z" * 5000)[0] == 503, 20, "no more room")
    assert d.get("/later/x?ms=1", "POST", b"z" * 100)[0] == 200
    for s in held:
        s.sendall(b"y" * 10)
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        s.close()
    wait_until(lambda: d.get("/later/x?ms=1", "POST", b"z" * 5000)[0] == 200, 20, "room again")


@pytest.mark.parametrize("start", [b"GET /healthz HTTP/1.1\r\nX: ",
                                   b"POST /later/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4999\r\n\r\n"],
                         ids=["headers", "body"])
def test_a_request_that_trickles_is_cut(drive, start):
    """Never silent, so no idle limit ends it; after its second it is put out all the same."""
    d = drive("--request-s", 1, "--timeout", 3600)
    stop = threading.Event()
    with d.connect() as s:
        s.sendall(start)

        def trickle():
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    s.sendall(b"y")

        thread = threading.Thread(target=trickle)
        thread.start()
        data = read_all(s)  # returns when the server ends it
        stop.set()
        thread.join(20)
    assert not data.startswith(b"HTTP/1.1 200")
    assert d.get("/healthz")[0] == 200


def test_an_honest_connection_is_not_cut(drive):
    """The limit counts from the last answer; while an answer is owed it does not count at all."""
    d = drive("--request-s", 1, "--timeout", 3600)
    connection = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/later/slow?ms=2200")
        sock = connection.sock
        assert connection.getresponse().read().startswith(b"/later/slow")
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        assert connection.sock is sock


def test_ten_thousand_connections(drive):
    """D7: what comes beyond the limit is refused; who is known is served all the while."""
    d = drive("--connections", 50, "--per-address", 20)
    with socket.create_connection(("127.0.0.1", d.port), 20, ("127.0.0.9", 0)) as honest:
        for i in range(10000):
            s = d.connect()
            if i % 500 == 0:
                honest.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert honest.recv(65536).startswith(b"HTTP/1.1 200")
            if i >= 40:
                s.close()


def resident_kb(d):
    with open(f"/proc/{d.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def test_headers_that_do_not_fit_leave_nothing_behind(drive):
    """libmicrohttpd gives such a request up without a word: what was begun for it has to go all the
    same. 3,000 of them would be about 48 MB."""
    d = drive("--timeout", 1)
    url = "/nosuchpage?" + "&".join(f"p{i}=v" for i in range(2000))

    def storm(n):
        for _ in range(n):
            with contextlib.closing(d.connect()) as s:
                s.settimeout(20)
                s.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    storm(200)
    wait_until(lambda: d.get("/healthz")[0] == 200, 20, "an answer")
    before = resident_kb(d)
    storm(3000)
    wait_until(lambda: d.get("/healthz")[0] == 200, 20, "an answer")
    assert resident_kb(d) - before < 8000
