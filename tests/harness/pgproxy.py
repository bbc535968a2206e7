"""A proxy before PostgreSQL that knows where messages begin and end, and cuts exactly there.

It understands protocol 3.0 in both directions: which SQL a statement name and a portal stand for,
which Sync closes which batch, and which answer belongs to it. So a test can say "lose the answer to
the next claim, but only after the server has committed it".

    proxy = PgProxy("/run/postgresql", 5432).start()
    rule = proxy.rule(match=r"claim", action="cut_after_sync", times=1)
    ... a client on proxy.dsn(base_dsn) ...
    assert rule.wait_fired(1, timeout=5)
    proxy.stop()

The actions and their options: pgproxy_rules.py.
"""
import socket
import struct
import threading
from collections import deque
from typing import Optional

from .pgproxy_rules import Rule, Unit, message

_CANCEL, _SSL, _GSS = 80877102, 80877103, 80877104  # instead of a protocol version
_OPENS_UNIT = frozenset(b"PBDECHQFS")
_ENDS_UNIT = frozenset(b"QFS")
_ENDS_EXECUTE = frozenset(b"CIs")
_ANY_TIME = frozenset(b"NAS")  # what a server may send between answers


class _Ended(Exception):
    """One side of the session is gone."""


def _text(data, start: int) -> tuple:
    """(zero-terminated string at start, offset behind it)"""
    end = data.index(0, start)
    return data[start:end].decode("utf-8", "replace"), end + 1


def _shut(sock: Optional[socket.socket], how: int = socket.SHUT_RDWR) -> None:
    try:
        if sock is not None:
            sock.shutdown(how)
    except OSError:
        pass


class _Session:
    """One client: a thread for each direction; the client's thread owns both sockets."""

    def __init__(self, proxy: "PgProxy", client: socket.socket):
        self.proxy, self.client = proxy, client
        self.server: Optional[socket.socket] = None
        self.lock = threading.Lock()  # units, silent, done
        self.units: deque = deque([Unit(simple=True, synced=True)])  # the start-up is one
        self.open_unit: Optional[Unit] = None
        self.statements: dict = {}
        self.portals: dict = {}
        self.silent = False  # nothing goes to the client any more
        self.done: list = []  # rules to report when both sockets are closed
        self.dead = threading.Event()
        self.hole = threading.Event()

    # --- both directions

    def end(self) -> None:
        self.dead.set()
        _shut(self.client)
        _shut(self.server)

    def cut_client(self, rule: Rule) -> None:
        if rule.sqlstate:
            try:
                self.client.sendall(rule.error("FATAL"))
            except OSError:
                pass
        if rule.rst:  # the reset goes out with close(); this only wakes our reader
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            _shut(self.client, socket.SHUT_RD)
        else:
            _shut(self.client)

    def finish(self) -> None:
        """The server is through: what was cut can be closed, on both sides."""
        for rule in self.done:
            if rule.wait:
                self.cut_client(rule)
        self.dead.set()
        _shut(self.server)
        _shut(self.client, socket.SHUT_RD)

    def gate(self) -> None:
        """Waits while the proxy is paused or the session is in a hole."""
        while not self.dead.is_set():
            if self.hole.is_set():
                self.dead.wait()
            elif not self.proxy.running.wait(0.02):
                continue
            elif self.proxy.latency:
                self.dead.wait(self.proxy.latency)
                return
            else:
                return
        raise _Ended

    def send(self, to: socket.socket, data) -> None:
        if not data:
            return
        try:
            to.sendall(data)
        except OSError as error:
            raise _Ended from error

    def recv(self, source: socket.socket) -> bytes:
        try:
            data = source.recv(1 << 16)
        except OSError as error:
            raise _Ended from error
        if not data:
            raise _Ended
        self.gate()
        return data

    def run(self) -> None:
        answers = None
        try:
            self.gate()
            startup = self.handshake()
            if startup:
                self.server = self.proxy.connect()
                self.send(self.server, startup)
                answers = threading.Thread(target=self.pump_answers, daemon=True)
                answers.start()
                self.pump_client()
        except _Ended:
            pass
        _shut(self.server, socket.SHUT_WR)
        if answers is not None:
            answers.join()
        self.client.close()
        if self.server is not None:
            self.server.close()
        for rule in self.done:
            rule.fire()

    # --- start-up

    def handshake(self) -> bytes:
        """The start-up packet to forward, or nothing when there is to be no session."""
        buf = bytearray()
        while True:
            while len(buf) < 8 or len(buf) < struct.unpack_from("!I", buf)[0]:
                buf += self.recv(self.client)
            length, code = struct.unpack_from("!II", buf)
            if code not in (_SSL, _GSS):
                break
            del buf[:length]
            self.send(self.client, b"N")
        if code == _CANCEL:
            self.forward_cancel(bytes(buf))
            return b""
        words = bytes(buf[8:length]).decode("utf-8", "replace").split("\0")
        text = " ".join(f"{k}={v}" for k, v in zip(words[::2], words[1::2]) if k)
        for rule in self.proxy.claim(text, start=True):
            self.done.append(rule)
            self.cut_client(rule)
            return b""
        return bytes(buf)

    def forward_cancel(self, packet: bytes) -> None:
        """A cancel request is a connection of its own; the server answers by closing it."""
        with self.proxy.connect() as server:
            self.send(server, packet)
            server.recv(1)

    # --- client to server

    def pump_client(self) -> None:
        buf, out = bytearray(), bytearray()
        while True:
            buf += self.recv(self.client)
            start = 0
            while len(buf) - start >= 5:
                end = start + 1 + struct.unpack_from("!I", buf, start + 1)[0]
                if len(buf) < end:
                    break
                self.on_client(buf[start], buf[start:end], out)
                start = end
            del buf[:start]
            self.send(self.server, out)
            out.clear()

    def on_client(self, kind: int, msg: bytearray, out: bytearray) -> None:
        if kind not in _OPENS_UNIT:
            out += msg
            return
        with self.lock:
            unit = self.open_unit
            if unit is None:
                unit = self.open_unit = Unit()
                self.units.append(unit)
            replaced = self.learn(kind, msg, unit)
            if kind in _ENDS_UNIT:
                unit.synced = True
                self.open_unit = None
        if kind in _ENDS_UNIT and unit.rules:
            self.end_of_unit(unit, replaced or msg, out)
        else:
            out += replaced or msg

    def learn(self, kind: int, msg: bytearray, unit: Unit) -> Optional[bytes]:
        """Keeps names, finds the rules. Returns what to send instead, when a rule wants an error:
        a message that fails in the server, so that the transaction truly fails."""
        rules = []
        if kind == ord("P"):
            name, at = _text(msg, 5)
            self.statements[name] = _text(msg, at)[0]
        elif kind == ord("B"):
            portal, at = _text(msg, 5)
            self.portals[portal] = self.statements.get(_text(msg, at)[0], "")
        elif kind == ord("E"):
            rules = self.proxy.claim(self.portals.get(_text(msg, 5)[0], ""))
            unit.executes.append(rules)
        elif kind == ord("Q"):
            rules = self.proxy.claim(_text(msg, 5)[0])
            unit.simple = True
        unit.rules += rules
        unit.silent = unit.silent or any(
            r.action in ("cut_before_sync", "cut_after_sync", "cut_inside") for r in rules)
        if not any(r.action == "error" for r in rules):
            return None
        wrong = b"an error is wanted here\0"
        return message(b"Q", wrong) if unit.simple else message(b"P", b"\0" + wrong + b"\0\0")

    def end_of_unit(self, unit: Unit, msg, out: bytearray) -> None:
        """The Sync or Query of a unit with rules is about to be forwarded."""
        for rule in unit.rules:
            if rule.action == "delay":
                self.send(self.server, out)
                out.clear()
                self.dead.wait(rule.seconds)
                rule.fire()
        rules = unit.of("cut_before_sync", "cut_after_sync", "cut_inside", "hole_before",
                        "hole_after")
        if not rules:
            out += msg
            return
        rule = rules[0]
        if rule.action in ("cut_after_sync", "hole_after"):
            out += msg
        elif rule.action == "cut_inside":
            out += msg[:rule.n]
        if rule.action.startswith("hole"):
            self.hole.set()
            self.send(self.server, out)
            rule.fire()
            self.gate()
        self.done.append(rule)
        self.send(self.server, out)
        if not rule.wait:
            self.cut_client(rule)
        raise _Ended  # run() now half-closes; the server reads all of it, then the end

    # --- server to client

    def pump_answers(self) -> None:
        buf = bytearray()
        try:
            while True:
                buf += self.recv(self.server)
                start, out = 0, bytearray()
                while len(buf) - start >= 5:
                    end = start + 1 + struct.unpack_from("!I", buf, start + 1)[0]
                    if len(buf) < end:
                        break
                    with self.lock:
                        self.on_server(buf[start], buf[start:end], out)
                    start = end
                del buf[:start]
                self.to_client(out)
        except _Ended:
            pass
        except Exception as error:
            self.proxy.errors.append(error)
        self.finish()

    def to_client(self, out: bytearray) -> None:
        if not self.silent:
            self.send(self.client, out)
        out.clear()

    def on_server(self, kind: int, msg: bytearray, out: bytearray) -> None:
        unit = self.units[0] if self.units else None
        if unit is None:
            out += msg
            return
        if not self.silent and not unit.silent:
            if kind in _ANY_TIME or not unit.rules:
                out += msg
            else:
                self.apply(unit, kind, msg, out)
        if kind in _ENDS_EXECUTE and not unit.simple:
            unit.at += 1
        if kind == ord("Z"):
            self.units.popleft()
            if self.silent or unit.silent:
                self.to_client(out)
                raise _Ended

    def apply(self, unit: Unit, kind: int, msg: bytearray, out: bytearray) -> None:
        """One message of an answer that a rule is about."""
        cut = self.cut_before(unit, kind, msg)
        if cut is not None:
            if cut.action == "cut_bytes":
                out += msg[:cut.n - unit.sent]
            self.silence(unit, cut, out)
            return
        extra = unit.here("notice") if kind in _ENDS_EXECUTE else []
        if kind == ord("Z"):
            extra = unit.of("notice_ready")
        for rule in extra:
            out += rule.notice()
            rule.fire()
        if kind == ord("E"):
            for rule in unit.of("error"):
                msg = rule.error("ERROR")
                rule.fire()
        unit.sent += len(msg)
        out += msg

    @staticmethod
    def cut_before(unit: Unit, kind: int, msg: bytearray) -> Optional[Rule]:
        """The rule that ends the answer before or inside this message."""
        ends = kind in _ENDS_EXECUTE
        cuts = unit.here("cut_complete") if ends else []
        for rule in unit.here("cut_rows"):
            unit.rows += kind == ord("D")
            if ends or unit.rows > rule.n:
                cuts.append(rule)
        if kind == ord("Z"):
            cuts += unit.of("cut_ready")
        cuts += [rule for rule in unit.of("cut_bytes") if unit.sent + len(msg) > rule.n]
        return cuts[0] if cuts else None

    def silence(self, unit: Unit, rule: Rule, out: bytearray) -> None:
        """From here on the client hears nothing; on_server ends the session at ReadyForQuery."""
        self.to_client(out)
        self.silent = True
        self.done.append(rule)
        if not rule.wait:
            self.cut_client(rule)
        if not unit.synced:  # the client waits for more before it will send its Sync
            raise _Ended


class PgProxy:
    """See the module's head. `upstream`: a host, or the folder of a unix socket."""

    def __init__(self, upstream: str, port: int):
        self._upstream, self._upstream_port = str(upstream), int(port)
        self._rules: list = []
        self._lock = threading.Lock()
        self._sessions: dict = {}
        self.errors: list = []
        self._stopping = False
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self.port = self._listener.getsockname()[1]
        self.running = threading.Event()
        self.running.set()
        self.latency = 0.0  # seconds added to every read, both ways
        self.refused = 0  # sessions that found no server

    def __enter__(self) -> "PgProxy":
        return self.start()

    def __exit__(self, *_exc) -> None:
        self.stop()

    def start(self) -> "PgProxy":
        self._listener.listen(128)
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Cuts what is left; raises when the proxy itself had failed."""
        self._stopping = True
        _shut(self._listener)
        self._acceptor.join()
        self._listener.close()
        self.cut_all()
        if self.errors:
            raise RuntimeError("the proxy failed") from self.errors[0]

    def dsn(self, base: str) -> str:
        """The same database, user and options, through this proxy."""
        from psycopg2.extensions import make_dsn

        return make_dsn(base, host="127.0.0.1", port=self.port)

    def rule(self, match: Optional[str] = None, action: str = "cut_after_sync", times: int = 1,
             **options) -> Rule:
        """See pgproxy_rules.py."""
        rule = Rule(match, action, times, **options)
        with self._lock:
            self._rules.append(rule)
        return rule

    def claim(self, text: str, start: bool = False) -> list:
        """The rules this text uses up."""
        found = []
        with self._lock:
            for rule in self._rules:
                if rule.left and (rule.action == "refuse") == start and rule.pattern.search(text):
                    if rule.skip:
                        rule.skip -= 1
                    else:
                        rule.left -= 1
                        found.append(rule)
        return found

    def pause(self) -> None:
        """Nothing passes any more, nothing is closed. Connects are taken by the kernel."""
        self.running.clear()

    def resume(self) -> None:
        self.running.set()

    @property
    def sessions(self) -> int:
        return len(self._all())

    def cut_all(self) -> int:
        """Ends every session at once, both sides, wherever it is; returns how many."""
        sessions = self._all()
        for session, _thread in sessions:
            session.end()
        for _session, thread in sessions:
            thread.join()
        return len(sessions)

    def connect(self) -> socket.socket:
        try:
            if self._upstream.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._upstream}/.s.PGSQL.{self._upstream_port}")
            else:
                server = socket.create_connection((self._upstream, self._upstream_port))
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self.refused += 1
            raise _Ended from error
        return server

    def _all(self) -> list:
        with self._lock:
            return list(self._sessions.items())

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session = _Session(self, client)
            thread = threading.Thread(target=self._run, args=(session,), daemon=True)
            with self._lock:
                self._sessions[session] = thread
                thread.start()

    def _run(self, session: _Session) -> None:
        try:
            session.run()
        except Exception as error:  # ours: it must not pass for a cut
            self.errors.append(error)
            session.end()
        with self._lock:
            del self._sessions[session]
