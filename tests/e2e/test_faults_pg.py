"""PostgreSQL goes away in every way it can (B1, B2, B8, B12, B13, D6, L7, J28, J65, J66, J67, J71).

The worker never exits, never asks the vendor twice, and goes on by itself."""

import pytest

from tests.harness.cluster import Cluster
from tests.harness.faults import House, requests_of, start
from tests.harness.pgproxy import PgProxy
from tests.harness.procs import wait_until


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL to be mistreated."""
    with Cluster() as pg:
        yield pg


def goes_on(house, box):
    """A code committed now reaches the phone."""
    key = house.send()
    box.api(f"/wait?key={key}&timeout_ms=30000")
    return key


def test_ten_crashes_under_load(server, running, sandbox):
    """B1, J66, L7: ten times an immediate stop and a restart under load with two workers; every
    message whose insert was acknowledged arrives, once."""
    house = House(server)
    box = sandbox("--latency-p50=20", "--latency-p99=100")
    keys = house.load(400)
    workers = [start(running, house, box) for _ in range(2)]
    pids = [w.pid for w in workers]
    for _ in range(10):
        keys.append(goes_on(house, box))  # the rate has returned
        wait_until(lambda: "sending" in house.states() or "pending" not in house.states(), 20,
                   "calls in the air")
        server.immediate()
        house.close()
        keys += house.load(5)
    house.settled(90)
    assert house.states() == {"sent": len(keys)}
    house.check(box, keys, lost=0)
    assert [w.pid for w in workers if w.alive()] == pids
    assert all(w.http("/readyz")[0] == 200 for w in workers)


def test_outage_with_answers_in_hand(server, running, sandbox):
    """J28, J65: answers that come while the database is away, longer than their lease lasts, are
    stored when it is back; nobody is asked twice and nothing is called unknown."""
    house = House(server)
    box = sandbox("--latency-p50=700", "--dedup=off")
    keys = house.load(40)
    worker = start(running, house, box, dedup=False, in_flight=20,
                   providers={"main": {"in_flight": 20}})
    other = start(running, house, box, dedup=False, in_flight=1)
    box.api("/wait?requests=10&timeout_ms=20000")
    server.stop("immediate")
    wait_until(lambda: worker.metrics()["postrider_unsettled"] >= 5, 20, "answers in memory")
    held = worker.metrics()["postrider_unsettled"]
    # The gap shows, and the answers outlive their lease.
    wait_until(lambda: worker.http("/readyz")[0] == 503, 20, "the gap to show")
    wait_until(lambda: worker.metrics()["postrider_oldest_unsettled_seconds"] > 12, 30,
               "the outage to outlast two leases")
    assert worker.metrics()["postrider_unsettled"] >= held
    assert worker.http("/healthz")[0] == 503  # S6: no claim succeeds
    server.start()
    house.close()
    house.settled(60)
    assert house.states() == {"sent": len(keys)}
    house.check(box, keys, lost=0)
    assert box.api("/stats")["requests"] == len(keys)
    assert worker.alive() and other.alive()
    wait_until(lambda: worker.http("/healthz")[0] == 200, 20, "health")


def test_boot_without_database(server, running, sandbox):
    """J67: started while the database is away it waits, says that it is not ready, and serves."""
    house = House(server)
    box = sandbox()
    keys = house.load(5)
    house.close()
    server.stop()
    worker = start(running, house, box)
    worker.wait_address()
    assert worker.http("/readyz")[0] == 503
    wait_until(lambda: "database_down" in worker.log_text(), 20, "a word about it")
    server.start()
    house.settled()
    house.check(box, keys, lost=0)
    assert worker.http("/readyz")[0] == 200


def test_backends_killed(server, running, sandbox):
    """B8: every session of the worker is terminated, again and again."""
    house = House(server)
    box = sandbox("--latency-p50=20", "--latency-p99=80", "--dedup=off")
    keys = house.load(200)
    worker = start(running, house, box, dedup=False, lease_s=30)
    for _ in range(4):
        wait_until(lambda: house.backends() == 4, 20, "four sessions")
        seen = box.api("/stats")["requests"]
        house.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
                  " and application_name like 'postrider/%%'", house.name)
        if "pending" in house.states():
            box.api(f"/wait?requests={seen + 2}&timeout_ms=20000")
    house.settled()
    assert house.states() == {"sent": 200}
    house.check(box, keys, lost=0)
    assert box.api("/stats")["requests"] == 200
    assert worker.alive()


def test_out_of_connections(server, running, sandbox):
    """B12: the role's connections are used up (53300): no exit, no loss, no storm of attempts; and
    the role that the migrations made for workers is enough to do all of it."""
    house = House(server)
    role = f"w_{house.name}"
    house.sql(f"create role {role} login in role postrider_worker connection limit 2")
    box = sandbox()
    keys = house.load(20)
    dsn = house.dsn.replace("user=postgres", f"user={role}")
    worker = start(running, house, box, dsn=dsn)
    wait_until(lambda: "too many connections" in worker.log_text(), 20, "the refusal")
    mark = house.one("select count(*) from pg_stat_activity where usename = %s", role)
    assert mark <= 2
    house.sql(f"alter role {role} connection limit 8")
    house.settled()
    house.check(box, keys, lost=0)
    assert worker.alive()
    assert worker.log_text().count("database_down") <= 8  # the same words are said once


def test_read_only(server, running, sandbox):
    """D6, J71: the database turns read-only while messages wait: no request is made, since no
    attempt could be recorded; what was in the air is stored when it is writable again."""
    house = House(server)
    box = sandbox("--latency-p50=600", "--dedup=off")
    keys = house.load(12)
    worker = start(running, house, box, dedup=False, lease_s=30)
    box.api("/wait?requests=4&timeout_ms=20000")
    house.sql("alter system set default_transaction_read_only = on")
    house.sql("select pg_reload_conf()")
    try:
        wait_until(lambda: "sqlstate=25006" in worker.log_text(), 20, "a refused claim")
        wait_until(lambda: worker.metrics()['postrider_in_air{provider="main"}'] == 0, 20,
                   "the answers")
        asked = box.api("/stats")["requests"]
        # with as many answers unstored as calls allowed nothing more is claimed; the rest goes on
        refused = worker.log_text().count("sqlstate=25006")
        wait_until(lambda: worker.log_text().count("sqlstate=25006") >= refused + 3, 20, "more refusals")
        assert box.api("/stats")["requests"] == asked
        assert worker.metrics()["postrider_unsettled"] >= 1
    finally:
        house.close()
        conn = server.connect()
        cur = conn.cursor()
        cur.execute("set default_transaction_read_only = off")
        cur.execute("alter system reset default_transaction_read_only")
        cur.execute("select pg_reload_conf()")
        conn.close()
    house.settled()
    assert house.states() == {"sent": 12}
    house.check(box, keys, lost=0)
    assert box.api("/stats")["requests"] == 12


def test_statement_timeout(server, running, sandbox):
    """B13: statements run into the role's statement_timeout behind somebody's lock: known not to
    have committed, so tried again; nothing twice."""
    house = House(server)
    role = f"s_{house.name}"
    house.sql(f"create role {role} login in role postrider_worker")
    house.sql(f"alter role {role} set statement_timeout = '300ms'")
    box = sandbox("--latency-p50=300", "--dedup=off")
    keys = house.load(12)
    worker = start(running, house, box, dedup=False, lease_s=30,
                   dsn=house.dsn.replace("user=postgres", f"user={role}"))
    box.api("/wait?requests=4&timeout_ms=20000")
    lock = server.connect(house.dsn, autocommit=False)
    lock.cursor().execute("lock table postrider.counter_delta in share mode")
    wait_until(lambda: worker.log_text().count("57014") >= 3, 20, "statements cut short")
    asked = box.api("/stats")["requests"]
    assert asked <= 8
    lock.rollback()
    lock.close()
    house.settled()
    assert house.states() == {"sent": 12}
    house.check(box, keys, lost=0)
    assert box.api("/stats")["requests"] == 12


def test_deadlock_victim(server, running, sandbox):
    """B13: claims and settles that the server chose as deadlock victims (40P01) are tried again."""
    house = House(server)
    box = sandbox("--dedup=off")
    keys = house.load(40)
    with PgProxy(server.dir, server.port) as proxy:
        rules = [proxy.rule(r"postrider\.claim\(", "error", 3, skip=4, sqlstate="40P01"),
                 proxy.rule(r"postrider\.settle", "error", 3, sqlstate="40P01")]
        start(running, house, box, dedup=False, lease_s=30, dsn=proxy.dsn(house.dsn))
        house.settled()
        assert all(r.fired == 3 for r in rules)
        assert {i: requests_of(box, i) for i in keys} == {i: 1 for i in keys}
        house.check(box, keys, lost=0)
        running.pop().stop()
