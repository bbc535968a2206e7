"""Everything the courses share: a database, a worker with a provider and two kinds a variant, and a
sandbox behind a wire for each. run() goes through all variants side by side."""

import contextlib
import json
import os
import subprocess
import threading

from tests.harness import clean
from tests.harness.cluster import free_port
from tests.harness.procs import Sandbox, Worker, binary

from .cases import CASES, Course
from .wire import Wires

TOKEN = "conformance-0123456789"
TIMEOUT_MS = 8000  # nothing is that late; asking waits as long


def program(name):
    return clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / name


def claims(asked):
    """What plugins say of themselves: [(plugin, settings)] -> [caps]."""
    lines = "".join(json.dumps({"plugin": p, "settings": s}) + "\n" for p, s in asked)
    environ = dict(os.environ, POSTRIDER_PROVIDER_DIR=str(binary().resolve().parent / "providers"))
    done = subprocess.run([program("caps_driver")], input=lines, stdout=subprocess.PIPE, text=True, env=environ,
                          check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds(courses):
    """Two a variant: at most once, and ask first (only where that is allowed)."""
    for c in courses:
        for name, policy in zip(c.v.kinds, ("hold", "ask")):
            if policy == "hold" or c.asks:
                c.sql("insert into postrider.kind (name, lane, on_unknown, route, ttl, attempts, backoff_base_ms,"
                      " backoff_cap_ms, max_segments) values (%s, 3, %s, %s, '1 hour', 8, 300, 600, 20)",
                      name, policy, [c.v.name])


def config(dsn, port, courses, settings, timeout_ms):
    return {
        "database": dsn, "listen": f"127.0.0.1:{port}", "public_url": f"http://127.0.0.1:{port}",
        "in_flight": 400, "lease_s": 30, "poll_ms": 50, "settle_allowance_ms": 1000,
        "providers": {c.v.name: {
            "plugin": c.v.plugin, "in_flight": 8, "connect_timeout_ms": 2000, "timeout_ms": timeout_ms,
            **({"receipt_token": TOKEN} if c.reports else {}), "settings": s}
            for c, s in zip(courses, settings)}}


def box_of(variant, port):
    sets = dict(variant.sets)
    if variant.account_callback:
        sets["callback_url"] = f"http://127.0.0.1:{port}/receipts/{variant.name}/{TOKEN}"
    more = [f"--dialect-set={k}={v}" for k, v in sets.items()]
    return Sandbox("--dialect", variant.dialect or variant.plugin, "--identity=text", "--receipts=off",
                   "--drop-mode=close", "--keep-texts=2000", "--max-keys=10000", *more)


class Database:
    def __init__(self, cluster):
        self.cluster, self.name = cluster, cluster.migrated()
        self.dsn = cluster.dsn(self.name)

    def connect(self):
        return self.cluster.connect(self.dsn)


def run(cluster, variants, wanted=CASES, told=lambda *_: None, timeout_ms=TIMEOUT_MS):
    """({variant name: (caps, {case: (result, why)})}, the worker's log)"""
    db, wires, port = Database(cluster), Wires(), free_port()
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(box_of(v, port)) for v in variants]
        laid = [wires.lay(int(box.wait_address().rpartition(":")[2])) for box in boxes]
        settings = [v.settings(wire.url, box) for v, wire, box in zip(variants, laid, boxes)]
        said = claims([(v.plugin, s) for v, s in zip(variants, settings)])
        for v, caps in zip(variants, said):
            if "error" in caps:
                raise AssertionError(f"{v.name}: {caps['error']}")
        courses = [Course(v, place, caps, box, wire, db, token=TOKEN, wanted=wanted, told=told)
                   for place, (v, caps, box, wire) in enumerate(zip(variants, said, boxes, laid))]
        kinds(courses)
        worker = stack.enter_context(Worker(config(db.dsn, port, courses, settings, timeout_ms)).wait_ready())
        for c in courses:
            c.worker = worker
        threads = [threading.Thread(target=c.run, daemon=True) for c in courses]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        faults = [line for line in worker.log_text().splitlines() if "plugin_fault" in line]
        for c in courses:
            mine = [line for line in faults if f"provider={c.v.name} " in line]
            if mine:
                c.results["plugin fault"] = ("FAIL", mine[0])
        return {c.v.name: (c.caps, c.results) for c in courses}, worker.log_text()
