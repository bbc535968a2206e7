"""What the vendor stories share: kinds made for them, messages by name, a worker, rows and ledger.

    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", ["first", "second"])      # name -> idempotency key, in this order
    story.work({"main": vendor(server.url)}, in_flight=1)
    story.ended()                                        # nothing is pending or sending any more
    story.row(keys["first"]).state

The vendor's ledger is the judge of what was sent; rows are read to see what we say about it."""

import itertools
import uuid
from collections import namedtuple

from .procs import Worker, merged, wait_until

Row = namedtuple("Row", "state attempts calls doubts reason vendor_id provider")
Attempt = namedtuple("Attempt", "outcome provider phase code vendor_id")

PATIENCE_S = 60  # a loaded machine is slow; nothing waits this long when all is well
TIMEOUT_MS = 2000


def vendor(url, *, dedup=False, settings=None, **over):
    """One provider's configuration. Without `dedup` the vendor takes whatever comes."""
    base = {
        "plugin": "http", "in_flight": 32, "connect_timeout_ms": 1000, "timeout_ms": TIMEOUT_MS,
        "settings": {
            "url": url,
            "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}"},
            "accepted": {"status": [200, 201, 202], "id": "/id"},
        },
    }
    key = {"header": "Idempotency-Key", "window_s": 86400}
    base["settings"].update({"dedup": key} if dedup else {"key_header": "Idempotency-Key"})
    return merged(merged(base, over), {"settings": settings or {}})


class Story:
    """One database, its kinds and messages, and the workers on it."""

    def __init__(self, db, running):
        self.db, self.running = db, running
        self.worker = None
        self._numbers = itertools.count(1)
        self._conn = db.connect()

    def sql(self, text, *values):
        with self._conn.cursor() as cur:
            cur.execute(text, values or None)
            return cur.fetchall() if cur.description else None

    def kind(self, name, *, lane=3, on_unknown="hold", route=None, ttl="1 hour", attempts=4,
             base_ms=50, cap_ms=200, max_calls=100):
        """Before a worker starts: it rereads the table only every few seconds."""
        self.sql("insert into postrider.kind (name, lane, on_unknown, route, ttl, attempts,"
                 " backoff_base_ms, backoff_cap_ms, max_calls)"
                 " values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                 name, lane, on_unknown, route, ttl, attempts, base_ms, cap_ms, max_calls)

    def recipient(self):
        return f"+99890{next(self._numbers):07}"

    def queue(self, kind, names, **named):
        """Queues one message a name, in one transaction and in this order."""
        keys = {name: str(uuid.uuid4()) for name in names}
        extra = "".join(f", {word} => %s" for word in named)
        with self._conn.cursor() as cur:
            cur.execute("begin")
            for name, key in keys.items():
                cur.execute("select postrider.send(%s, %s, kind => %s, key => %s" + extra + ")",
                            (self.recipient(), f"text of {name}", kind, key, *named.values()))
            cur.execute("commit")
        return keys

    def work(self, providers, wait=True, **over):
        """Starts a worker with short leases and these providers."""
        config = merged({
            "database": self.db.dsn, "listen": "127.0.0.1:0", "in_flight": 64, "lease_s": 5,
            "poll_ms": 50, "settle_allowance_ms": 500, "providers": providers}, over)
        self.worker = Worker(config)
        self.running.append(self.worker)
        return self.worker.wait_ready() if wait else self.worker

    def row(self, key):
        return self.rows()[key]

    def rows(self, *keys):
        """All messages, or those of these keys, by key."""
        found = self.sql("select key::text, state::text, attempts, calls, doubts, reason,"
                         " vendor_id, provider from postrider.messages")
        return {key: Row(*rest) for key, *rest in found if not keys or key in keys}

    def attempts(self, key):
        """What is on record of a message's attempts, oldest first."""
        return [Attempt(*a) for a in self.sql(
            "select a.outcome::text, a.provider, a.phase, a.code, a.vendor_id"
            " from postrider.attempts a join postrider.messages m on m.id = a.message_id"
            " where m.key = %s order by a.started_at, a.ended_at", key)]

    def wait(self, condition, what, timeout=PATIENCE_S):
        return wait_until(condition, timeout, what, interval=0.05)

    def in_state(self, *states):
        return self.sql("select count(*) from postrider.message"
                        " where state = any (%s::postrider.state[])", list(states))[0][0]

    def ended(self, timeout=PATIENCE_S):
        """Until nothing is to be done any more, not even under a lease; returns all rows."""
        self.wait(lambda: self.in_state("pending", "sending") == 0 and
                  self.sql("select count(*) from postrider.claim")[0][0] == 0,
                  lambda: f"every message to end: {self.rows()}", timeout)
        return self.rows()

    def hurry(self):
        """Lets the pauses between attempts pass: what waits is due now."""
        self.sql("update postrider.message set due = clock_timestamp() where state = 'pending'")

    def metric(self, name, **labels):
        inner = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return self.worker.metrics()[f"postrider_{name}" + (f"{{{inner}}}" if inner else "")]

    def door(self, provider):
        """open, paused or held, as /metrics shows it."""
        shown = self.worker.metrics()
        on = [s for s in ("open", "paused", "held")
              if shown[f'postrider_provider_state{{provider="{provider}",state="{s}"}}'] == 1]
        assert len(on) == 1, on
        return on[0]


def ledger_ids(server):
    """key -> the ids the vendor gave out for it."""
    ids = {}
    for request in server.requests:
        ids.setdefault(request.key, set()).add(request.id)
    return ids


def ids_belong(server, rows):
    """No answer was given to the wrong message: each id on a row is one of its own key's."""
    ids = ledger_ids(server)
    for key, row in rows.items():
        if row.vendor_id is not None:
            assert row.vendor_id in ids.get(key, ()), (key, row)
