"""A worker dies at every step of a message's way; another goes on (U1, U2, U4, D7, D14, S1, J16,
J17, A1 to A8).

Against a vendor that de-duplicates nothing is lost and nothing doubled. Against one that does not,
under `hold`, nothing is doubled, and what was in the dead worker's hands is `unknown`: exactly
that many, and nothing else."""

import random
import signal

import pytest

from tests.harness.faults import House, armed, start
from tests.harness.procs import Sandbox

N = 16  # messages of each scenario
IN_FLIGHT = 4  # what a worker has in its hands

# Where it dies, at which pass, and what the world looks like then: messages in its hands
# (committed `sending`; None: as many as it is), and at least and at most how many of those a phone
# has. Only one lane is used, so that the first claim is one with rows.
POINTS = [
    ("claim_unsent", 1, 0, (0, 0)),  # A1: nothing happened
    ("claim_sent", 1, IN_FLIGHT, (0, 0)),  # A2: the server commits, nobody reads it
    ("claim_committed", 1, IN_FLIGHT, (0, 0)),  # A2
    ("call_unstarted", 1, IN_FLIGHT, (0, 0)),  # A2
    ("call_unstarted", 3, IN_FLIGHT, (0, 2)),  # A8: two of the batch were handed to libcurl
    ("call_permitted", 1, IN_FLIGHT, (0, 0)),  # A3: permitted, not a byte was written
    ("call_permitted", 3, IN_FLIGHT, (0, 2)),  # A8
    ("reply_unjudged", 1, IN_FLIGHT, (1, IN_FLIGHT)),  # A4, A6
    ("settle_unsent", 1, None, (1, 2 * IN_FLIGHT)),  # A6
    ("settle_sent", 1, None, (0, 2 * IN_FLIGHT)),  # A7: some are stored, the others are not
    ("settle_committed", 1, None, (0, 2 * IN_FLIGHT)),  # A7, A8: between two settles of a batch
    ("settle_committed", 2, None, (0, 2 * IN_FLIGHT)),
]


def name_of(point):
    return f"{point[0]}:{point[1]}"


class Scenario:
    """One database in which one worker dies at one point."""

    def __init__(self, point, cluster, sandbox, dedup, running):
        self.point, self.sandbox, self.dedup, self.running = point, sandbox, dedup, running
        self.house = House(cluster)
        self.house.sql("delete from postrider.kind where name <> 'campaign'")
        self.ids = self.house.load(N)
        self.first = self.second = None
        self.held = self.stored = self.at_phones = None

    def begin(self):
        self.first = start(self.running, self.house, self.sandbox, dedup=self.dedup,
                           in_flight=IN_FLIGHT, env=armed(self.point[0], "kill", self.point[1]))

    def look(self):
        """What the dead worker left."""
        assert self.first.wait(20) == -signal.SIGKILL, self.first.log_text()[-2000:]
        self.house.left_alone()
        self.held, self.stored = self.house.ids("sending"), self.house.ids("sent")
        verdict = self.sandbox.api("/missing", "POST", "\n".join(self.held).encode()) \
            if self.held else {"delivered": 0}
        self.at_phones = verdict["delivered"]

    def go_on(self):
        self.second = start(self.running, self.house, self.sandbox, dedup=self.dedup,
                            in_flight=IN_FLIGHT)


def play(cluster, dedup):
    """All scenarios side by side: each waits for a lease to end."""
    processes = []
    try:
        # the answers come one by one: a batch has several settles
        sandbox = Sandbox("--latency-p50=15", "--latency-p99=120",
                          f"--dedup={'on' if dedup else 'off'}")
        processes.append(sandbox)
        scenarios = [Scenario(p, cluster, sandbox, dedup, processes) for p in POINTS]
        for step in ("begin", "look", "go_on"):
            for s in scenarios:
                getattr(s, step)()
        for s in scenarios:
            s.house.settled(40)
        yield {name_of(s.point): s for s in scenarios}
        for s in scenarios:
            s.second.kill(signal.SIGTERM)
        for s in scenarios:
            assert s.second.wait(20) == 0
    finally:
        for process in reversed(processes):
            process.stop()


@pytest.fixture(scope="module")
def with_dedup(cluster):
    yield from play(cluster, True)


@pytest.fixture(scope="module")
def without_dedup(cluster):
    yield from play(cluster, False)


def check_left(s):
    """The world at the moment of death was what the point promises."""
    _, _, held, (least, most) = s.point
    if held is None:  # an answer makes room for the next claim before it is stored
        assert bool(s.stored) == (s.point[0] != "settle_unsent")
        assert len(s.held) <= 2 * IN_FLIGHT
    else:
        assert len(s.held) == held and not s.stored
    assert least <= s.at_phones <= most


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_dead_worker_vendor_dedups(with_dedup, point):
    """U4, D7, J17: all sent, none lost, none doubled."""
    s = with_dedup[name_of(point)]
    check_left(s)
    assert s.house.states() == {"sent": N}
    s.house.check(s.sandbox, s.ids, lost=0)


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_dead_worker_hold(without_dedup, point):
    """U1, U2, U4, D7, S1, J16: none doubled; what was in its hands is unknown, none is failed."""
    s = without_dedup[name_of(point)]
    check_left(s)
    expected = {"sent": N - len(s.held), "unknown": len(s.held)}
    assert s.house.states() == {k: v for k, v in expected.items() if v}
    assert s.house.ids("unknown") == s.held
    s.house.check(s.sandbox, s.ids, lost=len(s.held) - s.at_phones)
    # why it is in doubt is on record, an attempt a message (L9)
    rows = s.house.sql("select message_id::text, outcome::text, phase, code from postrider.attempt")
    assert sorted(rows) == sorted((i, "unknown", "lost", "worker lost") for i in s.held)


def test_kill_with_eight_in_the_air(cluster, running, sandbox):
    """U1: killed with 8 in flight, the table reads unknown 8, failed 0, each taken once."""
    house = House(cluster)
    house.sql("update postrider.kind set reserved = 0")  # all eight places for the campaign
    box = sandbox("--latency-p50=1800", "--dedup=off")
    ids = house.load(8)
    first = start(running, house, box, dedup=False, in_flight=8,
                  providers={"main": {"in_flight": 8}})
    box.api("/wait?requests=8&timeout_ms=15000")
    first.kill()
    house.left_alone()
    assert house.states() == {"sending": 8}
    start(running, house, box, dedup=False)
    house.settled()
    assert house.states() == {"unknown": 8}
    assert house.check(box, ids, lost=0) == set()
    assert box.api("/stats")["requests"] == 8


@pytest.mark.parametrize("dedup", [True, False], ids=["dedup", "hold"])
def test_sweeper_dies(cluster, running, sandbox, dedup):
    """J13, U4: a worker dies while it judges what another dead one left: a third does it."""
    house = House(cluster)
    box = sandbox("--latency-p50=1500", f"--dedup={'on' if dedup else 'off'}")
    ids = house.load(4)
    first = start(running, house, box, dedup=dedup)
    box.api("/wait?requests=4&timeout_ms=15000")
    first.kill()
    box.api("/knobs", "PUT", {"latency_p50": 5})
    second = start(running, house, box, dedup=dedup, env=armed("sweep_unsettled"))
    third = start(running, house, box, dedup=dedup, env=armed("sweep_unsettled"))
    # Both may come to the same claim in the same moment; either dies at its first.
    assert second.wait(30) == third.wait(30) == -signal.SIGKILL
    house.left_alone()
    assert house.states() == {"sending": 4}
    start(running, house, box, dedup=dedup)
    house.settled()
    assert house.states() == ({"sent": 4} if dedup else {"unknown": 4})
    house.check(box, ids, lost=0)


KILLS = 50


class Storm:
    """One database whose worker is killed again and again."""

    def __init__(self, cluster, running, dedup, seed):
        self.box = Sandbox("--latency-p50=15", "--latency-p99=60",
                           f"--dedup={'on' if dedup else 'off'}")
        running.append(self.box)
        self.house = House(cluster)
        self.ids = self.house.load(1000)
        self.running, self.dedup = running, dedup
        self.dice = random.Random(seed)
        self.idle = 0

    def begin(self):
        worker = start([], self.house, self.box, dedup=self.dedup, in_flight=2, listen=None)
        self.running.append(worker)
        return worker


@pytest.mark.limit(170)
def test_fifty_kills_at_random_moments(cluster, running):
    """D7, D14: 1,000 messages, 50 kills at moments nobody chose, with and without a vendor that
    de-duplicates: lost 0, doubled 0; unknown = what was in the air at the kills."""
    storms = [Storm(cluster, running, True, 7), Storm(cluster, running, False, 11)]
    for _ in range(KILLS):
        workers = [s.begin() for s in storms]
        for s, worker in zip(storms, workers):
            seen = s.box.api("/stats")["requests"]
            more = s.dice.randint(1, 12)
            try:  # so many calls, then a moment more
                s.box.http(f"/api/wait?requests={seen + more}&timeout_ms=3000")
            except OSError:
                pass
            wait_for = s.dice.uniform(0, 0.03)
            signal.sigtimedwait([], wait_for)
            worker.kill()
            running.remove(worker)
    for s in storms:
        s.house.left_alone()
        s.held = s.house.ids("sending")
        assert s.house.ids("pending"), "the last worker still had work"
        start(running, s.house, s.box, dedup=s.dedup, in_flight=50,
              providers={"main": {"in_flight": 50}})
    for s in storms:
        s.house.settled(60)
    certain, doubtful = storms
    assert certain.house.states() == {"sent": 1000}
    certain.house.check(certain.box, certain.ids, lost=0)
    states = doubtful.house.states()
    assert states.get("unknown", 0) >= len(doubtful.held)
    assert set(states) <= {"sent", "unknown"} and sum(states.values()) == 1000
    # each kill stopped two calls at most, and caught two answers at most before they were stored
    assert KILLS / 4 <= states["unknown"] <= KILLS * 4
    doubtful.house.check(doubtful.box, doubtful.ids, lost=None)
    assert doubtful.box.api("/stats")["requests"] <= 1000
