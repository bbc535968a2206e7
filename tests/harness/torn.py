"""A vendor whose connections tear: an HTTP/1.1 server that does exactly what a script says.

It reads a whole request, writes it into a ledger, and only then plays a `Step`: an honest answer,
a cut at a chosen byte, garbage, silence, bytes nobody asked for. The ledger is written before the
step is played, so whatever a client can have seen is in it.

    from harness import torn_steps as step
    from harness.torn import TornServer

    server = TornServer({"order-7": [step.rst(), step.answer(200)]}).start()
    ... let the client send to server.url ...
    server.request_count("order-7")  # complete requests with that key: silent resends show here
    server.deliveries("order-7")     # those among them the vendor took
    server.stop()

A script is a Step (for every request), a list (one Step per request, then honest answers), a dict
(key -> Step or list: the nth request with that key gets the nth Step) or a function of the Request.
With `warmup=n` the first n requests of each connection are answered honestly, so that the script
meets a connection in reuse. `on_accept(number)` may return a Step to play before anything is read
(TLS handshake included), `on_head(request)` one to play before the body is read.

Waits are given as seconds or as a threading.Event the test sets; stop() ends them all.
Certificates for `tls`, and ports that refuse or swallow: torn_net.py.
"""
import select
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from .torn_steps import Request, Step, Wait, answer, as_script, stale_message

MAX_HEAD = 1 << 20


class _Gone(Exception):
    """The other side, or stop(), has ended the connection."""


class _Conn:
    """One accepted connection, owned by its thread."""

    def __init__(self, server: "TornServer", sock: socket.socket, number: int):
        self.server, self.sock, self.number = server, sock, number
        self.buf = bytearray()
        self.requests = 0
        self.gap: Optional[Wait] = None
        self.end_on_next = ""
        self.idle = False
        self.half_closed = False
        self.open = True
        self.sent = 0
        self.lock = threading.Lock()  # an SSL object must not be used by two threads at once

    # SSLSocket.shutdown() drops the TLS layer first: use the plain one below it.
    def _shutdown(self, how: int) -> None:
        try:
            socket.socket.shutdown(self.sock, how)
        except OSError:
            pass

    def start_tls(self, context: ssl.SSLContext) -> None:
        try:
            self.sock = context.wrap_socket(self.sock, server_side=True,
                                            do_handshake_on_connect=False)
            self.sock.do_handshake()
        except (OSError, ValueError) as error:
            self.server.note_handshake(self.number, str(error))
            raise _Gone from error

    def pause(self, wait: Wait) -> None:
        until = None if isinstance(wait, threading.Event) else time.monotonic() + wait
        while not self.server.stopping.is_set():
            if until is None:
                if wait.wait(0.02):
                    return
            elif self.server.stopping.wait(max(0.0, min(until - time.monotonic(), 1.0))):
                break
            elif time.monotonic() >= until:
                return
        raise _Gone

    def send(self, data: bytes) -> None:
        pieces = [data] if self.gap is None else [data[i:i + 1] for i in range(len(data))]
        for piece in pieces:
            try:
                with self.lock:
                    self.sock.sendall(piece)
            except (OSError, ValueError) as error:
                raise _Gone from error
            self.sent += len(piece)
            if self.gap is not None:
                self.pause(self.gap)

    def recv(self) -> bytes:
        """At least one byte, or _Gone."""
        try:
            if not (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
                waiter = select.poll()
                waiter.register(self.sock, select.POLLIN)
                waiter.poll()
            with self.lock:
                data = self.sock.recv(65536)
        except (OSError, ValueError) as error:
            raise _Gone from error
        if not data:
            raise _Gone
        if self.end_on_next:
            self.finish(self.end_on_next, still_reading=True)
            self.end_on_next = ""
        self.idle = False
        return data

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.buf:
            if len(self.buf) > MAX_HEAD:
                raise _Gone
            self.buf += self.recv()
        cut = self.buf.index(mark) + len(mark)
        return self.take(cut)

    def take(self, count: int) -> bytes:
        data = bytes(self.buf[:count])
        del self.buf[:count]
        return data

    def finish(self, end: str, still_reading: bool = False) -> None:
        if end == "rst":
            self.rst()
        elif end == "drain":
            self.fin(drain=True)
        elif end == "fin" and still_reading:
            self.half_close()
        elif end == "fin":
            self.fin()
        elif end != "keep":
            raise ValueError(f"unknown end {end!r}")

    def half_close(self) -> None:
        self.half_closed = True
        self._shutdown(socket.SHUT_WR)

    def fin(self, drain: bool = False) -> None:
        self.half_close()
        while drain:  # an unread byte would turn close() into a reset
            self.recv()
        raise _Gone

    def set_linger_zero(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def rst(self) -> None:
        self.set_linger_zero()
        raise _Gone

    def run(self, context: Optional[ssl.SSLContext]) -> None:
        server = self.server
        step = server.on_accept(self.number) if server.on_accept else None
        if step is not None:
            step.play(self, Request(self.number, 0, "", "", {}))
        if context is not None:
            self.start_tls(context)
        while True:
            self.idle = not self.buf
            self.serve_one()

    def read_head(self) -> Request:
        head = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        method, target = (head[0].split(" ") + ["", ""])[:2]
        headers = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            if name:
                headers[name.strip().lower()] = value.strip()
        self.requests += 1
        key = headers.get("idempotency-key")
        return Request(self.number, self.requests, method, target, headers, key=key)

    def read_body(self, request: Request) -> None:
        if request.headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.headers.get("transfer-encoding", "").lower() == "chunked":
            size = -1
            while size != 0:
                size = int(self.read_until(b"\r\n").split(b";")[0], 16)
                self.read_count(request, size)
                self.read_until(b"\r\n")
        else:
            self.read_count(request, int(request.headers.get("content-length", 0)))
        request.arrived = time.monotonic()
        request.complete = True

    def read_count(self, request: Request, count: int) -> None:
        end = len(request.body) + count
        while True:
            request.body += self.take(end - len(request.body))
            if len(request.body) == end:
                return
            self.buf += self.recv()

    def serve_one(self) -> None:
        request = self.read_head()
        before = self.sent
        try:
            step = self.server.step_before_body(request)
            if step is None:
                self.read_body(request)
                step = self.server.record(request, self.half_closed)
            step.play(self, request)
        finally:
            request.sent = self.sent - before
            if not request.complete and not request.step:
                self.server.record_incomplete(request)


@dataclass
class _Ledger:
    requests: list = field(default_factory=list)
    incomplete: list = field(default_factory=list)
    handshakes: list = field(default_factory=list)
    errors: list = field(default_factory=list)


class TornServer:
    """See the module's head. With `dedup` a key that was taken once is not taken again, and its
    honest answers carry the first id. `tls`: what Authority.issue() returned."""

    def __init__(self, script=None, *, warmup: int = 0, dedup: bool = False, tls=None,
                 on_accept: Optional[Callable[[int], Optional[Step]]] = None,
                 on_head: Optional[Callable[[Request], Optional[Step]]] = None,
                 rcvbuf: int = 0, path: str = "/messages"):
        self._script = as_script(script)
        self._warmup, self._dedup, self._path = warmup, dedup, path
        self._honest = Step("warm-up", answer().play, True)
        self._late = Step("too late", lambda conn, _: conn.finish("fin"))
        self.on_accept, self._on_head = on_accept, on_head
        self._context = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*tls)
        self._ledger = _Ledger()
        self._changed = threading.Condition()
        self._conns: dict = {}
        self._threads: list = []
        self._seen: dict = {}
        self._first_id: dict = {}
        self.stopping = threading.Event()
        self._listener = socket.socket()
        if rcvbuf:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http{'s' if self._context else ''}://127.0.0.1:{self.port}{self._path}"

    def __enter__(self) -> "TornServer":
        return self.start()

    def __exit__(self, *_exc) -> None:
        self.stop()

    def start(self) -> "TornServer":
        self._listener.listen(1024)
        self._spawn(self._accept)
        return self

    def stop(self) -> None:
        """Ends all connections; raises when a script itself had failed."""
        self.stopping.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._threads[0].join()
        for conn in self._open_conns():
            conn._shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()
        if self._ledger.errors:
            raise RuntimeError("a script failed") from self._ledger.errors[0]

    # the ledger

    @property
    def requests(self) -> list:
        """Complete requests in order of arrival."""
        with self._changed:
            return list(self._ledger.requests)

    @property
    def incomplete(self) -> list:
        """Requests whose end was never read: cut by the client, or judged by on_head."""
        with self._changed:
            return list(self._ledger.incomplete)

    @property
    def handshake_errors(self) -> list:
        with self._changed:
            return list(self._ledger.handshakes)

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return len(self._threads) - 1

    def request_count(self, key: str) -> int:
        return sum(1 for r in self.requests if r.key == key)

    def deliveries(self, key: str) -> int:
        return sum(1 for r in self.requests if r.key == key and r.taken)

    def wait_until(self, condition: Callable[["TornServer"], Any], timeout: float = 10.0) -> Any:
        """Waits for a condition on the ledger; it is looked at after each change, and regularly."""
        until = time.monotonic() + timeout
        while True:
            result = condition(self)
            left = until - time.monotonic()
            if result or left <= 0:
                return result
            with self._changed:
                self._changed.wait(min(left, 0.02))

    def wait_requests(self, count: int, key: Optional[str] = None, timeout: float = 10.0) -> bool:
        return bool(self.wait_until(lambda s: sum(
            1 for r in s.requests if key is None or r.key == key) >= count, timeout))

    # the idle connections

    def inject(self, data: Optional[bytes] = None) -> int:
        """Puts `data` on every connection that waits for a request; returns how many."""
        conns = [conn for conn in self._open_conns() if conn.idle]
        for conn in list(conns):
            try:
                conn.send(stale_message() if data is None else data)
            except _Gone:
                conns.remove(conn)
        return len(conns)

    def close_idle(self, end: str = "fin") -> int:
        """Ends every idle connection with "fin" or "rst". A request that arrives after our fin is
        recorded and not taken."""
        conns = [conn for conn in self._open_conns() if conn.idle]
        for conn in conns:
            if end == "rst":
                conn.set_linger_zero()
                conn._shutdown(socket.SHUT_RD)
            else:
                conn.half_close()
        return len(conns)

    def wait_idle(self, count: int = 1, timeout: float = 10.0) -> bool:
        return bool(self.wait_until(
            lambda s: sum(1 for c in s._open_conns() if c.idle) >= count, timeout))

    # for connections

    def note_handshake(self, number: int, text: str) -> None:
        with self._changed:
            self._ledger.handshakes.append((number, text))
            self._changed.notify_all()

    def step_before_body(self, request: Request) -> Optional[Step]:
        if self._on_head is None or request.number <= self._warmup:
            return None
        step = self._on_head(request)
        if step is not None:
            request.step = step.name
            self.record_incomplete(request)
        return step

    def record(self, request: Request, late: bool) -> Step:
        if request.key is None:
            try:
                body = request.json()
                request.key = body.get("key") if isinstance(body, dict) else None
            except ValueError:
                pass
        with self._changed:
            request.nth = self._seen[request.key] = self._seen.get(request.key, 0) + 1
            request.id = f"torn-{len(self._ledger.requests) + 1}"
            if self._dedup and request.key is not None:
                request.id = self._first_id.get(request.key, request.id)
            step = self._choose(request, late)
            again = self._dedup and request.key in self._first_id
            request.step = step.name
            request.taken = step.taken and request.method != "GET" and not again
            if request.taken and request.key is not None:
                self._first_id.setdefault(request.key, request.id)
            self._ledger.requests.append(request)
            self._changed.notify_all()
        return step

    def record_incomplete(self, request: Request) -> None:
        with self._changed:
            self._ledger.incomplete.append(request)
            self._changed.notify_all()

    def _choose(self, request: Request, late: bool) -> Step:
        if late:
            return self._late
        return self._honest if request.number <= self._warmup else self._script(request)

    def _open_conns(self) -> list:
        with self._changed:
            return [conn for conn in self._conns.values() if conn.open]

    def _spawn(self, target, *args) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn = _Conn(self, sock, len(self._threads))
            with self._changed:
                self._conns[conn.number] = conn
            self._spawn(self._run, conn)

    def _run(self, conn: _Conn) -> None:
        try:
            conn.run(self._context)
        except _Gone:
            pass
        except Exception as error:  # a mistake in a script must not hide as a torn connection
            self._ledger.errors.append(error)
        with self._changed:
            conn.open = False
            del self._conns[conn.number]
            conn.sock.close()
            self._changed.notify_all()
