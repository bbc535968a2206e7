"""How a worker leaves, and how it takes a new configuration (A12 to A15, J6, J64, J72 to J76)."""

import json
import re
import signal

import pytest

from tests.harness.cluster import Cluster
from tests.harness.faults import House, armed, config, no_dedup, requests_of, start, stopped, thaw
from tests.harness.pgproxy import PgProxy
from tests.harness.procs import merged, wait_until


def term(worker):
    worker.process.send_signal(signal.SIGTERM)


def test_drain(cluster, running, sandbox):
    """A12, J72, J74: calls in the air end and are stored; nothing more is claimed; exit 0."""
    house = House(cluster)
    box = sandbox("--latency-p50=800", "--dedup=off")
    keys = house.load(20)
    worker = start(running, house, box, dedup=False)
    box.api("/wait?requests=4&timeout_ms=20000")
    term(worker)
    wait_until(lambda: "event=draining" in worker.log_text(), 10, "the drain to begin")
    assert worker.http("/readyz")[0] == 503
    assert worker.wait(20) == 0
    assert house.states() == {"sent": 4, "pending": 16}
    # J72: what still waits was never claimed
    assert house.sql("select distinct token, attempts from postrider.message"
                     " where state = 'pending'") == [(0, 0)]
    assert house.one("select count(*) from postrider.claim") == 0
    house.check(box, keys, lost=16)
    assert "STOPPING=1" in worker.notified()
    assert house.one("select count(*) from postrider.worker where stopped_at is not null") == 1


def test_drain_gives_back(cluster, running, sandbox):
    """A12, J75: rows that were claimed and never begun come back with attempt and due time."""
    house = House(cluster)
    house.sql("delete from postrider.kind where name <> 'campaign'")
    box = sandbox()
    keys = house.load(4)
    before = house.sql("select id, due, attempts from postrider.message order by id")
    worker = start(running, house, box, env=armed("claim_sent", "stop"))
    wait_until(lambda: stopped(worker) and house.states() == {"sending": 4}, 20, "the claim")
    term(worker)
    thaw(worker)
    assert worker.wait(20) == 0
    assert house.sql("select id, due, attempts from postrider.message order by id") == before
    assert house.sql("select distinct calls, doubts from postrider.message") == [(0, 0)]
    assert house.one("select count(*) from postrider.claim") == 0
    assert box.api("/stats")["requests"] == 0
    house.check(box, keys, lost=4)


@pytest.mark.parametrize("how", ["second signal", "limit"])
def test_leaving_early(cluster, running, sandbox, how):
    """A13, J73: a second SIGTERM, or the drain's limit, ends the calls: each is stored as unknown,
    and the exit code says that something was cut off."""
    house = House(cluster)
    box = sandbox("--latency-p50=20000", "--dedup=off")
    keys = house.load(6)
    worker = start(running, house, box, dedup=False, lease_s=60, drain_s=1 if how == "limit" else 60,
                   providers={"main": {"timeout_ms": 30000}})
    box.api("/wait?requests=4&timeout_ms=20000")
    term(worker)
    if how == "second signal":
        wait_until(lambda: "event=draining" in worker.log_text(), 10, "the drain to begin")
        term(worker)
    assert worker.wait(15) == 1
    assert house.states() == {"unknown": 4, "pending": 2}
    assert house.one("select count(*) from postrider.claim") == 0
    assert house.sql("select distinct outcome::text, phase from postrider.attempt") == \
        [("unknown", "sent")]
    house.check(box, keys, lost=2)
    assert re.search(r"event=stopped cut_off=4", worker.log_text())


def unstored(worker):
    """{id: vendor id} of the answers it logged as not stored."""
    return dict(re.findall(r"event=unstored id=(\S+) token=\d+ outcome=accepted vendor_id=(\S+)",
                           worker.log_text()))


def test_leaving_without_database(running, sandbox):
    """J64, J74: SIGTERM while the database is down: the answers that could not be stored are in
    the log, one a line, and the exit code says so."""
    with Cluster() as pg:
        house = House(pg)
        box = sandbox("--latency-p50=700", "--dedup=off")
        keys = house.load(4)
        worker = start(running, house, box, dedup=False, drain_s=2)
        box.api("/wait?requests=4&timeout_ms=20000")
        house.close()
        pg.stop("immediate")
        wait_until(lambda: worker.metrics()["postrider_unsettled"] == 4, 10, "4 answers")
        term(worker)
        assert worker.wait(20) == 1
        told = unstored(worker)
        assert told == {k: requests_id(box, k) for k in keys}
        pg.start()
        assert house.states() == {"sending": 4}
        start(running, house, box, dedup=False)
        house.settled()
        assert house.states() == {"unknown": 4}
        assert box.api("/stats")["requests"] == 4
        running.pop().stop()


def requests_id(box, key):
    return box.api(f"/ledger/{key}")["id"]


def test_leaving_while_the_database_is_silent(cluster, running, sandbox):
    """J74: the same when the settle was sent and no answer comes."""
    house = House(cluster)
    box = sandbox("--latency-p50=300", "--dedup=off")
    keys = house.load(4)
    with PgProxy(cluster.dir, cluster.port) as proxy:
        worker = start(running, house, box, dedup=False, drain_s=2, dsn=proxy.dsn(house.dsn))
        box.api("/wait?requests=4&timeout_ms=20000")
        proxy.pause()
        wait_until(lambda: worker.metrics()["postrider_unsettled"] == 4, 10, "4 answers")
        term(worker)
        assert worker.wait(20) == 1
        proxy.resume()
    assert unstored(worker) == {k: requests_id(box, k) for k in keys}


# ---- SIGHUP ----------------------------------------------------------------------------------


def settings(house, box, **over):
    return merged(merged(config(house.dsn, box.url), no_dedup()), over)


def reloaded(worker, text, word):
    seen = worker.log_text().count(f"event={word}")
    worker.config.write_text(text)
    worker.reload()
    wait_until(lambda: worker.log_text().count(f"event={word}") > seen, 20, word)


def test_reload(cluster, running, sandbox):
    """A14, A15: a new limit and a new timeout hold from the next call on; a broken file changes
    nothing and is named."""
    house = House(cluster)
    box = sandbox("--latency-p50=400", "--dedup=off")
    keys = house.load(40)
    worker = start(running, house, box, dedup=False, in_flight=2)
    box.api("/wait?requests=4&timeout_ms=20000")
    assert box.api("/stats")["max_in_air"] == 2
    reloaded(worker, '{"in_flight": 8, "providers": ', "reload_refused")
    reloaded(worker, json.dumps(settings(house, box, in_flihgt=8)), "reload_refused")
    assert "in_flight" in worker.log_text().split("event=reload_refused")[-1]  # the near word
    asked = box.api("/stats")["requests"]
    box.api(f"/wait?requests={asked + 4}&timeout_ms=20000")
    assert box.api("/stats")["max_in_air"] == 2
    reloaded(worker, json.dumps(settings(house, box, in_flight=8,
                                         providers={"main": {"in_flight": 8}})), "reloaded")
    wait_until(lambda: box.api("/stats")["max_in_air"] == 7, 20,
               "eight in the air, less the place kept for codes")
    reloaded(worker, json.dumps(settings(house, box, in_flight=8, providers={
        "main": {"in_flight": 8, "timeout_ms": 100, "connect_timeout_ms": 100}})), "reloaded")
    house.settled()
    states = house.states()
    assert states["unknown"] > 0 and states["sent"] + states["unknown"] == 40
    assert house.sql("select distinct code from postrider.attempt") == [("timeout",)]
    house.check(box, keys, lost=None)
    assert worker.alive() and worker.http("/readyz")[0] == 200


def test_provider_changed_in_flight(cluster, running, sandbox):
    """A14: the vendor's address changes in the file while it is being called: its calls end by the
    rules they left with, what follows goes to the new one. A provider cannot vanish: the file that
    forgets it is refused by name, and the old one stays in force."""
    house = House(cluster)
    old, new = sandbox("--latency-p50=1500", "--dedup=off"), sandbox("--latency-p50=5", "--dedup=off")
    keys = house.load(12)
    worker = start(running, house, old, dedup=False)
    old.api("/wait?requests=4&timeout_ms=20000")
    other = settings(house, new)
    gone = dict(other, providers={"other": other["providers"]["main"]})
    reloaded(worker, json.dumps(gone), "reload_refused")
    assert 'main' in worker.log_text().split("event=reload_refused")[-1]
    reloaded(worker, json.dumps(other), "reloaded")
    house.settled()
    assert house.states() == {"sent": 12}
    # a call may have begun between the fourth and the reload
    assert 4 <= old.api("/stats")["requests"] <= 8
    for k in keys:
        assert requests_of(old, k) + requests_of(new, k) == 1
    assert house.one("select count(*) from postrider.attempt") == 0
    house.counters_agree()
    assert worker.alive()
