"""R11, R3, R12 at the wire: claims and settles whose answer never came, a COMMIT with a warning,
a listener that hears nothing (B3, B4, B5, B6, J4, J27, J55).

Each scenario has a database of its own and a proxy that cuts exactly there. The vendor counts: a
message whose claim was lost is asked for once, by a later claim."""

import pytest

from tests.harness.faults import House, requests_of, start
from tests.harness.pgproxy import PgProxy
from tests.harness.procs import Sandbox, wait_until

N = 12
CLAIM = r"postrider\.claim\("
SETTLE = r"postrider\.settle_sent\("

# name: (statement, action, options, does the server commit it?)
CUTS = {
    "claim, before its Sync": (CLAIM, "cut_before_sync", {}, False),  # B4
    "claim, inside its Sync": (CLAIM, "cut_inside", {"n": 3}, False),
    "claim, all of its answer": (CLAIM, "cut_after_sync", {}, True),  # B3
    "claim, by a reset": (CLAIM, "cut_after_sync", {"rst": True}, True),
    "claim, after two rows": (CLAIM, "cut_rows", {"n": 2}, True),  # B6
    "claim, inside a row": (CLAIM, "cut_bytes", {"n": 700}, True),
    "claim, before CommandComplete": (CLAIM, "cut_complete", {}, True),
    "claim, before ReadyForQuery": (CLAIM, "cut_ready", {}, True),
    "claim, with a FATAL": (CLAIM, "cut_after_sync", {"sqlstate": "57P01"}, True),
    "claim, into a hole": (CLAIM, "hole_after", {}, True),
    "claim, half into a hole": (CLAIM, "hole_before", {}, False),
    "claim, deadlock": (CLAIM, "error", {"sqlstate": "40P01"}, False),
    "claim, COMMIT with a warning": (CLAIM, "notice", {"sqlstate": "01000"}, True),  # R12
    "claim, warning at the end": (CLAIM, "notice_ready", {"sqlstate": "01000"}, True),
    "settle, before its Sync": (SETTLE, "cut_before_sync", {}, False),
    "settle, all of its answer": (SETTLE, "cut_after_sync", {}, True),  # B5
    "settle, before ReadyForQuery": (SETTLE, "cut_ready", {}, True),
    "settle, into a hole": (SETTLE, "hole_after", {}, True),
    "settle, deadlock": (SETTLE, "error", {"sqlstate": "40P01"}, False),
}


class Scenario:
    def __init__(self, cut, cluster, box, running):
        match, action, options, self.commits = CUTS[cut]
        self.cut, self.box, self.running = cut, box, running
        self.house = House(cluster)
        self.house.sql("delete from postrider.kind where name <> 'campaign'")
        # Before anything is decided from it, what a lost claim did is looked at in the table.
        self.ids = self.house.load(N)
        self.proxy = PgProxy(cluster.dir, cluster.port).start()
        self.rule = self.proxy.rule(match, action, **options)

    def begin(self):
        self.worker = start(self.running, self.house, self.box, dedup=False,
                            dsn=self.proxy.dsn(self.house.dsn), lease_s=30)

    def end(self):
        assert self.rule.wait_fired(1, 30), self.worker.log_text()[-2000:]
        self.house.settled(60)
        self.figures = self.worker.metrics()
        self.attempts = self.house.sql("select attempts, calls, doubts from postrider.message")
        self.records = self.house.one("select count(*) from postrider.attempt")
        self.asked = {i: requests_of(self.box, i) for i in self.ids}
        self.worker.process.terminate()


@pytest.fixture(scope="module")
def cuts(cluster):
    processes = []
    box = Sandbox("--latency-p50=5", "--dedup=off")
    processes.append(box)
    scenarios = [Scenario(cut, cluster, box, processes) for cut in CUTS]
    try:
        for s in scenarios:
            s.begin()
        for s in scenarios:
            s.end()
        for s in scenarios:
            s.code = s.worker.wait(20)
        yield {s.cut: s for s in scenarios}
    finally:
        for process in reversed(processes):
            process.stop()
        for s in scenarios:
            s.proxy.stop()


@pytest.mark.parametrize("cut", CUTS)
def test_lost_answer(cuts, cut):
    """B3 to B6, R11: nobody is asked twice, nothing is in doubt, the worker goes on by itself:
    the lease of 30 s is not what helped."""
    s = cuts[cut]
    assert s.asked == {i: 1 for i in s.ids}
    assert s.house.states() == {"sent": N}
    s.house.check(s.box, s.ids, lost=0)
    # A claim that was lost gave its attempt back; a settle that was stored twice counted once.
    assert s.attempts == [(1, 1, 0)] * N
    assert s.records == 0
    assert s.figures["postrider_duplicate_suspects_total"] == 0
    assert s.code == 0
    if cut.startswith("claim") and s.commits:
        # What was claimed and lost came back by its token, unsent.
        assert s.figures["postrider_given_back_total"] == 4
    elif cut.startswith("settle") and s.commits:
        assert 1 <= s.figures["postrider_settled_stale_total"] <= N  # the replay met its own deed
    else:
        assert s.figures["postrider_given_back_total"] == 0
        assert s.figures["postrider_settled_stale_total"] == 0


def test_claim_that_commits_after_its_release(cluster, running, sandbox):
    """R11: the claim hangs in the server while its connection is dead and its token is given back;
    it may not commit afterwards."""
    house = House(cluster)
    house.sql("delete from postrider.kind where name <> 'campaign'")
    box = sandbox("--latency-p50=5", "--dedup=off")
    ids = house.load(4)
    house.sql("""
        create function public.hang() returns trigger language plpgsql as $$
        begin perform pg_advisory_xact_lock(42); return new; end $$;
        create trigger hang before insert on postrider.claim for each row
        when (cardinality(new.ids) > 0) execute function public.hang()""")
    lock = cluster.connect(house.dsn, autocommit=False)
    with PgProxy(cluster.dir, cluster.port) as proxy:
        rule = proxy.rule(CLAIM, "cut_after_sync", wait=False)
        cur = lock.cursor()
        cur.execute("select pg_advisory_xact_lock(42)")
        worker = start(running, house, box, dedup=False, dsn=proxy.dsn(house.dsn), lease_s=30)

        def hanging():
            return house.one("select count(*) from pg_stat_activity where datname = %s"
                             " and wait_event = 'advisory'", house.name)
        wait_until(lambda: "claim_released" in worker.log_text(), 20, "the release")
        assert hanging() >= 1 and house.states() == {"pending": 4}
        lock.rollback()
        assert rule.wait_fired(1, 20)
        house.settled()
        assert {i: requests_of(box, i) for i in ids} == {i: 1 for i in ids}
        assert house.sql("select attempts, calls from postrider.message") == [(1, 1)] * 4
        house.check(box, ids, lost=0)
        running.pop().stop()
    lock.close()


def test_listener_in_a_hole(cluster, running, sandbox):
    """J55: the connection that listens is dead and nobody is told: a code that comes then is sent
    all the same, and once."""
    house = House(cluster)
    house.sql("delete from postrider.kind where name <> 'otp'")  # its claims go where it listens
    box = sandbox("--latency-p50=5")
    with PgProxy(cluster.dir, cluster.port) as proxy:
        worker = start(running, house, box, dsn=proxy.dsn(house.dsn), lease_s=30).wait_ready()
        first = house.send()
        box.api(f"/wait?key={first}&timeout_ms=10000")
        hole = proxy.rule(r"postrider\.claim\(", "hole_after")  # an idle look for codes, or the next
        assert hole.wait_fired(1, 10)
        keys = [first, house.send()]
        box.api(f"/wait?key={keys[1]}&timeout_ms=30000")
        house.settled()
        house.check(box, keys, lost=0)
        assert [requests_of(box, k) for k in keys] == [1, 1]
        assert 'connection=urgent why="the server fell silent"' in worker.log_text()
        running.pop().stop()


def test_answers_wait_out_a_hole(cluster, running, sandbox):
    """J28, J24: an answer that cannot be stored while its lease runs out is stored late: the other
    worker called it unknown, it becomes sent, and the counters moved once each way."""
    house = House(cluster)
    house.sql("delete from postrider.kind where name <> 'campaign'")
    box = sandbox("--latency-p50=300", "--dedup=off")
    ids = house.load(4)
    with PgProxy(cluster.dir, cluster.port) as proxy:
        first = start(running, house, box, dedup=False, dsn=proxy.dsn(house.dsn))
        box.api("/wait?requests=4&timeout_ms=10000")
        proxy.pause()
        wait_until(lambda: first.metrics()["postrider_unsettled"] == 4, 10, "4 answers in memory")
        start(running, house, box, dedup=False)
        wait_until(lambda: house.states() == {"unknown": 4}, 30, lambda: f"{house.states()}")
        house.check(box, ids, lost=0)
        proxy.resume()
        wait_until(lambda: house.states() == {"sent": 4}, 40, lambda: f"{house.states()}")
        wait_until(lambda: first.metrics()["postrider_late_news_total"] == 4, 10, "the late news")
        house.check(box, ids, lost=0)
        assert box.api("/stats")["requests"] == 4
        assert house.sql("select doubts, vendor_id is not null from postrider.message") == \
            [(0, True)] * 4
        for _ in range(2):
            assert running.pop().stop() == 0
