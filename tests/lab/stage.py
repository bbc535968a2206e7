"""What demo, lab and bench stand on: a private PostgreSQL with the schema, a simulated vendor, real
workers, and the question put to the phones. Everything ends with the process (tests/harness)."""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.harness.cluster import Cluster  # noqa: E402
from tests.harness.procs import Sandbox, Worker, merged  # noqa: E402

__all__ = ["Stage", "Verdict", "Worker", "new_cluster", "number_from", "options", "percentile", "run_main", "start_all",
           "stop_all", "write_json"]

SEND_AT_ONCE = 50_000  # recipients in one call of send_many


def options(doc):
    """A parser whose help is the program's own text, and which knows --json."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    return parser


def write_json(path, what):
    """What --json asked for, if it did."""
    if path:
        pathlib.Path(path).write_text(json.dumps(what, indent=2) + "\n", encoding="utf-8")


def run_main(main):
    """Ends the program with main's exit code, or 130 after Ctrl-C."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is stopped", flush=True)
        sys.exit(130)


def number_from(name, default, least=1):
    """A whole number from the environment; anything else ends the program with a word."""
    text = os.environ.get(name, "")
    if text.replace(",", "").replace("_", "").isdigit() and int(text.replace(",", "")) >= least:
        return int(text.replace(",", ""))
    if text:
        sys.exit(f"{name}={text}: a whole number from {least:,} on is needed")
    return default


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed; None of none."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] if ordered else None


def phone(i):
    return f"+99890{i % 10_000_000:07}"


class Verdict:
    """What the phones have, beside what the database says of the same messages."""

    def __init__(self, states, answer):
        missing = answer["missing_keys"]
        self.messages = len(states)
        self.on_phones = answer["delivered"]
        self.missing = set(missing)
        self.doubled = answer["duplicated"]
        self.doubled_keys = {d["key"] for d in answer["duplicate_keys"]}
        self.strangers = answer["unexpected"]
        self.states = {}
        for state in states.values():
            self.states[state] = self.states.get(state, 0) + 1
        told = ("failed", "unknown", "expired", "canceled", "suppressed")
        waiting = [key for key in missing if states[key] == "pending"]
        self.left = len(waiting)
        # Lost: on no phone, and nothing says so.
        self.lost = sum(states[key] not in told for key in missing) - len(waiting)
        self.unknown_keys = {key for key, state in states.items() if state == "unknown"}

    def count(self, state):
        return self.states.get(state, 0)


class Stage:
    """One database and one vendor for one run."""

    def __init__(self, cluster, *vendor_args, dedup=True):
        self.cluster = cluster
        self.name = cluster.migrated()
        self.dsn = cluster.dsn(self.name)
        self.dedup = dedup
        self.conn = cluster.connect(self.dsn)
        self.vendor = Sandbox("--dedup", "on" if dedup else "off", *vendor_args)

    def close(self):
        self.vendor.stop()
        self.conn.close()
        self.cluster.dropdb(self.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def sql(self, text, *values):
        with self.conn.cursor() as cur:
            cur.execute(text, values or None)
            return cur.fetchall() if cur.description else []

    def config(self, in_flight, **over):
        """A worker's configuration for this vendor; lease and allowance are the shortest allowed."""
        settings = {
            "url": f"{self.vendor.url}/messages", "method": "POST",
            "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}",
                     "lane": "{{kind}}", "t": "{{created_ms}}"},
            "accepted": {"status": [200, 201, 202], "id": "/id"}}
        if self.dedup:
            settings["dedup"] = {"header": "Idempotency-Key", "window_s": 86400}
        base = {"database": self.dsn, "in_flight": in_flight, "lease_s": 5,
                "settle_allowance_ms": 1000, "drain_s": 10,
                "providers": {"main": {"plugin": "http", "in_flight": in_flight,
                                       "connect_timeout_ms": 1000, "timeout_ms": 2000,
                                       "settings": settings}}}
        return merged(base, over)

    def fill(self, messages, kind="campaign", body="Yangi chegirma: 20 %. Stop: 1234"):
        """Queues messages as an application would; seconds it took."""
        began = time.monotonic()
        for start in range(0, messages, SEND_AT_ONCE):
            many = min(SEND_AT_ONCE, messages - start)
            self.sql("select postrider.send_many(%s, %s, kind => %s)",
                     [phone(i) for i in range(start, start + many)], [body], kind)
        return time.monotonic() - began

    def counts(self, *kinds):
        """{state: messages}, of these kinds or of all."""
        total = {}
        for kind, state, n in self.sql("select kind, state::text, count from postrider.counts"):
            if not kinds or kind in kinds:
                total[state] = total.get(state, 0) + n
        return total

    def in_hands_of(self, *workers):
        """Messages claimed by these processes (dead ones too) whose end is not stored."""
        return self.sql(
            "select count(*)::int from postrider.worker w join postrider.claim c on c.worker = w.id"
            " cross join unnest(c.ids) as u(id) join postrider.message m on m.id = u.id"
            " where w.pid = any(%s) and m.token = c.token and m.state = 'sending'",
            [w.pid for w in workers])[0][0]

    def arrivals(self, lane=None):
        """{key: first arrival at a phone, epoch ms}"""
        status, text = self.vendor.http("/api/ledger.csv", timeout=120)
        if status != 200:
            raise AssertionError(f"/api/ledger.csv: {status}")
        found = {}
        for line in text.decode().splitlines()[1:]:
            key, deliveries, _, first, _, its_lane, _ = line.split(",")
            if int(deliveries) and lane in (None, its_lane):
                found[key] = int(first)
        return found

    def judge(self, table="select coalesce(key, id)::text, state::text from postrider.messages"):
        states = dict(self.sql(table))
        limit = max(1, len(states))
        answer = self.vendor.api(f"/missing?limit={limit}", "POST", "\n".join(states).encode(), timeout=120)
        if answer["asked"] != len(states) or answer["missing"] != len(answer["missing_keys"]):
            raise AssertionError(f"the vendor did not answer for every message: {answer['asked']} "
                                 f"of {len(states)} asked, {answer['missing']} missing")
        return Verdict(states, answer)


def start_all(workers):
    for worker in workers:
        worker.wait_ready(60)
    return workers


def stop_all(workers):
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            worker.kill(15)
    for worker in workers:
        worker.stop()


def new_cluster(**settings):
    return Cluster(**settings)

