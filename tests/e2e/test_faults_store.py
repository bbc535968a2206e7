"""The result cannot be stored, and many workers at once (D5, D11, D16, D17, J20, J60, J61)."""

import shutil
import signal
import subprocess

import pytest

from tests.harness import clean
from tests.harness.cluster import free_port
from tests.harness.faults import House, requests_of, start
from tests.harness.procs import wait_until


def test_result_that_cannot_be_stored(cluster, running, sandbox):
    """D5: the database refuses the result of one message: sent once, it becomes unknown with the
    database's words kept; the others and the worker go on."""
    house = House(cluster)
    box = sandbox("--latency-p50=5", "--dedup=off")
    keys = house.load(12)
    cursed = keys[5]
    house.sql("create function public.refuse() returns trigger language plpgsql as $$"
              " begin raise exception 'no such ledger page'; end $$")
    house.sql("create trigger refuse before update on postrider.message for each row"
              f" when (new.state = 'sent' and new.id = '{cursed}') execute function public.refuse()")
    worker = start(running, house, box, dedup=False, lease_s=60)
    house.settled()
    assert house.states() == {"sent": 11, "unknown": 1}
    assert house.ids("unknown") == {cursed}
    assert house.sql("select outcome::text, code, detail like '%%no such ledger page%%'"
                     " from postrider.attempt where outcome <> 'accepted'") == \
        [("unknown", "P0001", True)]
    assert requests_of(box, cursed) == 1
    house.check(box, keys, lost=0)
    later = house.send()
    box.api(f"/wait?key={later}&timeout_ms=10000")
    assert worker.alive()


def test_nothing_at_all_can_be_stored(cluster, running, sandbox):
    """D5: every result of one message is refused: it is not sent again, its lease ends, and a
    worker that may store it says unknown."""
    house = House(cluster)
    box = sandbox("--latency-p50=5", "--dedup=off")
    keys = house.load(3)
    cursed = keys[1]
    house.sql("create function public.refuse() returns trigger language plpgsql as $$"
              " begin raise exception 'not today'; end $$")
    house.sql("create trigger refuse before update on postrider.message for each row"
              f" when (old.state = 'sending' and new.id = '{cursed}')"
              " execute function public.refuse()")
    worker = start(running, house, box, dedup=False)
    wait_until(lambda: house.states() == {"sent": 2, "sending": 1}, 20, "the others")
    wait_until(lambda: worker.log_text().count("settle_refused") >= 4, 20, "it to give up")
    house.sql("drop trigger refuse on postrider.message")
    house.settled()
    assert house.states() == {"sent": 2, "unknown": 1}
    assert requests_of(box, cursed) == 1
    house.check(box, keys, lost=0)


def campaign(house, box, running, workers, n, dsn=None):
    keys = house.load(n)
    crew = [start(running, house, box, dedup=False, dsn=dsn, in_flight=64, lease_s=60, listen=None,
                  providers={"main": {"in_flight": 64}}) for _ in range(workers)]
    house.settled(120)
    assert house.states() == {"sent": n}
    house.check(box, keys, lost=0)
    stats = box.api("/stats")
    assert stats["requests"] == stats["taken"] == n
    wait_until(lambda: house.one("select count(*) from postrider.worker") == workers, 20,
               "the last worker to introduce itself")
    assert all(w.alive() for w in crew)


@pytest.mark.limit(170)
def test_eight_workers_one_campaign(cluster, running, sandbox):
    """D11, D16, J20: eight workers on one campaign of 10,000, started at the same instant."""
    house = House(cluster)
    campaign(house, sandbox("--latency-p50=20", "--dedup=off"), running, 8, 10000)


@pytest.fixture
def bouncer(cluster):
    """PgBouncer in transaction mode with fewer server sessions than clients."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("pgbouncer is not installed")
    folder = clean.temp_dir("bouncer", cluster.user)
    port = free_port()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "ini").write_text(f"""[databases]
* = host={cluster.dir} port={cluster.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
""")
    if cluster.user:
        for name in ("users", "ini"):
            shutil.chown(folder / name, cluster.user)
    with open(folder / "log", "wb") as log:
        process = clean.spawn([program, folder / "ini"], user=cluster.user, stdout=log,
                              stderr=subprocess.STDOUT)
    yield port
    clean.kill(process)


@pytest.mark.limit(170)
def test_through_a_pooler(cluster, bouncer, running, sandbox):  # workers leave before the pooler
    """D17, J60, J61: eight workers, 32 connections, through PgBouncer in transaction mode over six
    server sessions: every row is claimed once, and codes are found by polling."""
    house = House(cluster)
    box = sandbox("--latency-p50=20", "--dedup=off")
    dsn = f"postgresql://postgres@127.0.0.1:{bouncer}/{house.name}"
    campaign(house, box, running, 8, 2000, dsn)
    code = house.send()
    box.api(f"/wait?key={code}&timeout_ms=10000")
    house.settled()
    house.counters_agree()
    crew = [p for p in running if p is not box]
    for worker in crew:
        worker.kill(signal.SIGTERM)
    assert [w.wait(20) for w in crew] == [0] * 8
