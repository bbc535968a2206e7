"""The wire between worker and vendor: hands every request on and every answer back, except where a
test wants a request lost, an answer cut in half, or nobody at all to listen.

    wires = Wires()                       # one thread for all
    wire = wires.lay(vendor_port)         # wire.url instead of the vendor's
    wire.once("998901234567", "half")     # the next request with these digits in it
    wire.cut(); wire.mend()               # connections refused; and not"""

import asyncio
import re
import socket
import threading

LOSE, HALF = "lose", "half"  # the request never arrives; the answer breaks off in its middle
KEPT = 400  # exchanges remembered, for explanations


async def read_message(reader, answer=False):
    """One HTTP message with its body, as bytes; b"" at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if length:
        try:
            return head + await reader.readexactly(int(length.group(1)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
    if answer and not re.match(rb"HTTP/1.1 (1\d\d|204|304)", head):
        raise AssertionError(f"an answer without a length: {head[:200]!r}")
    if re.search(rb"(?i)\r\ntransfer-encoding:", head):
        raise AssertionError(f"chunks are not read here: {head[:200]!r}")
    return head


class Wire:
    def __init__(self, wires, vendor_port):
        self._loop, self._vendor_port = wires.loop, vendor_port
        self._rules, self._open = {}, set()
        self._server = None
        self.exchanges = []  # (request, answer, what was done)
        self.port = None
        self.mend()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def once(self, digits, action):
        self._rules[digits.lstrip("+").encode()] = action

    def told(self, digits, last=4):
        """What went over the wire about this number, for people."""
        needle = digits.lstrip("+").encode()
        found = [e for e in self.exchanges if needle in e[0]][-last:]
        return "\n".join(f"      > {q[:700]!r}\n      < {a[:500]!r}{' ' + done if done else ''}" for q, a, done in found)

    def mend(self):
        self._call(self._mend())

    def cut(self):
        self._call(self._cut())

    def _call(self, job):
        asyncio.run_coroutine_threadsafe(job, self._loop).result(20)

    async def _mend(self):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", self.port or 0))
        self.port = s.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=s, limit=1 << 20)

    async def _cut(self):
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _rule(self, request):
        for digits in self._rules:
            if digits in request:
                return self._rules.pop(digits)
        return None

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._open.add(task)
        upstream = None
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._vendor_port, limit=1 << 22)
            while await self._exchange(reader, writer, *upstream):
                pass
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            for end in [writer] + ([upstream[1]] if upstream else []):
                end.close()

    async def _exchange(self, reader, writer, vendor_reader, vendor_writer):
        """False: the connection is over."""
        request = await read_message(reader)
        if not request:
            return False
        rule, answer = self._rule(request), b""
        if rule != LOSE:
            vendor_writer.write(request)
            answer = await read_message(vendor_reader, answer=True)
        self.exchanges = self.exchanges[-KEPT:] + [(request, answer, rule)]
        if not answer:
            return False
        head = answer.index(b"\r\n\r\n") + 4
        half = head + (len(answer) - head) // 2 if len(answer) > head + 1 else head // 2
        writer.write(answer[:half] if rule == HALF else answer)
        await writer.drain()
        return rule != HALF and b"\r\nconnection: close" not in answer[:head].lower()


class Wires:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def lay(self, vendor_port):
        return Wire(self, vendor_port)
