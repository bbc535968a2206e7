"""A kind that moves to another lane leaves nothing behind (B3, S1): what was queued in the old lane is
sent from there, what is queued later goes the new way, and what is too late there expires."""

from tests.harness.faults import House, start
from tests.harness.procs import wait_until


def move(house, lane, kind="campaign"):
    house.sql("update postrider.kind set lane = %s where name = %s", lane, kind)


def lanes(house):
    return dict(house.sql("select lane, count(*) from postrider.message group by 1"))


def test_queued_before_the_move(cluster, running, sandbox):
    """No worker ran when the kind moved, twice: all three lanes are emptied."""
    house, box = House(cluster), sandbox()
    ids = house.load(5)
    for lane in (7, 9):
        move(house, lane)
        ids += house.load(5)
    assert lanes(house) == {2: 5, 7: 5, 9: 5}
    start(running, house, box)
    house.settled()
    assert house.states() == {"sent": 15}
    house.check(box, ids)


def test_moved_under_a_worker(cluster, running, sandbox):
    """The move comes while the worker sends; a transaction that began before it ends after it."""
    house, box = House(cluster), sandbox("--latency-p50=50")
    ids = house.load(40)
    late = cluster.connect(house.dsn, autocommit=False)
    cur = late.cursor()
    cur.execute("select postrider.send('+998901234567', 'Salom', kind => 'campaign')::text")
    ids.append(cur.fetchone()[0])
    worker = start(running, house, box)
    box.api("/wait?requests=4&timeout_ms=20000")
    move(house, 8)
    ids += house.load(4)
    wait_until(lambda: house.states().get("sent") == 44, 30, lambda: f"{house.states()}")
    late.commit()
    late.close()
    house.settled()
    assert house.states() == {"sent": 45} and worker.alive()
    house.check(box, ids)


def test_expires_in_the_old_lane(cluster, running, sandbox):
    """Too late for what waits there: it ends as `expired`, not as pending for ever."""
    house, box = House(cluster), sandbox()
    ids = house.load(3)
    house.sql("update postrider.message set expires_at = clock_timestamp()")
    move(house, 8)
    start(running, house, box)
    house.settled()
    assert house.states() == {"expired": 3}
    house.check(box, ids, lost=3)


def test_lanes_on_record(cluster):
    """A lane is on record once, and the lane the kind is in is none of its former ones."""
    house = House(cluster)
    for lane in (4, 2, 4, 4, 2, 5):
        move(house, lane)
    assert house.one("select former_lanes from postrider.kind where name = 'campaign'") == [2, 4]
    assert house.sql("select lane, former from postrider.kind_lanes where name = 'campaign'"
                     " order by former, lane") == [(5, False), (2, True), (4, True)]
