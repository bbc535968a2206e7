"""worker/io/pg.h against real servers, a proxy that tears and a pooler (cases B1 to B18, J60, R12).

What counts is read in the database: a COMMITTED statement's row is there, a FAILED one's is not,
and a LOST one may be either. Ends come in order and before the news that the connection is down."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import psycopg2
import pytest

from tests.harness import clean
from tests.harness.cluster import Cluster, free_port
from tests.harness.pgproxy import PgProxy
from tests.harness.procs import wait_until
from tests.harness.torn_net import SynHole

PROGRAM = clean.ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "pg_driver"


class Driver:
    """One pg_driver process; its events in order."""

    def __init__(self, *args, env=None):
        self.process = clean.spawn([PROGRAM, *map(str, args)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True,
                                   env=dict(os.environ, **(env or {})))

    def tell(self, *lines):
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"the driver ended with {self.process.wait(10)}"
        return json.loads(line)

    def expect(self, event, **fields):
        got = self.read()
        assert got["event"] == event, got
        for name, value in fields.items():
            assert got[name] == value, got
        return got

    def until(self, event):
        """Skips to the next event of this kind."""
        while True:
            got = self.read()
            if got["event"] == event:
                return got

    def ask(self, line):
        self.tell(line)
        return self.read()

    def state(self):
        return self.ask("state")

    def finish(self):
        """Ends the input; what is left of the events. Fails on leaks and sanitizers' findings."""
        self.process.stdin.close()
        rest = [json.loads(line) for line in self.process.stdout]
        assert self.process.wait(20) == 0
        return rest


@pytest.fixture
def drive():
    """drive(dsn, channel="-", stall_ms=0) -> Driver, connected unless up=False."""
    started = []

    def start(*args, up=True, **kwargs):
        if args[0] != "sync":
            args = (*args, *("-", 0)[len(args) - 1:])
        driver = Driver(*args, **kwargs)
        started.append(driver)
        if up:
            driver.expect("up")
        return driver
    yield start
    for driver in started:
        if not driver.process.stdin.closed:
            driver.finish()


@pytest.fixture(scope="module")
def pg():
    with Cluster(fsync=False) as cluster:
        cluster.run("create table public.t (id bigint primary key, ref bigint references public.t"
                    " deferrable initially deferred)")
        yield cluster


@pytest.fixture
def dsn(pg):
    pg.run("truncate t")
    return pg.dsn("postgres", tcp=True)


@pytest.fixture
def proxy(pg):
    with PgProxy("127.0.0.1", pg.port) as between:
        yield between


def ids(pg):
    return [row[0] for row in pg.run("select id from t order by id")]


# -- statements -------------------------------------------------------------------------------


def test_each_end_is_its_own(drive, pg, dsn):
    """An error in one statement does not disturb its neighbours in the pipeline."""
    d = drive(dsn)
    d.tell("exec a insert into t values (1) returning id",
           "exec b insert into t values (1)",
           "exec c insert into t values (2) returning id, null, 'x'",
           "exec d select nothing",
           "exec e select 3 where false")
    a = d.expect("end", tag="a", end="committed", rows=1, first=["1"], sqlstate="", error="")
    assert a["warned"] is False
    d.expect("end", tag="b", end="failed", rows=0, sqlstate="23505",
             error='duplicate key value violates unique constraint "t_pkey"')
    d.expect("end", tag="c", end="committed", first=["2", None, "x"])
    d.expect("end", tag="d", end="failed", sqlstate="42703")
    d.expect("end", tag="e", end="committed", rows=0)
    assert ids(pg) == [1, 2]
    assert d.state() == {"event": "state", "up": True, "pending": 0, "last_error": ""}


def test_commit_that_fails_is_failed(drive, pg, dsn):
    """The rows and the "command ok" came; the deferred constraint is checked at the Sync."""
    d = drive(dsn)
    d.tell("exec a insert into t values (1, 99) returning id", "exec b insert into t values (2)")
    d.expect("end", tag="a", end="failed", rows=0, sqlstate="23503")
    d.expect("end", tag="b", end="committed")
    assert ids(pg) == [2]


def test_thousands_in_the_pipeline(drive, pg, dsn):
    d = drive(dsn)
    d.tell("burst a 5000 insert into t values ($1) returning id")
    d.expect("burst", committed=5000, failed=0, lost=0, in_order=True)
    assert len(ids(pg)) == 5000


def test_callback_sends_the_next(drive, dsn):
    d = drive(dsn)
    d.tell("nest a select 5")
    d.expect("end", tag="a", end="committed", first=["5"])
    d.expect("end", tag="a+", end="committed", first=["5"])


def test_free_in_callback(drive, dsn):
    d = drive(dsn)
    d.tell("free a select 'still mine'", "exec b select pg_sleep(60)")
    d.expect("end", tag="a", end="committed")
    d.expect("freed", text="still mine")
    assert d.finish() == []


def test_free_with_statements_pending(drive, dsn):
    d = drive(dsn)
    d.tell("exec a select pg_sleep(60)", "exec b select 1", "quit")
    assert d.finish() == []


def test_parameters_arrive_as_sent(drive, dsn):
    d = drive(dsn)
    got = d.ask("arrays a")
    assert got["first"] == [
        "O'Reilly; $1", None, "-9223372036854775808", "t",
        "{-9223372036854775808,-1,0,9223372036854775807}",
        "{-2147483648,7,2147483647}",
        '{"a,\\"b\\"\\\\{}","",NULL,"žluťoučký 🐎"}',
        "{00112233-4455-6677-8899-aabbccddeeff,01234567-89ab-7def-8123-456789abcdef}",
        "0"]


def test_more_than_a_socket_takes(drive, dsn, proxy):
    """The rest waits for EV_WRITE while the way is jammed, then goes."""
    d = drive(proxy.dsn(dsn))
    proxy.pause()
    d.tell("big a 60000000", "big b 5")
    assert d.state()["pending"] == 2
    proxy.resume()
    d.expect("end", tag="a", end="committed", first=["60000000"])
    d.expect("end", tag="b", end="committed", first=["5"])


def test_both_directions_full(drive, dsn):
    """Answers pile up while requests do: nobody may wait for the other for ever."""
    d = drive(dsn)
    d.tell("burst a 3000 select $1::bigint, repeat('x', 20000)", "big b 20000000")
    d.expect("burst", committed=3000, in_order=True)
    d.expect("end", tag="b", first=["20000000"])


def test_errors_name_no_data(drive, dsn):
    d = drive(dsn)
    got = d.ask("exec a select 'S3cr3t'::int")
    assert (got["end"], got["sqlstate"]) == ("failed", "22P02")
    assert got["error"] == 'invalid input syntax for type integer: "*"'
    got = d.ask("exec a insert into t select 77 from generate_series(1, 2)")  # DETAIL has the key
    assert got["sqlstate"] == "23505" and "77" not in got["error"]


def test_error_that_is_not_the_servers(drive, pg, dsn):
    """libpq has no memory for the rows and says "error", but the server has committed."""
    d = drive(dsn)
    d.tell("garble", "exec a insert into t values (1) returning id")
    d.expect("end", tag="a", end="lost", sqlstate="08006")
    d.expect("down")
    d.expect("up")
    assert ids(pg) == [1]


def test_answers_not_asked_for_end_the_connection(drive, dsn):
    d = drive(dsn)
    d.tell("exec a copy (select 1) to stdout", "exec b select 1")
    d.expect("end", tag="a", end="lost", sqlstate="08006")
    d.expect("end", tag="b", end="lost")
    d.expect("down")
    d.expect("up")


# -- notices ----------------------------------------------------------------------------------


def test_notify(drive, pg, dsn):
    d = drive(dsn, "Odd \"name")
    pg.run("""notify "Odd ""name", 'while idle'""")
    d.expect("notify", channel='Odd "name', payload="while idle")
    d.tell("""exec a select pg_notify('Odd "name', 'own')""", "exec b select 2")
    got = [d.read(), d.read(), d.read()]
    assert [e["tag"] for e in got if e["event"] == "end"] == ["a", "b"]
    assert [e["payload"] for e in got if e["event"] == "notify"] == ["own"]


def test_listens_again_after_a_loss(drive, pg, dsn):
    d = drive(dsn, "chan")
    pg.run("select pg_terminate_backend(pid) from pg_stat_activity"
           " where application_name = 'postrider/driver'")
    d.expect("down", why="terminating connection due to administrator command", up=False)
    d.expect("up")
    pg.run("notify chan, 'again'")
    d.expect("notify", payload="again")


def test_warning_flags_its_statement_alone(drive, dsn):
    """R12: a commit with a warning is not trusted."""
    d = drive(dsn)
    d.tell("exec a select 1", "exec b do $$begin raise warning 'x'; end$$", "exec c select 1",
           "exec d do $$begin raise notice 'x'; end$$")
    for tag, warned in (("a", False), ("b", True), ("c", False), ("d", False)):
        d.expect("end", tag=tag, end="committed", warned=warned)


def test_warning_behind_the_commit(drive, dsn, proxy):
    """It comes after the rows, as that of a cancelled wait for replication does."""
    d = drive(proxy.dsn(dsn))
    proxy.rule(match="flagged", action="notice_ready", sqlstate="01000")
    d.tell("exec a select 'flagged'", "exec b select 1")
    d.expect("end", tag="a", end="committed", warned=True)
    d.expect("end", tag="b", end="committed", warned=False)


def test_commit_that_no_standby_confirmed(drive, own_cluster):
    """B10: the server gives up waiting: durable here, perhaps nowhere else."""
    own_cluster.run("create table t (id int)")
    own_cluster.run("alter system set synchronous_standby_names = 'nobody'")
    own_cluster.run("select pg_reload_conf()")
    d = drive(own_cluster.dsn("postgres"))
    d.tell("exec a insert into t values (1)")
    waiting = "from pg_stat_activity where wait_event = 'SyncRep'"
    wait_until(lambda: own_cluster.run(f"select 1 {waiting}"))
    own_cluster.run(f"select pg_cancel_backend(pid) {waiting}")
    d.expect("end", tag="a", end="committed", warned=True)


# -- losses -----------------------------------------------------------------------------------


def test_server_crash(drive, own_cluster):
    """B1: what was pending is lost, in order and before the news; then all is well again."""
    d = drive(own_cluster.dsn("postgres"), "chan")
    d.tell("nest a select pg_sleep(60)", "exec b select 1")
    wait_until(lambda: own_cluster.run("select 1 from pg_stat_activity where query like"
                                       " '%sleep(60)' and pid <> pg_backend_pid()"))
    own_cluster.stop("immediate")
    d.expect("end", tag="a", end="lost", sqlstate="08006")
    d.expect("refused", tag="a+", code="ENOTCONN")
    d.expect("end", tag="b", end="lost")
    d.expect("down", up=False)
    d.expect("down")  # the next attempt finds nobody
    d.tell("exec c select 1")
    assert d.until("refused")["code"] == "ENOTCONN"
    own_cluster.start()
    d.until("up")
    assert d.ask("exec d select 4")["first"] == ["4"]
    assert d.state()["last_error"] != ""


def test_terminated_in_mid_statement(drive, pg, dsn):
    """B8: a FATAL is no answer to the statement."""
    d = drive(dsn)
    d.tell("exec a select pg_sleep(60)", "exec b insert into t values (1)")
    wait_until(lambda: pg.run("select pg_terminate_backend(pid) from pg_stat_activity where"
                              " query like 'select pg_sleep%'"))
    why = "terminating connection due to administrator command"
    d.expect("end", tag="a", end="lost", sqlstate="08006", error=why)
    d.expect("end", tag="b", end="lost")
    d.expect("down", why=why)
    d.expect("up")
    assert ids(pg) == []


@pytest.mark.parametrize("action, kept", [("cut_before_sync", []), ("cut_after_sync", [7]),
                                          ("cut_rows", [7]), ("cut_complete", [7]),
                                          ("cut_ready", [7])])
def test_lost_may_be_either(drive, pg, dsn, proxy, action, kept):
    """B3 to B6: wherever the answer was torn, nothing is claimed about it."""
    d = drive(proxy.dsn(dsn))
    rule = proxy.rule(match="insert", action=action)
    d.tell("exec a insert into t values (7) returning id")
    d.expect("end", tag="a", end="lost", rows=0, sqlstate="08006")
    d.expect("down")
    d.expect("up")
    assert rule.wait_fired()
    assert ids(pg) == kept


def test_what_arrived_before_the_loss_counts(drive, pg, dsn, proxy):
    """The Syncs that came with the end of the connection are believed, later statements not."""
    d = drive(proxy.dsn(dsn))
    proxy.rule(match="values \\(3\\)", action="cut_after_sync")
    d.tell("exec a insert into t values (1)", "exec b insert into t values (1)",
           "exec c insert into t values (3)")
    d.expect("end", tag="a", end="committed")
    d.expect("end", tag="b", end="failed", sqlstate="23505")
    d.expect("end", tag="c", end="lost")
    d.expect("down")


def test_answer_and_the_end_at_once(drive, pg, dsn, proxy):
    """Both wait in the socket together; the answer counts."""
    d = drive(proxy.dsn(dsn))
    proxy.pause()
    d.tell("exec a insert into t values (1) returning id, repeat('x', 45000)")
    assert d.state()["pending"] == 1
    d.process.send_signal(signal.SIGSTOP)
    proxy.resume()
    wait_until(lambda: ids(pg) == [1])
    pg.run("select pg_terminate_backend(pid) from pg_stat_activity"
           " where application_name = 'postrider/driver'")
    wait_until(lambda: proxy.sessions == 0)
    d.process.send_signal(signal.SIGCONT)
    d.expect("end", tag="a", end="committed")
    d.expect("down", why="terminating connection due to administrator command")
    d.expect("up")


def test_black_hole(drive, pg, dsn, proxy):
    """Nobody says that the connection is gone; silence does."""
    d = drive(proxy.dsn(dsn), "-", 300)
    rule = proxy.rule(match="insert", action="hole_after")
    d.tell("exec a insert into t values (7)", "exec b select 1")
    d.expect("end", tag="a", end="lost", sqlstate="08006", error="the server fell silent")
    d.expect("end", tag="b", end="lost")
    d.expect("down", why="the server fell silent")
    d.expect("up")
    assert rule.wait_fired()
    wait_until(lambda: ids(pg) == [7])


def test_silence_without_a_debt_is_fine(drive, dsn, proxy):
    """A connection at rest outlives its stall time; so does one that answers one by one."""
    d = drive(proxy.dsn(dsn), "-", 300)
    d.tell("exec a select 1")
    d.expect("end", tag="a")
    before = time.monotonic()
    wait_until(lambda: time.monotonic() > before + 0.7)  # nothing to wait for: time must pass
    d.tell(*[f"exec s{i} select pg_sleep(0.1)" for i in range(8)])
    for i in range(8):
        d.expect("end", tag=f"s{i}", end="committed")
    assert d.state()["last_error"] == ""


# -- connecting -------------------------------------------------------------------------------


def test_out_of_connections(drive):
    """B12: told why, no spinning, up as soon as there is room."""
    with Cluster(fsync=False, max_connections=4, superuser_reserved_connections=0) as small:
        held = [small.connect() for _ in range(3)]
        held.append(wait_until(lambda: connect_or_none(small), what="the fourth connection"))
        begun = time.monotonic()
        d = drive(small.dsn("postgres"), up=False)
        for _ in range(6):
            assert "too many clients already" in d.expect("down")["why"]
        # The pauses between six attempts: none, then at least half of 100, 200, 400, 800 ms.
        assert time.monotonic() - begun >= 0.75
        for conn in held:
            conn.close()
        d.until("up")


def connect_or_none(cluster):
    try:
        return cluster.connect()
    except psycopg2.OperationalError:
        return None


def test_read_only_refused(drive, pg):
    """A standby or a database set read-only is of no use; it may become useful."""
    name = pg.createdb()
    pg.run(f"alter database {name} set default_transaction_read_only = on")
    d = drive(pg.dsn(name), up=False)
    stubborn = drive(pg.dsn(name) + "&target_session_attrs=any", up=False)
    assert "session is read-only" in d.expect("down")["why"]
    stubborn.expect("down", why="the database is read-only")
    pg.run(f"alter database {name} reset default_transaction_read_only")
    d.until("up")
    stubborn.until("up")


def test_other_encodings_refused(drive, pg):
    """B26"""
    pg.run("create database ascii encoding 'SQL_ASCII' locale 'C' template template0")
    d = drive(pg.dsn("ascii"), "chan", up=False)
    for _ in range(2):
        assert "encoding is not UTF8" in d.expect("down", up=False)["why"]
    assert d.state()["up"] is False
    sync = drive("sync", pg.dsn("ascii"), up=False)
    assert "encoding is not UTF8" in sync.expect("refused", code="EPROTO")["error"]
    sync.process.stdin.close()
    assert sync.process.wait(10) == 1


def test_next_host_has_its_turn(drive, pg, dsn):
    """A dead first host, and one that swallows SYNs, do not keep us from the living."""
    with SynHole() as hole:
        rest = dsn.split("@")[0], dsn.split("/")[-1]
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{hole.port},127.0.0.1:{pg.port}"
        d = drive(f"{rest[0]}@{hosts}/{rest[1]}?tcp_user_timeout=500")
        assert d.ask("exec a select 1")["end"] == "committed"


def test_handshake_never_answered(drive, dsn):
    """A listener that says nothing is given up, with libpq's own time-out out of reach."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)
        port = mute.getsockname()[1]
        d = drive(re.sub(r":\d+/", f":{port}/", dsn), up=False)
        d.expect("down", why="no connection within 10 seconds")


def test_environment_is_the_last_resort(drive, pg):
    name = pg.createdb()
    env = {"PGHOST": str(pg.dir), "PGPORT": str(pg.port), "PGUSER": "postgres", "PGDATABASE": name,
           "PGCLIENTENCODING": "LATIN1"}
    d = drive("", env=env)
    got = d.ask("exec a select current_database(), current_setting('client_encoding'),"
                " current_setting('application_name')")
    assert got["first"] == [name, "UTF8", "postrider/driver"]


def test_dsn_wins_over_our_defaults(drive, dsn):
    d = drive(dsn + "?application_name=mine&client_encoding=LATIN1")
    got = d.ask("exec a select current_setting('client_encoding'),"
                " current_setting('application_name')")
    assert got["first"] == ["UTF8", "mine"]


def test_passwords_stay_secret(drive, dsn):
    wrong = re.sub(r"(postgres:)[^@]*@", r"\1S3cr3t@", dsn)
    d = drive(wrong, up=False)
    why = d.expect("down")["why"]
    assert "password authentication failed" in why and "S3cr3t" not in why
    for broken in (wrong.replace("S3cr3t", "S3cr3t@x"), wrong.replace("S3cr3t", "S3cr3t/x")):
        d = drive(broken, up=False)
        assert "S3cr3t" not in json.dumps(d.expect("refused"))
        d.process.stdin.close()
        assert d.process.wait(10) == 1


# -- a pooler between -------------------------------------------------------------------------


class Pooler:
    """PgBouncer in transaction mode with one server connection for all."""

    def __init__(self, pg, mode="transaction"):
        self.user, self.port = pg.user, free_port()
        self.dir = clean.temp_dir("pgbouncer", self.user)
        self.config = self.dir / "pgbouncer.ini"
        self.config.write_text(f"""[databases]
* = host={pg.dir} port={pg.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 1
server_login_retry = 0.1
""")
        self.config.chmod(0o644)
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.process = None

    def start(self):
        self.process = clean.spawn(["/usr/sbin/pgbouncer", self.config], user=self.user,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: psycopg2_connects(self.dsn), what="PgBouncer")
        return self

    def stop(self):
        clean.kill(self.process)


def psycopg2_connects(dsn):
    try:
        psycopg2.connect(dsn).close()
        return True
    except psycopg2.OperationalError:
        return False


@pytest.fixture
def pooler(pg):
    between = Pooler(pg).start()
    yield between
    between.stop()


def test_through_a_pooler(drive, pg, dsn, pooler):
    """J60, B18: no start-up parameters, no session state; two clients share one connection."""
    one, two = drive(pooler.dsn, "chan"), drive(pooler.dsn, "chan")
    one.tell("burst a 1000 insert into t values ($1) returning id", "exec f select 1/0",
             "arrays p")
    two.tell("burst b 1000 insert into t values ($1 + 1000) returning id - 1000",
             "exec w do $$begin raise warning 'x'; end$$")
    one.expect("burst", committed=1000, failed=0, lost=0, in_order=True)
    one.expect("end", tag="f", end="failed", sqlstate="22012")
    assert one.expect("end", tag="p", end="committed")["first"][0] == "O'Reilly; $1"
    two.expect("burst", committed=1000, failed=0, lost=0, in_order=True)
    two.expect("end", tag="w", end="committed", warned=True)
    assert len(ids(pg)) == 2000


def test_pooler_loses_its_server(drive, pg, dsn, pooler):
    d = drive(pooler.dsn)
    d.tell("exec a select pg_sleep(60)", "exec b insert into t values (1)")
    wait_until(lambda: pg.run("select pg_terminate_backend(pid) from pg_stat_activity where"
                              " query like 'select pg_sleep%'"))
    d.expect("end", tag="a", end="lost")
    d.expect("end", tag="b", end="lost")
    d.expect("down")
    d.until("up")
    assert d.ask("exec c select 3")["first"] == ["3"]


def test_pooler_restarts(drive, dsn, pooler):
    d = drive(pooler.dsn)
    d.tell("exec a select pg_sleep(60)")
    assert d.state()["pending"] == 1
    pooler.stop()
    d.expect("end", tag="a", end="lost")
    d.expect("down")
    pooler.start()
    d.until("up")


def test_pooler_before_a_read_only_server(drive, pg):
    """PgBouncer reports no read-only parameters; we ask."""
    name = pg.createdb()
    pg.run(f"alter database {name} set default_transaction_read_only = on")
    between = Pooler(pg).start()
    try:
        d = drive(between.dsn.replace("/postgres", f"/{name}") + "?target_session_attrs=any",
                  up=False)
        d.expect("down", why="the database is read-only")
    finally:
        between.stop()


# -- the blocking half ------------------------------------------------------------------------


def test_sync(drive, pg, dsn):
    d = drive("sync", dsn)
    got = d.ask("exec a select $1::text as word, 2 as n")
    assert (got["end"], got["names"], got["first"]) == ("ok", ["word", "n"], ["one", "2"])
    got = d.ask("exec b select $1::int")
    assert (got["end"], got["sqlstate"]) == ("EIO", "22P02")
    assert got["error"] == 'invalid input syntax for type integer: "one"'
    got = d.ask("exec c select $1 || nofunc(1)")
    assert got["sqlstate"] == "42883" and "explicit type casts" in got["hint"]
    got = d.ask("exec d select pg_terminate_backend(pg_backend_pid()), $1::text")
    assert (got["end"], got["sqlstate"]) == ("ECONNRESET", "08006")


def test_sync_script(drive, pg, dsn):
    """All or nothing, and the line of the mistake."""
    d = drive("sync", dsn)
    got = d.ask("script a insert into t values (1);\\n-- ž 🐎\\ninsert into t values (2);\\n selec 3")
    assert got["end"] == "EIO"
    assert got["error"] == 'line 4: syntax error at or near "selec"'
    assert ids(pg) == []
    assert d.ask("script b insert into t values (1); insert into t values (2)")["end"] == "ok"
    assert ids(pg) == [1, 2]
    got = d.ask("script c insert into t values (3); insert into t values (1)")
    assert got["end"] == "EIO" and ids(pg) == [1, 2]


def test_sync_refused(drive, dsn):
    gone = drive("sync", re.sub(r":\d+/", f":{free_port()}/", dsn), up=False)
    assert "Connection refused" in gone.expect("refused", code="ECONNREFUSED")["error"]
    gone.process.stdin.close()
    assert gone.process.wait(10) == 1
