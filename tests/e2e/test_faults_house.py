"""Whose database is this, and are its commits durable? (R12; D15, B2, B17)"""

from tests.harness.cluster import Cluster
from tests.harness.faults import House, requests_of, start
from tests.harness.procs import wait_until


def cautious(worker):
    """It says so, in its log and to whoever asks whether it is ready."""
    wait_until(lambda: "event=cautious" in worker.log_text(), 20, "a word in the log")
    assert "not the database that was adopted" in worker.log_text()
    wait_until(lambda: worker.http("/readyz")[0] == 503, 10, "not ready")
    assert b"adopt" in worker.http("/readyz")[1]


def settled_down(worker):
    """It lives, looks again and again, and claims nothing."""
    up = worker.metrics()["postrider_uptime_seconds"]
    wait_until(lambda: worker.metrics()["postrider_uptime_seconds"] > up + 3, 20, "three seconds")
    assert worker.metrics()["postrider_claims_total"] == 0


def test_another_identity(cluster, running, sandbox):
    """B17: the identity on record is another's: nothing is sent until somebody adopts."""
    house = House(cluster)
    box = sandbox()
    keys = house.load(5)
    keys.append(house.send())
    house.sql("update postrider.installation set identity = 'system=1 timeline=00000001 database=1'")
    worker = start(running, house, box)
    cautious(worker)
    settled_down(worker)
    assert house.states() == {"pending": 6} and box.api("/stats")["requests"] == 0
    before = house.one("select count(*) from postrider.operator_log where action = 'adopt'")
    house.sql("select postrider.adopt()")
    house.settled()
    house.check(box, keys, lost=0)
    assert worker.http("/readyz")[0] == 200
    assert house.one("select count(*) from postrider.operator_log where action = 'adopt'") == before + 1


def test_copy_of_a_database(cluster, running, sandbox):
    """D15: a copy in which messages are due and one is being sent: the copy sends nothing until it
    is adopted, while the original goes on."""
    house = House(cluster)
    box, other_box = sandbox("--latency-p50=5"), sandbox("--latency-p50=5")
    keys = house.load(8)
    house.close()
    copy = House(cluster, cluster.createdb(template=house.name))
    first = start(running, house, box)
    second = start(running, copy, other_box)
    house.settled()
    house.check(box, keys, lost=0)
    cautious(second)
    settled_down(second)
    assert copy.states() == {"pending": 8}
    assert other_box.api("/stats")["requests"] == 0
    copy.sql("select postrider.adopt()")
    copy.settled()
    assert {i: requests_of(other_box, i) for i in keys} == {i: 1 for i in keys}
    assert "cautious" not in first.log_text()


def held_back(cluster, running, sandbox):
    house = House(cluster)
    box = sandbox()
    campaign = house.load(3)
    code = house.send("otp")
    worker = start(running, house, box)
    box.api(f"/wait?key={code}&timeout_ms=20000")
    wait_until(lambda: house.ids("sent") == {code}, 20, "the code to be settled")
    settled_down_but_codes(worker, house, campaign)
    assert "not_durable" in worker.log_text()
    return house, box, campaign + [code]


def settled_down_but_codes(worker, house, campaign):
    up = worker.metrics()["postrider_uptime_seconds"]
    wait_until(lambda: worker.metrics()["postrider_uptime_seconds"] > up + 2, 20, "two seconds")
    assert house.ids("pending") == set(campaign)


def test_commits_that_do_not_wait(cluster, running, sandbox):
    """B2: with synchronous_commit off at most once is no promise: `hold` waits, codes do not."""
    name = cluster.migrated()
    cluster.run(f"alter database {name} set synchronous_commit = off")
    house = House(cluster, name)
    house.sql("select postrider.adopt()")
    house.close()

    class Same:
        """Lets held_back() use this database."""
        dsn, connect, migrated = cluster.dsn, cluster.connect, staticmethod(lambda: name)

    house, box, keys = held_back(Same, running, sandbox)
    house.sql(f"alter database {name} reset synchronous_commit")
    house.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
              " and application_name like 'postrider/%%'", name)
    house.settled()
    house.check(box, keys, lost=0)


def test_without_fsync(running, sandbox):
    """B2: the same without fsync."""
    with Cluster(fsync=False) as pg:
        held_back(pg, running, sandbox)
        running[-1].stop()
