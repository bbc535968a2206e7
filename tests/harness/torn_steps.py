"""What a torn-connection server can do with a request: the steps and scripts of torn.py."""
import gzip
import json
import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

Wait = Union[float, threading.Event]


@dataclass
class Request:
    """One line of the ledger."""

    conn: int  # connection number, from 1
    number: int  # number of the request on that connection, from 1
    method: str
    target: str
    headers: dict  # names in lower case
    body: bytes = b""
    arrived: float = 0.0  # time.monotonic() when the last byte was here
    key: Optional[str] = None
    nth: int = 0  # how many requests carried this key so far, this one included
    complete: bool = False
    step: str = ""
    taken: bool = False
    id: str = ""  # the provider id an honest answer carries
    sent: int = 0  # bytes of the answer handed to the kernel

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Step:
    """What to do with one request. `taken`: does the vendor keep the message?"""

    name: str
    play: Callable[[Any, Request], None]
    taken: bool = False


# --- honest answers -------------------------------------------------------------------------------


def _message(status: int, headers=(), body: bytes = b"", length: Optional[int] = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json"]
    if status in (204, 304):
        body = b""
    else:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _body(body: Any, status: int, request: Request) -> bytes:
    if callable(body):
        body = body(request)
    if body is None:
        body = {"id": request.id} if status < 300 else {"error": status}
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def answer(status: int = 200, body: Any = None, headers=(), taken: Optional[bool] = None) -> Step:
    """A well-formed answer. `body`: bytes, something for JSON, or a function of the Request;
    by default {"id": ...} or {"error": status}. A 2xx takes the message unless told otherwise."""

    def play(conn, request: Request) -> None:
        conn.send(_message(status, headers, _body(body, status, request)))

    return Step(f"answer {status}", play, status // 100 == 2 if taken is None else taken)


def redirect(status: int, location: str) -> Step:
    return answer(status, headers=[("Location", location)])


def limited(*retry_after: Any, status: int = 429, taken: bool = False) -> Step:
    """429 (or another status) with as many Retry-After headers as values."""
    return answer(status, headers=[("Retry-After", value) for value in retry_after], taken=taken)


def after(wait: Wait, step: Step) -> Step:
    """Stall once the request is read, then play `step`."""

    def play(conn, request: Request) -> None:
        conn.pause(wait)
        step.play(conn, request)

    return Step(f"stall, {step.name}", play, step.taken)


# --- cuts -----------------------------------------------------------------------------------------


def fin(taken: bool = True) -> Step:
    """Close in order, without a byte of answer."""
    return Step("fin", lambda conn, _: conn.fin(), taken)


def rst(taken: bool = True) -> Step:
    return Step("rst", lambda conn, _: conn.rst(), taken)


def raw(data: bytes, end: str = "fin", taken: bool = True, name: str = "raw") -> Step:
    """Send `data` as it is; then end with "fin", "rst", or "keep" the connection."""

    def play(conn, _request: Request) -> None:
        conn.send(data)
        conn.finish(end)

    return Step(name, play, taken)


def half_status(end: str = "fin", taken: bool = True) -> Step:
    return raw(b"HTTP/1.1 20", end, taken, "half status line")


def interim(status: int = 100, end: str = "fin", taken: bool = True) -> Step:
    """100 or 103, then the end."""
    return raw(f"HTTP/1.1 {status} Interim\r\n\r\n".encode(), end, taken, f"only {status}")


def status_line(status: int = 200, end: str = "fin", taken: bool = True) -> Step:
    return raw(f"HTTP/1.1 {status} OK\r\n".encode(), end, taken, "status line only")


def half_header(status: int = 200, end: str = "fin", taken: bool = True) -> Step:
    return raw(f"HTTP/1.1 {status} OK\r\nContent-Le".encode(), end, taken, "half header")


def short_body(status: int = 200, missing: int = 10, end: str = "fin", taken: bool = True) -> Step:
    """All headers, and a body that ends before its announced length."""

    def play(conn, request: Request) -> None:
        body = _body(None, status, request)
        conn.send(_message(status, (), body, len(body) + missing))
        conn.finish(end)

    return Step("short body", play, taken)


def bad_chunk(status: int = 200, end: str = "fin", taken: bool = True) -> Step:
    head = f"HTTP/1.1 {status} OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{{\"id\"\r\nZZZ\r\n"
    return raw(head.encode(), end, taken, "bad chunk")


def bad_gzip(status: int = 200, end: str = "fin", taken: bool = True) -> Step:
    """A gzip body whose stream is damaged behind its header."""
    packed = bytearray(gzip.compress(b'{"id":"packed"}'))
    packed[10:] = b"\xff" * (len(packed) - 10)
    data = _message(status, [("Content-Encoding", "gzip")], bytes(packed))
    return raw(data, end, taken, "bad gzip")


def garbage(data: bytes = b"\x00\x01 this is no HTTP \xff\xfe\r\n\r\n", end: str = "fin",
            taken: bool = True) -> Step:
    return raw(data, end, taken, "garbage")


def huge_headers(total: int = 400_000, line: int = 1000, status: int = 200,
                 taken: bool = True) -> Step:
    """About `total` bytes of header lines of `line` bytes each, then an honest body."""
    filler = [(f"X-Filler-{i:06}", "x" * (line - 19)) for i in range(total // line)]
    step = answer(status, headers=filler, taken=taken)
    return Step("huge headers", step.play, taken)


def huge_body(total: int = 100_000_000, chunked: bool = False, status: int = 200,
              taken: bool = True) -> Step:
    """Stream `total` bytes until the client stops; Request.sent tells how far it let us come."""
    size = 65536

    def play(conn, _request: Request) -> None:
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {total}"
        conn.send(f"HTTP/1.1 {status} OK\r\n{framing}\r\n\r\n".encode())
        left = total
        while left > 0:
            piece = b"x" * min(size, left)
            conn.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            left -= len(piece)
        if chunked:
            conn.send(b"0\r\n\r\n")

    return Step("huge body", play, taken)


# --- slowness -------------------------------------------------------------------------------------


def stall(wait: Wait, end: str = "fin", taken: bool = True) -> Step:
    """Read all, say nothing for `wait`, then end."""
    return Step("stall", after(wait, raw(b"", end)).play, taken)


def trickle(every: Wait = 0.1, step: Optional[Step] = None) -> Step:
    """Play `step` (an honest answer) one byte per `every`."""
    inner = step or answer()

    def play(conn, request: Request) -> None:
        conn.gap = every
        try:
            inner.play(conn, request)
        finally:
            conn.gap = None

    return Step("trickle", play, inner.taken)


def unread(wait: Wait, end: str = "") -> Step:
    """For on_accept: read nothing for `wait`. Then go on honestly, or end with "fin" or "rst".
    Give TornServer a small `rcvbuf` too, else the kernel takes in the request by itself."""

    def play(conn, _request: Request) -> None:
        conn.pause(wait)
        conn.finish(end or "keep")

    return Step("unread", play)


def early(status: int = 413, end: str = "drain") -> Step:
    """For on_head: answer while the body is still on its way. "drain" swallows the body."""

    def play(conn, request: Request) -> None:
        conn.send(_message(status, [("Connection", "close")], _body(None, status, request)))
        conn.finish(end)

    return Step(f"early {status}", play)


# --- connections left in a bad state --------------------------------------------------------------


def stale_message(status: int = 200, body: Any = None) -> bytes:
    """A complete answer to nobody's request: what a reused connection may hold."""
    body = {"id": 77} if body is None and status < 300 else body
    return _message(status, (), json.dumps(body if body is not None else {}).encode())


def answer_then_stale(data: Optional[bytes] = None, wait: Wait = 0.0,
                      step: Optional[Step] = None) -> Step:
    """Answer, and after `wait` leave `data` on the idle connection. A client that reads answer and
    data at once sees trailing junk instead: let the test set an Event once the answer was used,
    or call server.inject()."""
    first = step or answer()

    def play(conn, request: Request) -> None:
        first.play(conn, request)
        conn.pause(wait)
        conn.send(stale_message() if data is None else data)

    return Step("answer, stale bytes", play, first.taken)


def answer_then_close(when: str = "now", end: str = "fin", step: Optional[Step] = None) -> Step:
    """Answer as if the connection stayed, then close it "now" or "on_next": when the first bytes of
    the next request arrive. With fin that request is still read into the ledger, never taken."""
    first = step or answer()

    def play(conn, request: Request) -> None:
        first.play(conn, request)
        if when == "now":
            conn.finish(end)
        else:
            conn.end_on_next = end

    return Step(f"answer, close {when}", play, first.taken)


# --- scripts --------------------------------------------------------------------------------------


def in_order(steps, then: Optional[Step] = None) -> Callable[[Request], Step]:
    """The nth request meets the nth step, whatever its key; later ones `then`."""
    left = iter(list(steps))
    rest = then or answer()
    return lambda _request: next(left, rest)


def by_key(table: dict, then: Optional[Step] = None) -> Callable[[Request], Step]:
    rest = then or answer()

    def choose(request: Request) -> Step:
        steps = table.get(request.key, rest)
        if isinstance(steps, Step):
            return steps
        return steps[request.nth - 1] if request.nth <= len(steps) else rest

    return choose


def as_script(script) -> Callable[[Request], Step]:
    if script is None or isinstance(script, Step):
        step = script or answer()
        return lambda _request: step
    if isinstance(script, dict):
        return by_key(script)
    return script if callable(script) else in_order(script)
