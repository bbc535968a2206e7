"""What PgProxy can be told to do, and what a unit of traffic is.

A *unit* is what ends in one ReadyForQuery: a simple Query, or a pipeline up to its Sync. A rule
matches (regex, case ignored) the SQL of a Query or of an executed statement, and then rules:

    cut_before_sync  all is forwarded but the Sync (or Query): the server rolls back
    cut_after_sync   all is forwarded, the whole answer is lost: the server commits
    cut_inside       the Sync or Query is forwarded up to byte n
    cut_rows         the answer ends after n rows of the statement, or all if they are fewer
    cut_complete     the answer ends before the statement's CommandComplete
    cut_ready        the answer ends before its ReadyForQuery
    cut_bytes        the answer ends after n bytes (in the midst of a message)
    notice           a NoticeResponse is put before the CommandComplete
    notice_ready     the same before the ReadyForQuery
    error            the statement fails in the server, with our SQLSTATE
    delay            the Sync or Query waits for `seconds`
    hole_before      from before the Sync or Query on nothing passes, and nobody is told
    hole_after       the same from behind it: the server acts, the answer vanishes
    refuse           (match: the start-up parameters as "name=value ...") no session; with a
                     SQLSTATE the client is told

`skip` lets that many matches pass first; `times=-1` is for ever.

A cut ends the client's connection once the server is through with the unit (or has rolled back), so
what the client does next meets a settled state; `wait=False` cuts the client at once. With
`sqlstate` a cut is preceded by a FATAL ErrorResponse, with `rst` it is a reset. A rule counts as
fired when its deed is done: the row of a cut transaction can be looked for right after
wait_fired(). Not followed: COPY FROM STDIN by the extended protocol.
"""
import re
import struct
import threading
from dataclasses import dataclass, field
from typing import Optional

_ACTIONS = frozenset((
    "cut_before_sync", "cut_after_sync", "cut_inside", "cut_rows", "cut_complete", "cut_ready",
    "cut_bytes", "notice", "notice_ready", "error", "delay", "hole_before", "hole_after", "refuse"))


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def report(kind: bytes, severity: str, sqlstate: str, text: str) -> bytes:
    """An ErrorResponse (E) or NoticeResponse (N)."""
    fields = (("S", severity), ("V", severity), ("C", sqlstate), ("M", text))
    return message(kind, b"".join(f"{k}{v}\0".encode() for k, v in fields) + b"\0")


class Rule:
    """What PgProxy.rule() returns; `fired` counts how often it was carried out."""

    def __init__(self, match: Optional[str], action: str, times: int, **options):
        if action not in _ACTIONS:
            raise ValueError(f"unknown action {action!r}")
        self.pattern = re.compile(match or "", re.I | re.S)
        self.action, self.left = action, times
        self.skip = options.pop("skip", 0)
        self.n = options.pop("n", 0)
        self.seconds = options.pop("seconds", 0.0)
        self.sqlstate = options.pop("sqlstate", "")
        self.text = options.pop("text", "as the proxy was told")
        self.wait = options.pop("wait", True)
        self.rst = options.pop("rst", False)
        if options:
            raise TypeError(f"unknown options {sorted(options)}")
        self._fired = 0
        self._changed = threading.Condition()

    @property
    def fired(self) -> int:
        with self._changed:
            return self._fired

    def wait_fired(self, count: int = 1, timeout: float = 10.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._fired >= count, timeout)

    def fire(self) -> None:
        with self._changed:
            self._fired += 1
            self._changed.notify_all()

    def cancel(self) -> None:
        self.left = 0

    def notice(self) -> bytes:
        return report(b"N", "WARNING", self.sqlstate or "01000", self.text)

    def error(self, severity: str) -> bytes:
        return report(b"E", severity, self.sqlstate or "XX000", self.text)


@dataclass
class Unit:
    """One Query, or a pipeline up to its Sync, and what the rules want of it."""

    executes: list = field(default_factory=list)  # per Execute its rules, in order
    at: int = 0  # the Execute whose answer is arriving
    simple: bool = False
    synced: bool = False
    rules: list = field(default_factory=list)
    silent: bool = False  # the client gets nothing of the answer
    rows: int = 0
    sent: int = 0

    def of(self, *actions: str) -> list:
        return [r for r in self.rules if r.action in actions]

    def here(self, *actions: str) -> list:
        """Rules for the statement whose answer is arriving."""
        rules = self.rules
        if not self.simple:
            rules = self.executes[self.at] if self.at < len(self.executes) else []
        return [r for r in rules if r.action in actions]
