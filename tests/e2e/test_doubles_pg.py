"""The database double must really cut where it says: tests/harness/pgproxy.py.

After each cut the table is read around the proxy: what the server committed is the truth. psycopg2
speaks the simple protocol; `Wire` speaks the extended one, pipelines and all, by hand.
"""
import io
import select
import socket
import struct
import threading
import time

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import pytest

from tests.harness.pgproxy import PgProxy
from tests.harness.pgproxy_rules import message
from tests.harness.procs import wait_until


class Around:
    """A database of one table t(n), seen without the proxy."""

    def __init__(self, cluster):
        self.cluster, self.name = cluster, cluster.createdb()
        self.conn = cluster.connect(self.name)
        self.run("create table t (n int primary key)")

    def run(self, sql):
        with self.conn.cursor() as cur:
            cur.execute(sql)
            return cur.fetchall() if cur.description else None

    def rows(self):
        return [n for n, in self.run("select n from t order by n")]

    def sessions(self):
        return self.run("select count(*) from pg_stat_activity where datname = current_database()"
                        " and pid <> pg_backend_pid()")[0][0]


@pytest.fixture(scope="module")
def database(cluster):
    around = Around(cluster)
    yield around
    around.conn.close()
    cluster.dropdb(around.name)


@pytest.fixture
def around(database):
    database.run("truncate t")
    return database


@pytest.fixture
def proxy(around):
    with PgProxy(around.cluster.dir, around.cluster.port) as proxy:
        proxy.base = around.cluster.dsn(around.name)
        proxy.name = around.name
        yield proxy


@pytest.fixture
def conn(proxy):
    conn = psycopg2.connect(proxy.dsn(proxy.base))
    yield conn
    conn.close()


@pytest.fixture
def wire(proxy):
    with Wire(proxy) as wire:
        yield wire


class Wire:
    """A client of the extended protocol that sends just the messages it is told to."""

    def __init__(self, proxy):
        self.sock = socket.create_connection(("127.0.0.1", proxy.port))
        self.sock.settimeout(20)
        self.buf = bytearray()
        body = struct.pack("!I", 3 << 16)
        for word in ("user", "postgres", "database", proxy.name, ""):
            body += word.encode() + b"\0"
        self.sock.sendall(struct.pack("!I", len(body) + 4) + body)
        self.backend_key = dict(self.until(b"Z"))[b"K"]

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.sock.close()

    def send(self, *messages):
        self.sock.sendall(b"".join(messages))

    def read(self):
        """(kind, body), or None at the end."""
        while True:
            if len(self.buf) >= 5:
                end = 1 + struct.unpack_from("!I", self.buf, 1)[0]
                if len(self.buf) >= end:
                    kind, body = bytes(self.buf[:1]), bytes(self.buf[5:end])
                    del self.buf[:end]
                    return kind, body
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buf += data

    def until(self, last=None):
        """Messages up to one of kind `last`, or to the end."""
        found = []
        while True:
            got = self.read()
            if got is None:
                return found
            found.append(got)
            if got[0] == last:
                return found

    @staticmethod
    def kinds(messages):
        return b"".join(kind for kind, _ in messages).decode()

    def silent(self):
        return not select.select([self.sock], [], [], 0.2)[0]


def parse(sql, name=""):
    return message(b"P", f"{name}\0{sql}\0".encode() + b"\0\0")


def bind(name="", portal=""):
    return message(b"B", f"{portal}\0{name}\0".encode() + b"\0\0" * 3)


def execute(portal=""):
    return message(b"E", f"{portal}\0".encode() + b"\0" * 4)


def statement(sql):
    return parse(sql) + bind() + execute()


SYNC = message(b"S", b"")
FLUSH = message(b"H", b"")


def insert(n):
    return f"insert into t values ({n}) returning n"


def sqlstate(body):
    return next(f[1:] for f in body.split(b"\0") if f[:1] == b"C").decode()


# --- cuts around the commit -----------------------------------------------------------------------


@pytest.mark.parametrize("action,n,committed", [
    ("cut_after_sync", 0, [1]), ("cut_before_sync", 0, []), ("cut_inside", 3, []),
    ("cut_ready", 0, [1]), ("cut_complete", 0, [1])])
def test_simple_commit(proxy, conn, around, action, n, committed):
    rule = proxy.rule(match="^commit", action=action, n=n)
    with pytest.raises(psycopg2.OperationalError):
        with conn, conn.cursor() as cur:
            cur.execute("insert into t values (1)")
    assert rule.wait_fired(1) and around.rows() == committed
    assert conn.closed


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("action,committed", [
    ("cut_after_sync", [1]), ("cut_before_sync", []), ("cut_inside", [])])
def test_extended_batch(proxy, wire, around, action, committed, wait):
    rule = proxy.rule(match="insert", action=action, n=4, wait=wait)
    wire.send(statement(insert(1)), SYNC)
    assert wire.until() == []
    assert rule.wait_fired(1) and (rule.fired, around.rows()) == (1, committed)


def test_the_server_is_through_before_the_client_is_cut(proxy, wire, around):
    proxy.rule(match="insert")
    wire.send(statement("select pg_sleep(0.3)"), statement(insert(1)), SYNC)
    assert b"D" not in dict(wire.until()) and around.rows() == [1]


@pytest.mark.parametrize("action,committed", [("cut_after_sync", [7]), ("cut_before_sync", [])])
def test_a_prepared_statement_is_known_by_its_name(proxy, wire, around, action, committed):
    wire.send(parse(insert(7) + " /* claim */", "c1"), parse("select 1", "other"), SYNC)
    assert wire.kinds(wire.until(b"Z")) == "11Z"
    rule = proxy.rule(match=r"/\* CLAIM \*/", action=action)
    wire.send(bind("other"), execute(), SYNC)
    assert wire.kinds(wire.until(b"Z")) == "2DCZ" and rule.fired == 0
    wire.send(bind("c1", "portal"), execute("portal"), SYNC)
    assert wire.until() == [] and rule.wait_fired(1)
    assert around.rows() == committed


def test_the_rest_of_a_pipeline(proxy, wire, around):
    """Units before the cut one keep their answers; those behind it never reach the server."""
    rule = proxy.rule(match=r"\(2\)")
    wire.send(*(statement(insert(n)) + SYNC for n in (1, 2, 3)))
    assert wire.kinds(wire.until()) == "12DCZ"
    assert rule.wait_fired(1) and around.rows() == [1, 2]


def test_one_sync_for_many_statements_is_one_transaction(proxy, wire, around):
    rule = proxy.rule(match=r"\(2\)", action="cut_before_sync")
    wire.send(*(statement(insert(n)) for n in (1, 2, 3)), SYNC)
    assert "Z" not in wire.kinds(wire.until())
    assert rule.wait_fired(1) and around.rows() == []


def test_reset_instead_of_an_orderly_end(proxy, wire, around):
    rule = proxy.rule(match="insert", rst=True)
    wire.send(statement(insert(1)), SYNC)
    with pytest.raises(ConnectionResetError):
        wire.sock.recv(1)
    assert rule.wait_fired(1) and around.rows() == [1]


# --- cuts inside the answer -----------------------------------------------------------------------

FIVE = "insert into t select generate_series(1, 5) returning n"


@pytest.mark.parametrize("action,n,kinds", [
    ("cut_rows", 0, "12"), ("cut_rows", 2, "12DD"), ("cut_rows", 9, "12DDDDD"),
    ("cut_complete", 0, "12DDDDD"), ("cut_ready", 0, "12DDDDDC")])
def test_cut_inside_the_result(proxy, wire, around, action, n, kinds):
    rule = proxy.rule(match="returning", action=action, n=n)
    wire.send(statement(FIVE), SYNC)
    assert wire.kinds(wire.until()) == kinds
    assert rule.wait_fired(1) and around.rows() == [1, 2, 3, 4, 5]


def test_rows_are_counted_for_the_statement_that_matches(proxy, wire, around):
    proxy.rule(match="returning", action="cut_rows", n=1)
    wire.send(statement("select generate_series(1, 3)"), statement(FIVE), SYNC)
    assert wire.kinds(wire.until()) == "12DDDC" + "12D"


def test_cut_inside_the_result_of_an_unfinished_pipeline(proxy, wire, around):
    """No Sync was sent yet: the server rolls back."""
    rule = proxy.rule(match="returning", action="cut_rows", n=2)
    wire.send(statement(FIVE), FLUSH)
    assert wire.kinds(wire.until()) == "12DD"
    assert rule.wait_fired(1) and around.rows() == []


def test_cut_inside_a_simple_result(proxy, conn, around):
    rule = proxy.rule(match="returning", action="cut_rows", n=2)
    with pytest.raises(psycopg2.OperationalError), conn.cursor() as cur:
        cur.execute(FIVE)
    assert rule.wait_fired(1) and around.rows() == []


def test_cut_inside_a_message(proxy, wire, around):
    proxy.rule(match="insert", action="cut_bytes", n=13)
    wire.send(statement(insert(1)), SYNC)
    assert wire.until() == [(b"1", b""), (b"2", b"")]
    assert wire.buf == b"D\0\0" and around.rows() == [1]


# --- messages put in ------------------------------------------------------------------------------


@pytest.mark.parametrize("action,kinds", [("notice", "12DNCZ"), ("notice_ready", "12DCNZ")])
def test_notice(proxy, wire, around, action, kinds):
    rule = proxy.rule(match="insert", action=action)
    for expected in (kinds, "12DCZ"):
        wire.send(statement(insert(len(expected))), SYNC)
        answer = wire.until(b"Z")
        assert wire.kinds(answer) == expected
        for kind, body in answer:
            assert kind != b"N" or sqlstate(body) == "01000"
    assert rule.fired == 1 and len(around.rows()) == 2


def test_notice_by_libpq(proxy, conn):
    proxy.rule(match="select 5", action="notice", text="look here")
    with conn.cursor() as cur:
        cur.execute("select 5")
        assert cur.fetchall() == [(5,)] and conn.notices == ["WARNING:  look here\n"]


def test_error_aborts_the_simple_transaction(proxy, conn, around):
    rule = proxy.rule(match=r"\(2\)", action="error", sqlstate="25006", text="read-only now")
    with conn.cursor() as cur:
        cur.execute(insert(1))
        with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction, match="read-only now"):
            cur.execute(insert(2))
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            cur.execute(insert(3))
        conn.rollback()
        cur.execute(insert(4))
        conn.commit()
    assert rule.fired == 1 and around.rows() == [4]


def test_error_aborts_the_pipeline_up_to_its_sync(proxy, wire, around):
    proxy.rule(match=r"\(2\)", action="error", sqlstate="53200")
    wire.send(*(statement(insert(n)) for n in (1, 2, 3)), SYNC, statement(insert(4)), SYNC)
    first = wire.until(b"Z")
    assert wire.kinds(first) == "12DC12EZ" and sqlstate(first[-2][1]) == "53200"
    assert wire.kinds(wire.until(b"Z")) == "12DCZ" and around.rows() == [4]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("action,committed", [("cut_after_sync", [1]), ("cut_before_sync", [])])
def test_fatal_error_before_the_end(proxy, wire, around, action, committed, wait):
    rule = proxy.rule(match="insert", action=action, sqlstate="57P01", wait=wait)
    wire.send(statement(insert(1)), SYNC)
    ((kind, body),) = wire.until()
    assert (kind, sqlstate(body), body[:7]) == (b"E", "57P01", b"SFATAL\0")
    assert rule.wait_fired(1) and around.rows() == committed


def test_refused_session(proxy, around):
    before = around.sessions()
    rule = proxy.rule(match=f"database={proxy.name}", action="refuse", sqlstate="53300",
                      text="too many", times=2)
    for _ in range(2):
        with pytest.raises(psycopg2.OperationalError, match="FATAL: .*too many"):
            psycopg2.connect(proxy.dsn(proxy.base))
    assert rule.wait_fired(2) and around.sessions() == before
    psycopg2.connect(proxy.dsn(proxy.base)).close()


# --- slowness and silence -------------------------------------------------------------------------


def test_delay_holds_the_query_back(proxy, conn, around):
    rule = proxy.rule(match="insert", action="delay", seconds=0.3)
    begin = time.monotonic()
    with conn, conn.cursor() as cur:
        cur.execute("insert into t values (1)")
    assert time.monotonic() - begin >= 0.3 and rule.fired == 1 and around.rows() == [1]


@pytest.mark.parametrize("action,committed", [("hole_after", [1]), ("hole_before", [])])
def test_hole(proxy, wire, around, action, committed):
    rule = proxy.rule(match="insert", action=action)
    wire.send(statement(insert(1)), SYNC)
    assert rule.wait_fired(1)
    wait_until(lambda: around.rows() == committed, 10, "the transaction's end")
    assert wire.silent()
    wire.send(statement(insert(2)), SYNC)
    assert wire.silent() and 2 not in around.rows()
    assert proxy.cut_all() == 1 and wire.until() == []


def test_pause_and_resume(proxy, wire, around):
    proxy.pause()
    wire.send(statement(insert(1)), SYNC)
    assert wire.silent() and around.rows() == []
    proxy.resume()
    assert wire.kinds(wire.until(b"Z")) == "12DCZ" and around.rows() == [1]


def test_a_paused_proxy_takes_connections_and_serves_them_later(proxy):
    proxy.pause()
    got = []
    thread = threading.Thread(target=lambda: got.append(Wire(proxy)))
    thread.start()
    thread.join(0.2)
    assert got == []
    proxy.resume()
    thread.join(20)
    got[0].sock.close()


def test_cut_all(proxy, wire, conn, around):
    assert proxy.cut_all() == 2 and proxy.sessions == 0 and wire.until() == []
    with pytest.raises(psycopg2.OperationalError), conn.cursor() as cur:
        cur.execute("select 1")
    wait_until(lambda: around.sessions() == 0, 10, "the sessions' end")


# --- rules ----------------------------------------------------------------------------------------


def test_skip_times_and_cancel(proxy, wire):
    rule = proxy.rule(match="select 1", action="notice", skip=1, times=2)
    ever = proxy.rule(match="select 1", action="notice_ready", times=-1)
    kinds = []
    for _ in range(4):
        wire.send(statement("select 1"), SYNC)
        kinds.append(wire.kinds(wire.until(b"Z")))
    assert kinds == ["12DCNZ", "12DNCNZ", "12DNCNZ", "12DCNZ"]
    assert (rule.fired, ever.fired) == (2, 4)
    ever.cancel()
    wire.send(statement("select 1"), SYNC)
    assert wire.kinds(wire.until(b"Z")) == "12DCZ" and not rule.wait_fired(3, timeout=0)


def test_wrong_rules_are_refused(proxy):
    with pytest.raises(ValueError):
        proxy.rule(match="x", action="cut_nowhere")
    with pytest.raises(TypeError):
        proxy.rule(match="x", action="cut_rows", row=3)


# --- transparency ---------------------------------------------------------------------------------


def test_a_long_pipeline_passes_unharmed(proxy, wire):
    """More than all socket buffers hold, written before anything is read."""
    rule = proxy.rule(match="never", action="cut_rows")
    units = 20_000
    wire.send(parse("select repeat('x', 500)", "big"), SYNC)
    wire.until(b"Z")
    load = (bind("big") + execute() + SYNC) * units
    writer = threading.Thread(target=wire.send, args=(load,))
    writer.start()
    counts = {}
    while counts.get(b"Z", 0) < units:
        kind, body = wire.read()
        counts[kind] = counts.get(kind, 0) + 1
        assert kind != b"D" or body[6:] == b"x" * 500
    writer.join()
    assert counts == {b"2": units, b"D": units, b"C": units, b"Z": units} and rule.fired == 0


def test_one_large_message(proxy, conn):
    with conn.cursor() as cur:
        cur.execute("select length(%s), repeat('y', 3000000)", ("z" * 3_000_000,))
        assert cur.fetchall() == [(3_000_000, "y" * 3_000_000)]


def test_copy_and_listen(proxy, conn, around):
    conn.autocommit = True
    with conn.cursor() as cur:
        cur.execute("listen news")
        cur.copy_expert("copy t from stdin", io.StringIO("1\n2\n"))
        out = io.StringIO()
        cur.copy_expert("copy t to stdout", out)
        assert out.getvalue() == "1\n2\n" and around.rows() == [1, 2]
    around.run("notify news, 'here'")
    assert select.select([conn], [], [], 20)[0]
    conn.poll()
    assert [n.payload for n in conn.notifies] == ["here"]


def test_cancel_request(proxy, wire, around):
    wire.send(statement("select pg_sleep(60)"), SYNC)
    wait_until(lambda: around.run("select 1 from pg_stat_activity where wait_event = 'PgSleep'"), 10,
               "the statement to run")
    with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
        sock.settimeout(20)
        sock.sendall(struct.pack("!II", 16, 80877102) + wire.backend_key)
        assert sock.recv(1) == b""
    assert sqlstate(dict(wire.until(b"Z"))[b"E"]) == "57014"


def test_tls_is_declined(proxy):
    psycopg2.connect(proxy.dsn(proxy.base), sslmode="prefer").close()
    with pytest.raises(psycopg2.OperationalError, match="does not support SSL"):
        psycopg2.connect(proxy.dsn(proxy.base), sslmode="require")


def test_over_tcp_with_a_password(around):
    base = around.cluster.dsn(around.name, tcp=True)
    with PgProxy("127.0.0.1", around.cluster.port) as proxy:
        conn = psycopg2.connect(proxy.dsn(base))
        with conn.cursor() as cur:
            cur.execute("select 1")
            assert cur.fetchall() == [(1,)]
        conn.close()


def test_no_server_is_an_ended_connection(proxy, tmp_path):
    with PgProxy(str(tmp_path), 5432) as nobody:
        with pytest.raises(psycopg2.OperationalError, match="closed the connection"):
            psycopg2.connect(nobody.dsn(proxy.base))
        assert nobody.refused >= 1
