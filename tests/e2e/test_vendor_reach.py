"""Vendors that cannot be reached or trusted, through the whole worker (rule R8; cases C1, C2, C3,
L6, L11, T10, D3, C22): nothing is burnt, and all is delivered when the vendor is back."""

import threading

import pytest

from tests.harness import torn_steps as step
from tests.harness.torn import TornServer
from tests.harness.torn_net import Authority, ClosedPort, SynHole
from tests.harness.vendor import Story, vendor


class Late(TornServer):
    """A vendor whose port is taken but refuses until start()."""


class Hole(TornServer):
    """A vendor whose port swallows every SYN until start(): its queue of connections is full."""

    def __init__(self, **options):
        super().__init__(**options)
        self._hole = SynHole.__new__(SynHole)
        self._hole._sock, self._hole.port, self._hole._fillers = self._listener, self.port, []
        self._listener.listen(0)
        while self._hole._fill():
            pass

    def start(self):
        for filler in self._hole._fillers:
            filler.close()
        return super().start()


def nothing_burnt(story):
    """What waits has neither attempt nor call nor doubt."""
    for row in story.rows().values():
        assert row.state == "pending" and row[1:4] == (0, 0, 0), row


def back_and_drained(story, server, keys):
    rows = story.ended()
    assert {row[:4] for row in rows.values()} == {("sent", 1, 1, 0)}
    assert [server.request_count(key) for key in keys] == [1] * len(keys)


def unreached(story, provider="main"):
    return story.metric("attempts_total", provider=provider, outcome="unreached")


@pytest.mark.parametrize("kind_of_death", [Late, Hole], ids=["refused", "SYN swallowed"])
def test_a_dead_vendor_burns_nothing(db, running, kind_of_death):
    """C2, L6, L11, T10: attempts are given back, the door is shut, a few probes go; then all leave."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", attempts=1)
    keys = story.queue("kept", map(str, range(60))).values()
    server = kind_of_death()
    story.work({"main": vendor(server.url, connect_timeout_ms=300)})
    story.wait(lambda: unreached(story) >= 3, "some calls in vain")
    story.wait(lambda: story.door("main") == "paused", "the door to be shut")
    story.wait(lambda: story.in_state("sending") == 0, "rows to be back")
    nothing_burnt(story)
    in_vain = unreached(story)
    assert in_vain < 60 * 3  # the queue waits behind the door and does not beat against it
    with server.start():
        back_and_drained(story, server, keys)
        assert story.door("main") == "open"


def test_a_name_that_does_not_resolve(db, running):
    """C1: surely not sent. With a second provider in the route the message goes there at once."""
    story = Story(db, running)
    story.kind("alone", route=["lost"])
    story.kind("both", route=["lost", "second"])
    alone, both = story.queue("alone", ["a"]), story.queue("both", map(str, range(20)))
    with TornServer() as second:
        story.work({"lost": vendor("http://vendor.invalid/messages", connect_timeout_ms=500),
                    "second": vendor(second.url)})
        story.wait(lambda: second.wait_requests(20, timeout=0), "the second provider to have all")
        story.wait(lambda: story.in_state("sent") == 20, "them to be stored")
        story.wait(lambda: story.row(alone["a"]).state == "pending", "the other one to wait")
        assert story.row(alone["a"])[:4] == ("pending", 0, 0, 0)
        for key in both.values():
            assert story.row(key) == ("sent", 1, 1, 0, None, story.row(key).vendor_id, "second")
            assert second.request_count(key) == 1
        assert unreached(story, "lost") >= 1


def test_failover_is_free_when_nothing_was_sent(db, running):
    """C22's other half: a refused connection proves that the second provider may have it."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold", attempts=1)
    keys = story.queue("kept", map(str, range(30))).values()
    with ClosedPort() as dead, TornServer() as second:
        story.work({"first": vendor(dead.url), "second": vendor(second.url)})
        rows = story.ended()
        assert {(r.state, r.attempts, r.calls, r.provider) for r in rows.values()} == \
            {("sent", 1, 1, "second")}
        assert [second.request_count(key) for key in keys] == [1] * 30
        assert story.door("first") == "paused" and story.door("second") == "open"


@pytest.mark.parametrize("on_unknown", ["hold", "resend"])
def test_no_failover_after_a_doubt(db, running, on_unknown):
    """D3, C22: the first vendor took it and hung up. The second, healthy one never gets it, not even
    while the first is down."""
    story = Story(db, running)
    story.kind("one", on_unknown=on_unknown, ttl="8 seconds", base_ms=500, cap_ms=500)
    key = story.queue("one", ["doubtful"])["doubtful"]
    with TornServer() as second:
        first = TornServer(step.fin()).start()
        story.work({"first": vendor(first.url), "second": vendor(second.url)})
        first.wait_requests(1)
        story.wait(lambda: story.row(key).doubts > 0, "the doubt")
        first.stop()
        others = story.queue("one", map(str, range(10))).values()
        story.wait(lambda: all(second.request_count(other) == 1 for other in others),
                   "what is not in doubt to use the second")
        rows = story.ended()
        assert rows[key].state == "unknown" and rows[key].doubts >= 1
        assert rows[key].provider == "first"
        assert second.request_count(key) == 0
        assert 1 <= first.request_count(key) <= rows[key].attempts


BAD_TLS = {
    "expired": lambda ours, other: (ours.issue(days=-1), ours.ca_file),
    "wrong name": lambda ours, other: (ours.issue(names="DNS:other.example"), ours.ca_file),
    "unknown CA": lambda ours, other: (other.issue(), ours.ca_file),
}


class Renewable(TornServer):
    def renew(self, certificate):
        """New handshakes show this certificate."""
        self._context.load_cert_chain(*certificate)


def test_a_certificate_that_is_wrong(db, running, tmp_path):
    """C3: surely not sent, and no message's fault: the provider is held, its rows wait whole. Once the
    certificate is right they leave without anybody's help, on the first try: nothing remembers the old
    certificate (a resumed TLS session would; libcurl keeps those of refused handshakes)."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "other").mkdir()
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    good = ours.issue()
    story = Story(db, running)
    servers, providers, keys = {}, {}, {}
    for n, (name, make) in enumerate(BAD_TLS.items()):
        certificate, ca_file = make(ours, other)
        servers[f"p{n}"] = Renewable(tls=certificate).start()
        providers[f"p{n}"] = vendor(servers[f"p{n}"].url, ca_file=ca_file)
        story.kind(f"p{n}", route=[f"p{n}"], attempts=1)
        keys[f"p{n}"] = list(story.queue(f"p{n}", map(str, range(8))).values())
    story.work(providers)
    story.wait(lambda: all(story.door(p) == "held" for p in providers), "all to be held")
    story.wait(lambda: story.in_state("sending") == 0, "rows to be back")
    held = {name: story.metric("attempts_total", provider=name, outcome="held") for name in providers}
    for name, server in servers.items():
        server.renew(good)
        assert held[name] >= 1 and server.requests == [] and server.incomplete == []
    nothing_burnt(story)
    rows = story.ended()
    assert {row[:4] for row in rows.values()} == {("sent", 1, 1, 0)}
    for name, server in servers.items():
        assert [server.deliveries(key) for key in keys[name]] == [1] * 8
        assert story.metric("attempts_total", provider=name, outcome="held") == held[name], name
        assert story.door(name) == "open"
        server.stop()


def test_a_handshake_that_never_ends(db, running, tmp_path):
    """C3: TCP connects, TLS does not: unreached, not unknown."""
    story = Story(db, running)
    story.kind("kept", attempts=1)
    keys = story.queue("kept", map(str, range(5))).values()
    authority, well = Authority(tmp_path), threading.Event()
    hang = step.unread(well)
    with TornServer(tls=authority.issue(), on_accept=lambda _: hang) as server:
        story.work({"main": vendor(server.url, ca_file=authority.ca_file, connect_timeout_ms=500)})
        story.wait(lambda: unreached(story) >= 2, "calls in vain")
        story.wait(lambda: story.in_state("sending") == 0 or unreached(story) > 8, "rows to be back")
        assert server.requests == []
        assert {row[3] for row in story.rows().values()} == {0}
        well.set()
        back_and_drained(story, server, keys)


def test_a_connection_that_is_accepted_and_dropped(db, running):
    """C2's neighbour: reset before a byte was read. Seen before our bytes left, it is unreached; seen
    after, a doubt, since a balancer may do that to a request its vendor has. Never both, never neither."""
    story = Story(db, running)
    story.kind("kept", on_unknown="hold")
    keys = story.queue("kept", map(str, range(8))).values()
    with TornServer(on_accept=lambda _: step.rst()) as server:
        story.work({"main": vendor(server.url)})
        story.wait(lambda: story.in_state("unknown") == 8 or unreached(story) >= 3, "calls in vain")
        story.wait(lambda: story.in_state("sending") == 0, "rows to be stored")
        for row in story.rows(*keys).values():
            doubts = 1 if row.state == "unknown" else 0
            assert row.state in ("unknown", "pending") and row[1:4] == (doubts,) * 3, row
        assert server.requests == []
