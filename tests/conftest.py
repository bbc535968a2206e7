"""Fixtures for end-to-end tests.

    cluster   one PostgreSQL for the whole run
    db        a fresh database at the newest schema: db.dsn, db.sql("select ..."), db.connect()
    sandbox   factory: sandbox("--latency-p50=20") -> Sandbox
    own_cluster  a PostgreSQL for this test alone, to be crashed and restarted
    worker    factory: worker(in_flight=8, providers={"main": {...}}) -> Worker, ready, for this
              db and the sandbox made last; None removes a key from the config

No test hangs: after LIMIT_S (or @pytest.mark.limit(seconds)) it fails where it stands."""

import os
import signal
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for _path in (ROOT, os.path.join(ROOT, "tests")):
    if _path not in sys.path:
        sys.path.insert(0, _path)

from tests.harness.cluster import Cluster  # noqa: E402
from tests.harness.procs import Sandbox, Worker, merged  # noqa: E402


LIMIT_S = 180


def _stop(_number, _frame):
    raise KeyboardInterrupt  # SystemExit would only fail the test that runs; this ends the session


def pytest_configure(config):
    signal.signal(signal.SIGTERM, _stop)
    config.addinivalue_line("markers", f"limit(seconds): fail after so long instead of {LIMIT_S} s")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    mark = item.get_closest_marker("limit")
    seconds = int(mark.args[0]) if mark else LIMIT_S

    def give_up(_number, _frame):
        pytest.fail(f"not done after {seconds} s")

    old = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


class Database:
    """One database of a cluster."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        self.dsn = cluster.dsn(name)
        self.tcp_dsn = cluster.dsn(name, tcp=True)

    def connect(self, autocommit=True):
        return self.cluster.connect(self.dsn, autocommit)

    def sql(self, text, *values):
        """Runs one statement in a connection of its own; the rows, if it gives any."""
        conn = self.connect()
        try:
            with conn.cursor() as cur:
                cur.execute(text, values or None)
                return cur.fetchall() if cur.description else None
        finally:
            conn.close()

    def one(self, text, *values):
        """The single value a statement gives."""
        rows = self.sql(text, *values)
        assert len(rows) == 1 and len(rows[0]) == 1, rows
        return rows[0][0]


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as pg:
        yield pg


@pytest.fixture
def own_cluster():
    """A PostgreSQL for this test alone, to be stopped, crashed and restarted."""
    with Cluster() as pg:
        yield pg


@pytest.fixture
def db(cluster):
    name = cluster.migrated()
    yield Database(cluster, name)
    cluster.dropdb(name)


def default_config(dsn, vendor_url):
    """A worker's config for tests: a short lease, so that a death is noticed in seconds."""
    return {
        "database": dsn,
        "listen": "127.0.0.1:0",
        "in_flight": 64,
        "lease_s": 5,
        "settle_allowance_ms": 500,
        "providers": {
            "main": {
                "plugin": "http",
                "in_flight": 64,
                "connect_timeout_ms": 500,
                "timeout_ms": 1000,
                "settings": {
                    "url": f"{vendor_url}/messages",
                    "method": "POST",
                    "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}",
                             "lane": "{{kind}}", "t": "{{created_ms}}"},
                    "dedup": {"header": "Idempotency-Key", "window_s": 86400},
                    "accepted": {"status": [200, 201, 202], "id": "/id"},
                },
            },
        },
    }


@pytest.fixture
def running():
    """Processes to stop when the test ends, the newest first."""
    processes = []
    yield processes
    for process in reversed(processes):
        process.stop()


@pytest.fixture
def sandbox(running):
    def start(*args):
        running.append(Sandbox(*args))
        return running[-1]
    return start


@pytest.fixture
def worker(request, db, running):
    """worker(wait=True, vendor=URL, database=Database, env={}, **config overrides)."""
    def start(*, wait=True, vendor=None, database=None, env=None, args=(), **overrides):
        if vendor is None:
            vendors = [p for p in running if isinstance(p, Sandbox)]
            assert vendors, "start a sandbox first, or name vendor="
            vendor = vendors[-1].url
        config = merged(default_config((database or db).dsn, vendor), overrides)
        process = Worker(config, env=env, args=args)
        running.append(process)
        return process.wait_ready() if wait else process
    return start


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the tail of every process's log."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for process in item.funcargs.get("running", []):
            report.sections.append((f"{process.name} {process.pid}", process.log_text()[-4000:]))
