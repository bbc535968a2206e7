"""The SQL side where one connection is not enough: races of senders, claimers and releases, plans
and buffers at size, and the words that C and SQL share."""

import json
import pathlib
import subprocess
import threading
import time

import psycopg2
import psycopg2.errors
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = "+998901234567"


def claim_sql(explain=""):
    return (explain + "SELECT * FROM postrider.claim(%s, 1, 2, '{campaign}', '{main}', '{main}', "
            "%s, 60000, NULL, NULL)")


def claim(conn, token, limit):
    """The ids to be sent."""
    with conn.cursor() as cur:
        cur.execute(claim_sql(), (token, limit))
        return [row[0] for row in cur.fetchall() if row[1] is not None]


def value(conn, sql, *values):
    with conn.cursor() as cur:
        cur.execute(sql, values or None)
        return cur.fetchone()[0]


def fill(db, n):
    db.sql("INSERT INTO postrider.message (kind, recipient, body) SELECT 'campaign', "
           "'+99890' || to_char(i, 'FM0000000'), 'x' FROM generate_series(1, %s) AS i", n)


def counts_are_exact(db):
    wrong = db.sql("""
        SELECT kind, state, c.count, m.count FROM postrider.counts AS c
          FULL JOIN (SELECT kind, state, count(*) FROM postrider.message GROUP BY kind, state) AS m
         USING (kind, state) WHERE c.count IS DISTINCT FROM m.count""")
    assert wrong == []


class Aside(threading.Thread):
    """Runs one call beside the test; result() gives its value or raises its error."""

    def __init__(self, call, *args):
        super().__init__(daemon=True)
        self.call, self.args, self.value, self.error = call, args, None, None
        self.start()

    def run(self):
        try:
            self.value = self.call(*self.args)
        except Exception as error:
            self.error = error

    def result(self):
        self.join(60)
        assert not self.is_alive(), "still waiting"
        if self.error:
            raise self.error
        return self.value


def wait_blocked(db, pid):
    """Until the backend waits for a lock."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if db.one("SELECT cardinality(pg_blocking_pids(%s))", pid):
            return
    pytest.fail("the other connection never waited")


# -- words ----------------------------------------------------------------------------------------

def test_enums_are_those_of_c(db, tmp_path):
    source = tmp_path / "words.c"
    source.write_text("""
        #include "worker/core/outcome.h"
        #include <stdio.h>
        int main(void)
        {
            for (unsigned i = 0; i < OUTCOME_MAX_; i++)
                printf("outcome %s\\n", outcome_name((enum outcome)i));
            for (unsigned i = 0; i < MSG_STATE_MAX_; i++)
                printf("state %s\\n", msg_state_name((enum msg_state)i));
            return 0;
        }""")
    program = tmp_path / "words"
    subprocess.run(["cc", "-std=c17", "-I", str(ROOT), "-o", str(program), str(source),
                    str(ROOT / "worker/core/outcome.c")], check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    c_words = list(zip(said[0::2], said[1::2]))
    sql_words = db.sql("""
        SELECT t.typname, e.enumlabel FROM pg_enum AS e JOIN pg_type AS t ON t.oid = e.enumtypid
         WHERE t.typnamespace = 'postrider'::regnamespace AND t.typname IN ('outcome', 'state')
         ORDER BY t.typname, e.enumsortorder""")
    assert c_words == sql_words


# -- senders --------------------------------------------------------------------------------------

@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_senders_of_one_key(db, end):
    """D23: the second waits for the first's end; one message, whoever commits."""
    first, second = db.connect(autocommit=False), db.connect(autocommit=False)
    send = "SELECT postrider.send(%s, 'x', dedup_key => 'k-17')"
    first_id = value(first, send, NUMBER)
    aside = Aside(value, second, send, NUMBER)
    wait_blocked(db, second.info.backend_pid)
    getattr(first, end)()
    second_id = aside.result()
    second.commit()
    assert (second_id == first_id) == (end == "commit")
    assert db.sql("SELECT id FROM postrider.message") == [(second_id,)]
    assert value(second, send, NUMBER) == second_id
    counts_are_exact(db)


def test_a_dead_sender_leaves_nothing(db):
    """L8: the connection dies before the commit."""
    conn = db.connect(autocommit=False)
    value(conn, "SELECT postrider.send(%s, 'x', dedup_key => 'k')", NUMBER)
    db.one("SELECT pg_terminate_backend(%s, 30000)", conn.info.backend_pid)
    assert db.one("SELECT count(*) FROM postrider.message") == 0
    assert db.one("SELECT count(*) FROM postrider.dedup") == 0
    counts_are_exact(db)


@pytest.mark.limit(600)
def test_a_million_in_one_call(db):
    began = time.monotonic()
    assert db.one("SELECT postrider.send_many((SELECT array_agg('+99890' || to_char(i, 'FM0000000'))"
                  " FROM generate_series(0, 999999) AS i), '{Hello}')") == 1000000
    took = time.monotonic() - began
    print(f"1,000,000 messages in one send_many: {took:.1f} s, {took:.1f} us a message")
    assert db.sql("SELECT kind, state, count FROM postrider.counts") == [
        ("campaign", "pending", 1000000)]
    assert db.one("SELECT count(*) FROM postrider.message") == 1000000
    # J46: nobody analyzed anything, and a claim reads its batch, not the table.
    conn = db.connect()
    assert len(claim(conn, 1, 500)) == 500
    assert buffers(conn, 2, 500) < 20000


def test_one_notify_a_transaction_and_none_for_bulk(db):
    """J52, J53."""
    listener, sender = db.connect(), db.connect(autocommit=False)
    with listener.cursor() as cur:
        cur.execute("LISTEN postrider")
    for _ in range(5):
        value(sender, "SELECT postrider.send(%s, 'x', kind => 'otp')", NUMBER)
    sender.commit()
    value(sender, "SELECT postrider.send_many(ARRAY[%s], '{x}')", NUMBER)
    sender.commit()
    value(listener, "SELECT 1")
    listener.poll()
    assert [n.payload for n in listener.notifies] == ["due"]


# -- claimers -------------------------------------------------------------------------------------

def test_sixty_four_claimers_share_nothing(db):
    """D17, D11: every row is claimed once."""
    fill(db, 1000)
    ids, start = [], threading.Barrier(64)

    def claimer(number):
        conn = db.connect()
        mine, batch = [], True
        start.wait(30)
        while batch:
            batch = claim(conn, value(conn, "SELECT * FROM postrider.tokens(1)"), 7)
            mine += batch
        conn.close()
        ids.append(mine)

    for aside in [Aside(claimer, i) for i in range(64)]:
        aside.result()
    taken = [i for mine in ids for i in mine]
    assert len(taken) == len(set(taken)) == 1000
    assert db.one("SELECT sum(cardinality(ids)) FROM postrider.claim") == 1000
    assert db.sql("SELECT DISTINCT state, attempts FROM postrider.message") == [("sending", 1)]
    counts_are_exact(db)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_release_meets_a_claim_under_way(db, end):
    """R11: the claim's COMMIT is still under way on a lost connection when it is released."""
    fill(db, 10)
    lost, again = db.connect(autocommit=False), db.connect()
    assert len(claim(lost, 77, 10)) == 10
    aside = Aside(value, again, "SELECT postrider.release(77, 60000)")
    wait_blocked(db, again.info.backend_pid)
    getattr(lost, end)()
    assert aside.result() == (10 if end == "commit" else 0)
    assert db.sql("SELECT DISTINCT state, attempts FROM postrider.message") == [("pending", 0)]
    assert db.one("SELECT count(*) FROM postrider.claim") == (0 if end == "commit" else 1)
    counts_are_exact(db)


def test_a_tombstone_keeps_a_claim_from_committing_late(db):
    """R11: released first; the claim reaches the server only now."""
    fill(db, 10)
    conn = db.connect()
    assert value(conn, "SELECT postrider.release(78, 60000)") == 0
    with pytest.raises(psycopg2.errors.UniqueViolation):
        claim(conn, 78, 10)
    assert db.sql("SELECT DISTINCT state, attempts, token FROM postrider.message") == [
        ("pending", 0, 0)]
    counts_are_exact(db)


def test_sweeper_and_worker_settle_at_once(db):
    """B19: both judge the same ten rows in the same moment; each row has one end, nobody deadlocks."""
    for round_ in range(1, 16):
        fill(db, 10)
        conn = db.connect()
        ids = sorted(claim(conn, round_, 10))
        start = threading.Barrier(2)

        def settle(mine, sql):
            other = db.connect()
            with other.cursor() as cur:
                start.wait(30)
                cur.execute(sql, mine)
                return [row[0] for row in cur.fetchall()]

        tokens = [round_] * 10
        worker = Aside(settle, (ids, tokens), "SELECT n FROM postrider.settle_sent(%s::uuid[], "
                       "%s::bigint[], array_fill('v'::text, '{10}'), '{}')")
        sweeper = Aside(
            settle, (ids, tokens),
            "SELECT n FROM postrider.settle(%s::uuid[], %s::bigint[], array_fill('unknown'::text, "
            "'{10}'), array_fill(0::bigint, '{10}'), array_fill(NULL::text, '{10}'), array_fill(1, "
            "'{10}'), array_fill(0, '{10}'), array_fill(1, '{10}'), array_fill(NULL::text, '{10}'), "
            "array_fill('lost'::text, '{10}'), array_fill('unknown'::text, '{10}'), "
            "array_fill('lost'::text, '{10}'), array_fill(NULL::text, '{10}'), "
            "array_fill(NULL::text, '{10}'), array_fill(1000::bigint, '{10}'), '{}')")
        stale = worker.result() + sweeper.result()
        assert sorted(stale) == list(range(10)), "each row was stale for exactly one of the two"
        assert db.one("SELECT count(*) FROM postrider.message WHERE token = %s "
                      "AND state IN ('sent', 'unknown')", round_) == 10
        conn.close()
    counts_are_exact(db)


def test_partitions_made_by_several_at_once(db):
    connections = [db.connect() for _ in range(6)]
    made = [Aside(value, conn, "SELECT postrider.ensure_partitions(12)") for conn in connections]
    assert sorted(aside.result() for aside in made) == [0, 0, 0, 0, 0, 25]  # five tables, five days


# -- plans ----------------------------------------------------------------------------------------

def buffers(conn, token, limit):
    """Pages touched by one claim, the function's statements included."""
    with conn.cursor() as cur:
        cur.execute(claim_sql("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "), (token, limit))
        plan = cur.fetchone()[0]
    plan = json.loads(plan) if isinstance(plan, str) else plan
    top = plan[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


def plans_of(conn, sql, *values):
    """The plans of the statements inside the functions that a statement calls."""
    with conn.cursor() as cur:
        cur.execute("LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; "
                    "SET auto_explain.log_nested_statements = on; SET client_min_messages = log")
        del conn.notices[:]
        cur.execute(sql, values or None)
        cur.fetchall()
        cur.execute("SET auto_explain.log_min_duration = -1; SET client_min_messages = notice")
    return "\n".join(conn.notices)


def check_plans(conn, first_token):
    with conn.cursor() as cur:
        cur.execute("SELECT * FROM postrider.tokens(1)")
    text = plans_of(conn, claim_sql(), first_token, 5)
    assert "_lane_due_id_idx" in text, text
    assert "Seq Scan on message" not in text and "Bitmap" not in text, text
    with conn.cursor() as cur:
        cur.execute("SELECT coalesce(ids, '{}') FROM (SELECT 1) AS x LEFT JOIN postrider.claim "
                    "ON token = %s", (first_token,))
        ids = cur.fetchone()[0]
    for sql in ("SELECT * FROM postrider.settle_sent(%s::uuid[], %s::bigint[], %s::text[], %s)",
                "SELECT postrider.release(%s, 1000)"):
        values = ((ids, [first_token] * 5, ["v"] * 5, [first_token]) if "sent" in sql
                  else (first_token,))
        text = plans_of(conn, sql, *values)
        assert "_pkey" in text and "Update on" in text, text
        assert "Seq Scan on message" not in text and "_lane_due_id_idx" not in text, text


def test_plans_do_not_depend_on_statistics(db):
    """J44, J46: the same plan on an empty table and on 200,000 rows that nobody analyzed."""
    for partition in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits "
                            "WHERE inhparent = 'postrider.message'::regclass"):
        db.sql(f"ALTER TABLE {partition[0]} SET (autovacuum_enabled = off)")
    old = db.connect()  # has its plans from the empty table
    check_plans(old, 1)
    fill(db, 10000)
    claim(old, 10, 500)
    few = buffers(old, 11, 500)
    fill(db, 190000)
    many = buffers(old, 12, 500)
    print(f"pages a claim of 500: {few} at 10,000 waiting, {many} at 200,000")
    assert many <= 1.5 * few  # J39
    check_plans(old, 20)
    check_plans(db.connect(), 21)


def test_settles_stay_on_their_page(db):
    """J36: a settle changes nothing indexed, and half-filled pages have room for it."""
    fill(db, 5000)
    conn = db.connect()
    batches = {token: sorted(claim(conn, token, 500)) for token in range(1, 11)}
    conn = db.connect(autocommit=False)  # whose figures hold the settles alone
    with conn.cursor() as cur:
        for token, ids in batches.items():
            cur.execute("SELECT * FROM postrider.settle_sent(%s::uuid[], %s::bigint[], %s::text[], "
                        "%s)", (ids, [token] * 500, ["v"] * 500, [token]))
            assert cur.fetchall() == []
        cur.execute("SELECT sum(n_tup_upd)::int, sum(n_tup_hot_upd)::int FROM "
                    "pg_stat_xact_user_tables WHERE schemaname = 'postrider' AND relname LIKE "
                    "'message\\_%%'")
        updated, hot = cur.fetchone()
    conn.commit()
    assert updated == 5000
    assert hot >= 0.95 * updated
    counts_are_exact(db)
