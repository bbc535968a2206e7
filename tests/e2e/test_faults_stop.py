"""A worker stands still for two leases and wakes up (A9, A10, D10, J2, J4, J24, L9).

Another judges what it held; the woken one must start nothing, and what it still learns is news of
attempts that are no longer its own: it may turn `unknown` into `sent`, and moves no counter twice."""

import time

import pytest

from tests.harness.faults import LEASE_S, House, armed, freeze, requests_of, start, stopped, thaw
from tests.harness.procs import Sandbox, wait_until

N = 12
IN_FLIGHT = 4

# Where it stops, and how many of its messages it can prove, once awake, not to have sent: at least,
# and at most. Such a proof clears the doubt, and the message is claimed afresh.
POINTS = {
    "claim_committed": (IN_FLIGHT, IN_FLIGHT),  # A9: rows in hand, none begun
    "call_unstarted": (IN_FLIGHT, IN_FLIGHT),  # A9: the first is built, the gate comes after the wake
    "call_permitted": (IN_FLIGHT - 1, IN_FLIGHT - 1),  # A10: the one behind the gate may have gone
    "reply_unjudged": (0, IN_FLIGHT - 1),
    "settle_unsent": (0, IN_FLIGHT),  # the next claim is in hand already
    "in the air": (0, 0),  # D10: from outside, all four waiting for their answer
}


class Scenario:
    def __init__(self, point, cluster, sandbox, dedup, running):
        self.point, self.box, self.dedup, self.running = point, sandbox, dedup, running
        self.house = House(cluster)
        self.house.sql("delete from postrider.kind where name <> 'campaign'")
        self.ids = self.house.load(N)
        self.first = self.second = self.held = self.before = None

    def begin(self):
        env = None if self.point == "in the air" else armed(self.point, "stop")
        self.first = start(self.running, self.house, self.box, dedup=self.dedup,
                           in_flight=IN_FLIGHT, env=env)

    def stop(self):
        if self.point == "in the air":
            wait_until(lambda: len(self.house.ids("sending")) == IN_FLIGHT, 20, "a claim")
            wait_until(lambda: sum(requests_of(self.box, i)
                                   for i in self.house.ids("sending")) == IN_FLIGHT, 20, "4 calls")
            freeze(self.first)
        wait_until(lambda: stopped(self.first), 20, lambda: f"{self.point} to be reached\n"
                   + self.first.log_text()[-2000:])
        self.stopped_at = time.monotonic()
        self.held = self.house.ids("sending")
        self.second = start(self.running, self.house, self.box, dedup=self.dedup,
                            in_flight=IN_FLIGHT)

    def taken_over(self):
        self.house.settled(40)
        self.before = self.house.states()

    def wake(self):
        # Two leases, no less: time itself is the fault that is injected here.
        wait_until(lambda: time.monotonic() - self.stopped_at > 2 * LEASE_S, 30, "two leases")
        thaw(self.first)
        wait_until(lambda: self.first.metrics()["postrider_settled_stale_total"] == len(self.held),
                   20, lambda: f"{self.point}: each of its messages to be found another's\n"
                   + self.first.log_text()[-2000:])

    def end(self):
        """It is alive and well, and leaves with nothing owed."""
        self.house.settled(20)
        self.figures = self.first.metrics()
        self.first.process.terminate()
        assert self.first.wait(20) == 0, self.first.log_text()[-2000:]


def play(cluster, dedup):
    processes = []
    try:
        boxes = {}
        for slow in (5, 1200):
            boxes[slow] = Sandbox(f"--latency-p50={slow}", f"--dedup={'on' if dedup else 'off'}")
            processes.append(boxes[slow])
        scenarios = [Scenario(p, cluster, boxes[1200 if p == "in the air" else 5], dedup, processes)
                     for p in POINTS]
        for step in ("begin", "stop", "taken_over", "wake", "end"):
            for s in scenarios:
                getattr(s, step)()
        yield {s.point: s for s in scenarios}
    finally:
        for process in reversed(processes):
            process.stop()


@pytest.fixture(scope="module")
def with_dedup(cluster):
    yield from play(cluster, True)


@pytest.fixture(scope="module")
def without_dedup(cluster):
    yield from play(cluster, False)


@pytest.mark.parametrize("point", POINTS)
def test_woken_worker_vendor_dedups(with_dedup, point):
    """A9, A10: all sent once whatever the zombie does; a finished row does not move (J4)."""
    s = with_dedup[point]
    assert s.held
    assert s.before == {"sent": N} == s.house.states()
    s.house.check(s.box, s.ids, lost=0)
    assert all(requests_of(s.box, i) <= 2 for i in s.held)
    if point in ("claim_committed", "call_unstarted"):  # the woken worker sent none of them
        assert all(requests_of(s.box, i) == 1 for i in s.held)


@pytest.mark.parametrize("point", POINTS)
def test_woken_worker_hold(without_dedup, point):
    """A9, A10, D10, J24: what it had in hand was judged unknown; the woken worker sends nothing
    under its old lease, and what it knows settles the doubt: accepted, or surely never sent."""
    s = without_dedup[point]
    held = len(s.held)
    assert held and s.before == {"sent": N - held, "unknown": held}
    states = s.house.states()
    assert sum(states.values()) == N and set(states) <= {"sent", "unknown"}
    missing = s.house.check(s.box, s.ids, lost=None)  # none doubled, none sent without a phone
    assert missing <= s.house.ids("unknown")
    asked = {i: requests_of(s.box, i) for i in s.held}
    assert all(n <= 1 for n in asked.values())
    # The phones' word and ours differ for none but the unknown.
    assert {i for i in s.held if asked[i] == 0} == missing
    proved = s.house.sql("select message_id::text, outcome::text from postrider.attempt"
                         " where outcome <> 'unknown'")
    least, most = POINTS[point]
    unsent = {i for i, outcome in proved if outcome == "unreached"}
    late = {i for i, outcome in proved if outcome == "accepted"} - unsent  # those went afresh
    assert least <= len(unsent) <= most
    assert unsent | late == s.held - s.house.ids("unknown")
    assert states["sent"] == s.before["sent"] + len(unsent | late)
    if point in ("reply_unjudged", "settle_unsent"):
        assert late, "the answer it had counts"
    if point in ("claim_committed", "call_unstarted"):
        assert s.figures["postrider_lease_refused_total"] == held and not missing


def test_code_past_its_life_is_not_sent(cluster, running, sandbox):
    """J2: a code outlives its usefulness in a stopped worker's hands: neither the one that takes
    over nor the woken one sends it."""
    house = House(cluster)
    box = sandbox()
    first = start(running, house, box, env=armed("claim_committed", "stop"))
    first.wait_address()
    house.sql("update postrider.kind set ttl = '3 seconds' where name = 'otp'")
    key = house.send("otp")
    wait_until(lambda: stopped(first), 20, "the code to be claimed")
    start(running, house, box)
    house.settled()
    assert house.states() == {"unknown": 1}  # it may have been sent: not `expired`
    thaw(first)
    # It never left: now the truth is known.
    wait_until(lambda: house.states() == {"expired": 1}, 20, lambda: f"{house.states()}")
    assert first.metrics()["postrider_lease_refused_total"] == 1
    assert requests_of(box, key) == 0
    house.counters_agree()
