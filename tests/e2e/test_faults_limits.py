"""What a worker says about its health, and scarce descriptors (S6, A17, A18, J67)."""

import os
import resource
import subprocess

from tests.harness import clean
from tests.harness.faults import House, config, start
from tests.harness.procs import Worker, binary, wait_until


def test_health_asks_for_claims(cluster, running, sandbox):
    """S6: the process lives, its claims hang: /healthz fails and says for how long."""
    house = House(cluster)
    box = sandbox()
    worker = start(running, house, box)
    wait_until(lambda: worker.metrics()["postrider_claim_wanted"] == 1, 10, "a healthy worker")
    assert worker.http("/healthz")[0] == 200
    lock = cluster.connect(house.dsn, autocommit=False)
    lock.cursor().execute("lock table postrider.message in access exclusive mode")
    wait_until(lambda: worker.http("/healthz")[0] == 503, 30, "/healthz to fail")
    assert b"no claim has succeeded" in worker.http("/healthz")[1]
    assert worker.alive()
    lock.rollback()
    lock.close()
    key = house.send()
    box.api(f"/wait?key={key}&timeout_ms=30000")
    wait_until(lambda: worker.http("/healthz")[0] == 200, 20, "health")


def test_service_manager(cluster, running, sandbox):
    """READY once, WATCHDOG all the time, STOPPING at the end."""
    house = House(cluster)
    worker = start(running, house, sandbox(), env={"WATCHDOG_USEC": "400000"})
    wait_until(lambda: worker.notified().count("WATCHDOG=1") >= 3, 20, "the watchdog to be fed")
    assert worker.notified()[0] == "READY=1"
    worker.process.terminate()
    assert worker.wait(20) == 0
    said = worker.notified()
    assert said.index("READY=1") < said.index("STOPPING=1")
    assert said.count("READY=1") == said.count("STOPPING=1") == 1


def test_few_descriptors(cluster, running, sandbox):
    """A17: 64 descriptors and 200 calls allowed: fewer connections, nothing lost or doubled, and
    no busy loop."""
    house = House(cluster)
    box = sandbox("--latency-p50=50", "--dedup=off")
    keys = house.load(300)
    house.sql("update postrider.message set due = due + interval '1 hour'")
    worker = start(running, house, box, dedup=False, in_flight=200, lease_s=60,
                   providers={"main": {"in_flight": 200}}).wait_ready()
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (64, 64))
    house.sql("update postrider.message set due = due - interval '1 hour'")
    house.settled(60)
    states = house.states()
    assert states == {"sent": 300}
    house.check(box, keys, lost=0)
    assert len(os.listdir(f"/proc/{worker.pid}/fd")) <= 64
    assert worker.alive()


class Mute(Worker):
    """A worker whose standard error is closed, or a pipe that nobody reads any more."""

    def __init__(self, settings, broken_pipe):
        self.broken_pipe = broken_pipe
        super().__init__(settings)
        self.process.kill()  # the one the base class started
        self.process.wait()
        args = [str(binary()), "worker", "--config", str(self.config)]
        if broken_pipe:
            reader, writer = os.pipe()
            self.process = clean.spawn(args, stdout=writer, stderr=writer, cwd=clean.ROOT)
            os.close(reader)
            os.close(writer)
        else:
            self.process = clean.spawn(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *args],
                                       stdout=subprocess.DEVNULL, cwd=clean.ROOT)
        self.pid = self.process.pid


def test_nobody_reads_the_log(cluster, running, sandbox):
    """A18: a closed standard error and a broken pipe do not stop delivery; what takes the place of
    descriptor 2 (a socket to PostgreSQL, to the vendor) gets no log lines."""
    for broken_pipe in (False, True):
        house = House(cluster)
        box = sandbox("--latency-p50=5", "--dedup=off")
        keys = house.load(20)
        worker = Mute(config(house.dsn, box.url, listen=None, database=house.dsn), broken_pipe)
        running.append(worker)
        house.settled()
        house.check(box, keys, lost=0)
        assert worker.alive()
        worker.process.terminate()
        assert worker.wait(20) == 0
