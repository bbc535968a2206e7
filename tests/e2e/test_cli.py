"""The command line: each command with good and bad words, exit codes, and what it says.

What is asserted comes from the promises: exit codes are an interface, an unknown outcome is never
called failed (D21, B4), a cancel that came too late says so (P7), sending an unknown one again needs
a reason that is kept (U3), and a code is never printed unless asked for."""

import glob
import json
import os
import pty
import signal
import subprocess

import pytest

from tests.conftest import default_config
from tests.harness import clean
from tests.harness.procs import binary, run, wait_until

TO = "+998901234567"
NOBODY = "00000000-0000-7000-8000-000000000000"
COMMANDS = ("worker migrate check adopt provider send show status retry cancel segments suppress dev").split()


@pytest.fixture
def cli(db):
    """cli("send", TO, "text") against this test's database; does not judge the exit code."""
    def call(*args, **kwargs):
        return run(*args, dsn=db.dsn, check=False, **kwargs)
    return call


def said(done, code, *words):
    """The command exited so, and its stderr has the words."""
    assert done.returncode == code, (done.args, done.returncode, done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr


def good(done):
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def queue(cli, *args, **kwargs):
    return good(cli("send", *args, **kwargs)).split()[0]


def state(db, message):
    return db.one("select state::text from postrider.message where id = %s", message)


def make(db, kind, wanted, n=1):
    """n messages of a kind in a state that only a worker could bring about; their ids."""
    rows = db.sql("select postrider.send(%s, 'text ' || i, kind => %s) from generate_series(1, %s) as i",
                  TO, kind, n)
    ids = [row[0] for row in rows]
    db.sql("with moved as (update postrider.message set state = %s::postrider.state, due = null,"
           " doubts = (%s = 'unknown')::int, calls = 1, attempts = 1 where id = any(%s::uuid[]) returning kind)"
           " insert into postrider.counter_delta (kind, state, n)"
           " select kind, s::postrider.state, sign from moved, (values ('pending', -1), (%s, 1)) as v(s, sign)",
           wanted, wanted, ids, wanted)
    return ids


# -- words on the command line --------------------------------------------------------------------

@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_on_stdout_and_fits_a_terminal(command):
    done = run(command, "--help")
    assert done.stdout.startswith(f"usage: postrider {command}")
    assert done.stderr == ""
    assert "--help" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_main_help_names_every_command_and_what_is_not_there_yet():
    text = run("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text
    later = text[text.index("later"):]
    for command in ("explain", "campaign", "audit", "purge"):
        assert command in later
        said(run(command, check=False), 2, "not in this version")


@pytest.mark.parametrize("words, fault", [
    ((), "usage: postrider COMMAND"),
    (("statsu",), "did you mean: postrider status"),
    (("send",), "TO or TEXT is missing"),
    (("send", TO), "TO or TEXT is missing"),
    (("send", TO, "a", "b"), 'unexpected "b"'),
    (("send", TO, "a", "--wait", "x"), '--wait is "x", must be a number from 0'),
    (("send", TO, "a", "--wait", "-1"), '--wait is "-1"'),
    (("send", TO, "a", "--wait"), "--wait needs SECONDS"),
    (("send", TO, "a", "--key", "x"), "must be a UUID"),
    (("send", TO, "a", "--meta", "{"), "--meta is not JSON"),
    (("send", TO, "a", "--meta", "[1]"), "--meta must be a JSON object"),
    (("show",), "ID is missing"),
    (("show", "12"), '"12" is no message id'),
    (("show", f"{NOBODY}' or '1'='1"), "is no message id"),
    (("show", NOBODY, "--body", "--no-body"), "exclude each other"),
    (("show", "--jsn", NOBODY), "did you mean --json?"),
    (("show", "--json=1", NOBODY), "--json takes no value"),
    (("status", "-x"), 'unknown option "-x"'),
    (("retry",), "ID or --state is missing"),
    (("retry", "--state", "sent", "--kind", "otp"), "must be failed, expired or unknown"),
    (("retry", "--state", "failed"), "--kind is missing"),
    (("retry", "--kind", "otp", NOBODY), "go with --state"),
    (("retry", "--state", "failed", "--kind", "otp", NOBODY), "not both"),
    (("retry", "--state", "unknown", "--kind", "otp", "--yes"), "--reason TEXT and --yes"),
    (("retry", "--state", "unknown", "--kind", "otp", "--reason", "x"), "--reason TEXT and --yes"),
    (("retry", NOBODY, "x"), '"x" is no message id'),
    (("cancel",), "ID or --all-pending is missing"),
    (("cancel", "--all-pending", "--yes"), "--kind is missing"),
    (("cancel", "--all-pending", "--kind", "otp"), "say --yes"),
    (("check",), "--config is missing"),
    (("check", "-c", "x", "--offline", "--dsn", "y"), "exclude each other"),
    (("worker",), "--config is missing"),
    (("migrate", "now"), 'unexpected "now"'),
    (("dev", "--port", "65536"), "must be a number from 0 to 65535"),
    (("segments",), "TEXT is missing"),
])
def test_a_usage_error_names_the_fault_and_where_help_is(words, fault):
    done = run(*words, check=False, dsn="host=/nonexistent")
    said(done, 2, fault, "--help")
    assert done.stdout == ""


@pytest.mark.parametrize("words", [
    ("status",), ("show", NOBODY), ("send", TO, "x"), ("retry", NOBODY), ("cancel", NOBODY),
    ("adopt",), ("migrate",), ("retry", "--state", "failed", "--kind", "otp"),
])
def test_without_a_database_each_command_says_so(words):
    said(run(*words, check=False, dsn="host=/nonexistent"), 1, "/nonexistent", "hint: ")


def test_a_database_without_the_schema_is_sent_to_migrate(cluster):
    name = cluster.createdb()
    for words in (("status",), ("show", NOBODY), ("send", TO, "x"), ("adopt",)):
        said(run(*words, dsn=cluster.dsn(name), check=False), 1, "postrider migrate")
    said(run("migrate", "--check", dsn=cluster.dsn(name), check=False), 1)
    cluster.dropdb(name)


def test_the_connection_is_dsn_then_environment_then_config(db, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(json.dumps(default_config(db.dsn, "http://127.0.0.1:1")))
    clean_env = {"POSTRIDER_DSN": ""}
    good(run("status", "--config", config, env=clean_env))
    said(run("status", "--config", config, dsn="host=/wrong", check=False), 1, "/wrong")
    good(run("status", "--config", config, "--dsn", db.dsn, dsn="host=/wrong"))
    config.write_text("{")
    said(run("status", "--config", config, env=clean_env, check=False), 3, str(config))


# -- send -------------------------------------------------------------------------------------------

def test_send_prints_the_id_and_stores_what_was_said(cli, db):
    message = queue(cli, TO, "Salom", "--kind", "campaign", "--sender", "Bank", "--meta", '{"a": 1}',
                    "--run-at", "tomorrow 09:00", "--key", NOBODY)
    assert db.sql("select kind, recipient, body, sender, meta, key::text, due > now() from postrider.message "
                  "where id = %s", message) == [("campaign", TO, "Salom", "Bank", {"a": 1}, NOBODY, True)]
    assert json.loads(good(cli("send", TO, "x", "--json"))).keys() == {"id"}


def test_send_reads_the_body_from_stdin(cli, db):
    message = queue(cli, TO, "-", stdin="bir\nikki\n")
    assert db.one("select body from postrider.message where id = %s", message) == "bir\nikki"
    said(cli("send", TO, "-", stdin=""), 1, "body is empty")
    said(cli("send", TO, "-", stdin="a\0b"), 1, "NUL")
    said(cli("send", TO, "-", stdin="x" * 70000), 1, "longer than")


def test_sql_in_any_word_is_only_text(cli, db):
    evil = "x'); drop table postrider.message cascade; --"
    message = queue(cli, TO, evil, "--sender", evil, "--dedup-key", evil)
    assert db.one("select body from postrider.message where id = %s", message) == evil
    said(cli("send", TO, "x", "--kind", evil), 1, "unknown kind")
    said(cli("retry", "--state", "failed", "--kind", evil), 1, "unknown kind")
    said(cli("send", evil, "x"), 1, "is not a phone number")
    assert db.one("select count(*) from postrider.message") == 1


@pytest.mark.parametrize("words, message, hint", [
    (("12", "x"), "is not a phone number", "Give an international number"),
    ((TO, ""), "body is empty", "Give the text"),
    ((TO, "x" * 3000), "segments", "Shorten the text"),
    ((TO, "x", "--kind", "sms"), 'unknown kind "sms"', "otp, transactional, campaign"),
    ((TO, "x", "--expires-at", "2001-01-01"), "out of range", "expires_at must lie in the future"),
    ((TO, "x", "--run-at", "soonish"), "soonish", None),
])
def test_refusals_of_the_database_come_with_its_hint(cli, db, words, message, hint):
    done = cli("send", *words)
    said(done, 1, message, *([f"hint: {hint}"] if hint == "Give the text" else [hint] if hint else []))
    assert done.stdout == ""
    assert db.one("select count(*) from postrider.message") == 0


def test_a_dedup_key_seen_before_gives_the_first_id(cli, db):
    first = queue(cli, TO, "x", "--dedup-key", "k")
    assert queue(cli, TO, "x", "--dedup-key", "k") == first
    done = cli("send", TO, "another text", "--dedup-key", "k")
    assert good(done).split() == [first]
    assert "used before" in done.stderr
    assert db.one("select count(*) from postrider.message") == 1


def test_wait_follows_to_the_vendor_and_tells_what_is_missing(cli, sandbox, worker):
    done = cli("send", TO, "x", "--wait", "0")
    said(done, 1, "still waiting after 0 s", "postrider show")
    sandbox()
    worker()
    out = good(cli("send", TO, "Kodingiz: 482913", "--kind", "otp", "--wait", "20"))
    assert "handed to vendor" in out and "vendor id" in out
    answer = json.loads(good(cli("send", TO, "x", "--wait", "20", "--json")))
    assert answer["state"] == "sent" and answer["provider"] == "main" and answer["vendor_id"]


# -- show -------------------------------------------------------------------------------------------

def test_a_code_is_shown_only_when_asked_for(cli):
    otp = queue(cli, TO, "Kodingiz: 482913", "--kind", "otp")
    for words in ((), ("--json",), ("--no-body",)):
        out = good(cli("show", otp, *words))
        assert "482913" not in out and "Kodingiz" not in out
    assert "Kodingiz: 482913" in good(cli("show", otp, "--body"))
    other = queue(cli, TO, "Balans 8642, kod ٤٨٢٩", "--meta", '{"code": "9731"}')
    for words in ((), ("--json",)):
        out = good(cli("show", other, *words))
        assert "8642" not in out and "٤٨٢٩" not in out and "9731" not in out
    assert "Balans ****, kod ****" in good(cli("show", other))
    assert json.loads(good(cli("show", other, "--json", "--body")))["meta"] == {"code": "9731"}


def test_a_hostile_text_does_not_reach_the_terminal(cli):
    message = queue(cli, TO, "red \x1b[31m\nstate      handed to vendor", "--sender", "\x1b]0;x\x07")
    out = good(cli("show", message, "--body"))
    assert "\x1b" not in out and "\x07" not in out
    assert not any(line.startswith("state      handed") for line in out.splitlines())


def test_show_of_what_is_not_there(cli):
    done = cli("show", NOBODY)
    said(done, 1, f"no message {NOBODY}", "hint: ")
    assert done.stdout == ""


def test_d21_b4_unknown_is_never_called_failed_nor_handed_over_sent(cli, db, sandbox, worker):
    box = sandbox("--drop-before=1")  # every request is lost before it is taken
    worker(providers={"main": {"settings": {"dedup": None, "key_header": "Idempotency-Key"}}})
    done = cli("send", TO, "Salom", "--kind", "campaign", "--wait", "20")
    assert done.returncode == 1  # no vendor is known to have it
    message = done.stdout.split()[0]
    out = good(cli("show", message))
    assert "outcome unknown (may have been sent)" in out
    assert "failed" not in out.lower()
    events = json.loads(good(cli("show", message, "--json")))["timeline"]
    assert [e["event"] for e in events] == ["created", "attempt", "unknown"]
    assert events[1]["outcome"] == "unknown" and events[1]["phase"] == "sent" and events[1]["provider"] == "main"
    assert [e["after_ms"] for e in events] == sorted(e["after_ms"] for e in events)
    # U3: sending it again needs a reason, which is kept and shown
    said(cli("retry", message), 1, "needs a reason", "vendor's log")
    assert state(db, message) == "unknown"
    box.api("/knobs", "PUT", {"drop_before": 0})
    assert "queued again" in good(cli("retry", message, "--reason", "not in the vendor's log"))
    wait_until(lambda: state(db, message) == "sent", what="the retry to be handed over")
    out = good(cli("show", message))
    assert "handed to vendor" in out and "not in the vendor's log" in out
    assert "a duplicate is possible" in out
    for line in out.splitlines():
        assert not line.rstrip().endswith(" sent"), line


def test_a_viewer_sees_no_body_and_no_more(cluster, db):
    db.sql("create role looker login in role postrider_viewer")
    try:
        message = db.one("select postrider.send(%s, 'Salom 12', meta => '{\"a\": 1}')", TO)
        dsn = db.dsn.replace("user=postgres", "user=looker")
        assert dsn != db.dsn
        shown = json.loads(run("show", message, "--json", dsn=dsn).stdout)
        assert not {"body", "body_masked", "meta"} & shown.keys() and shown["state"] == "pending"
        said(run("show", message, "--body", dsn=dsn, check=False), 1, "may not read bodies")
        assert "transactional" in run("status", dsn=dsn).stdout
        said(run("cancel", message, dsn=dsn, check=False), 1, "permission denied", "postrider_ops")
        said(run("adopt", "--yes", dsn=dsn, check=False), 1, "postrider_ops")
    finally:
        db.sql("drop role looker")


# -- status -----------------------------------------------------------------------------------------

def test_status_counts_what_there_is(cli, db):
    make(db, "campaign", "failed", 3)
    make(db, "otp", "unknown", 2)
    queue(cli, TO, "x")
    counts = {(c["kind"], c["state"]): c["count"] for c in json.loads(good(cli("status", "--json")))["counts"]}
    assert counts == {("campaign", "failed"): 3, ("otp", "unknown"): 2, ("transactional", "pending"): 1}
    lines = [line.split() for line in good(cli("status")).splitlines()]
    head = lines[1]
    assert head[:4] == ["kind", "failed", "unknown", "sending"]  # what needs somebody comes first
    assert ["campaign", "3"] == [row for row in lines if row and row[0] == "campaign"][0][:2]
    assert "sent" not in head


def test_status_names_claims_over_their_lease_and_a_database_that_is_not_adopted(cli, db):
    message = queue(cli, TO, "x")
    db.sql("insert into postrider.claim (token, lane, claimed_at, lease_until, ids) values"
           " (7, 1, now() - interval '1 hour', now() - interval '30 minutes', array[%s::uuid]),"
           " (8, 1, now(), now() + interval '1 hour', array[%s::uuid])", message, message)
    db.sql("update postrider.installation set identity = 'another'")
    status = json.loads(good(cli("status", "--json")))
    assert status["claims"]["open"] == 2 and status["claims"]["over_lease"] == 1
    assert 1_790_000 < status["claims"]["most_over_ms"] < 1_900_000
    assert status["adopted"] is False
    text = good(cli("status"))
    assert "over their lease" in text and "30 min" in text and "postrider adopt" in text


def test_status_shows_a_live_worker(cli, sandbox, worker):
    sandbox()
    process = worker()
    status = wait_until(lambda: [w for w in json.loads(good(cli("status", "--json")))["workers"] if w["alive"]],
                        what="the worker to be seen")
    assert [w["pid"] for w in status] == [process.pid]
    assert f"pid {process.pid}" in good(cli("status"))


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_watch_prints_a_line_a_second_until_ctrl_c(db, flags):
    process = clean.spawn([binary(), "status", "--watch", *flags, "--dsn", db.dsn],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        lines = [process.stdout.readline().decode() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        clean.kill(process)
    for line in lines:
        if flags:
            assert json.loads(line)["counts"] == []
        else:
            assert "failed 0" in line and "waiting 0" in line


def test_watch_redraws_on_a_terminal(db):
    ours, theirs = pty.openpty()
    process = clean.spawn([binary(), "status", "--watch", "--dsn", db.dsn], stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while seen.count(b"\x1b[H\x1b[2J") < 2:
            seen += os.read(ours, 4096)
        assert b"kind" in seen and b"Ctrl-C" in seen
    finally:
        clean.kill(process, signal.SIGTERM)
        os.close(ours)


# -- retry and cancel -------------------------------------------------------------------------------

def test_p7_cancel_stops_what_waits_and_is_too_late_for_the_rest(cli, db):
    waiting = queue(cli, TO, "x", "--kind", "otp")
    [flying] = make(db, "otp", "sending")
    done = cli("cancel", waiting, NOBODY, flying)
    said(done, 1, f"no message {NOBODY}")
    assert done.stdout.splitlines()[0] == f"{waiting}  canceled"
    assert done.stdout.splitlines()[1].startswith(f"{flying}  too late")
    assert (state(db, waiting), state(db, flying)) == ("canceled", "sending")
    assert good(cli("cancel", waiting)) == f"{waiting}  canceled\n"  # again is no fault
    done = cli("cancel", "--json", flying)
    assert done.returncode == 1
    assert json.loads(done.stdout) == [{"id": flying, "answer": "too late"}]


def test_cancel_of_a_message_in_doubt_does_not_claim_that_nothing_was_sent(cli, db):
    message = queue(cli, TO, "x")
    db.sql("update postrider.message set doubts = 1 where id = %s", message)
    done = cli("cancel", message)
    assert done.returncode == 1 and "may have been sent" in done.stdout
    assert state(db, message) == "unknown"


def test_cancel_all_pending_of_one_kind_only(cli, db):
    db.sql("select postrider.send_many(array_fill(%s::text, array[1234]), array['x'])", TO)
    other = queue(cli, TO, "x", "--kind", "otp")
    [failed] = make(db, "campaign", "failed")
    assert good(cli("cancel", "--kind", "campaign", "--all-pending", "--yes")) == "1,234 canceled\n"
    assert db.one("select count(*) from postrider.message where state = 'canceled'") == 1234
    assert (state(db, other), state(db, failed)) == ("pending", "failed")
    assert good(cli("cancel", "--kind", "campaign", "--all-pending", "--yes")) == "no such message\n"


def test_long_work_shows_rate_and_time_left_on_a_terminal(db):
    db.sql("select postrider.send_many(array_fill(%s::text, array[6000]), array['x'])", TO)
    ours, theirs = pty.openpty()
    process = clean.spawn([binary(), "cancel", "--kind", "campaign", "--all-pending", "--yes", "--dsn", db.dsn],
                          stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while True:
            shown += os.read(ours, 4096)
    except OSError:  # the other side is closed
        os.close(ours)
    assert process.communicate(timeout=20)[0] == b"6,000 canceled\n"
    assert b"of 6,000 messages" in shown and b"/s, " in shown and b" left" in shown
    assert shown.rstrip().endswith(b"/s") and b"100 %" in shown and shown.count(b"\r\x1b[K[") >= 2


def test_retry_in_bulk_takes_one_kind_and_one_state(cli, db):
    make(db, "campaign", "failed", 1100)
    [expired] = make(db, "campaign", "expired")
    [otp] = make(db, "otp", "failed")
    answer = json.loads(good(cli("retry", "--state", "failed", "--kind", "campaign", "--limit", "600", "--json")))
    assert answer == {"messages": 600, "answers": {"pending": 600}}
    assert db.one("select count(*) from postrider.message where state = 'pending'") == 600
    assert good(cli("retry", "--state", "failed", "--kind", "campaign")) == "500 queued again\n"
    assert (state(db, expired), state(db, otp)) == ("expired", "failed")
    counts = {(c["kind"], c["state"]): c["count"] for c in json.loads(good(cli("status", "--json")))["counts"]}
    assert counts == {("campaign", "pending"): 1100, ("campaign", "expired"): 1, ("otp", "failed"): 1}


def test_u3_unknown_ones_in_bulk_leave_the_reason_in_the_log(cli, db):
    ids = make(db, "campaign", "unknown", 8)
    assert good(cli("retry", "--state", "unknown", "--kind", "campaign", "--reason", "vendor lost them", "--yes")
                ) == "8 queued again\n"
    log = db.sql("select message_id::text, who, reason from postrider.operator_log where action = 'retry'")
    assert sorted(log) == sorted((i, "postgres", "vendor lost them") for i in ids)


def test_retry_of_what_is_over_well_says_so(cli, db):
    [sent] = make(db, "otp", "sent")
    done = cli("retry", sent)
    assert done.returncode == 1 and "not needed: it was handed to the vendor" in done.stdout
    waiting = queue(cli, TO, "x")
    assert "not needed: it is waiting" in good(cli("retry", waiting))
    [failed] = make(db, "otp", "failed")
    assert good(cli("retry", failed)) == f"{failed}  queued again\n"
    said(cli("retry", NOBODY), 1, f"no message {NOBODY}")


# -- adopt ------------------------------------------------------------------------------------------

def test_adopt_asks_unless_told(cli, db):
    assert "nothing to do" in good(cli("adopt"))
    db.sql("update postrider.installation set identity = 'another'")
    done = cli("adopt")
    said(done, 1, "nothing was changed", "--yes")
    assert "another" in done.stdout and "system=" in done.stdout
    assert db.one("select identity from postrider.installation") == "another"
    answer = json.loads(good(cli("adopt", "--yes", "--json")))
    assert answer["was"] == "another" and answer["changed"] is True
    assert db.one("select identity = postrider.identity() from postrider.installation")


def test_adopt_on_a_terminal_takes_only_a_yes(db):
    db.sql("update postrider.installation set identity = 'another'")
    for word, code in ((b"\n", 1), (b"y\n", 0)):
        ours, theirs = pty.openpty()
        process = clean.spawn([binary(), "adopt", "--dsn", db.dsn], stdin=theirs, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        os.close(theirs)
        os.write(ours, word)
        out, err = process.communicate(timeout=20)
        os.close(ours)
        assert process.returncode == code, (out, err)
    assert db.one("select identity = postrider.identity() from postrider.installation")


# -- check ------------------------------------------------------------------------------------------

@pytest.fixture
def config(db, tmp_path):
    def write(change=None):
        made = default_config(db.dsn, "http://127.0.0.1:9000")
        if change:
            change(made)
        path = tmp_path / "postrider.json"
        path.write_text(json.dumps(made, indent=1))
        return path
    return write


def no_dedup(made):
    del made["providers"]["main"]["settings"]["dedup"]


def test_check_says_what_follows_for_each_kind(cli, config):
    out = good(cli("check", "--config", config()))
    assert "main (plugin http)" in out and "knows a key for 1 d" in out
    assert "otp via main: after a timeout, sent again under the same key" in out and "not doubled" in out
    assert "no fault found" in out
    doc = json.loads(good(cli("check", "--config", config(no_dedup), "--json")))
    kinds = {k["kind"]: k for k in doc["providers"][0]["kinds"]}
    assert kinds["campaign"]["duplicate_possible"] is False
    assert "unknown" in kinds["campaign"]["after_timeout"] and "not sent again" in kinds["campaign"]["after_timeout"]
    assert kinds["otp"]["duplicate_possible"] is True and "up to 4 times" in kinds["otp"]["after_timeout"]
    assert doc["ok"] is True and doc["database"]["adopted"] is True and doc["database"]["durable"] is True


def test_check_after_a_short_window_falls_back_to_the_policy(cli, config):
    def short(made):
        made["providers"]["main"]["settings"]["dedup"]["window_s"] = 3600
    kinds = {k["kind"]: k for k in json.loads(good(cli("check", "--config", config(short), "--json")))
             ["providers"][0]["kinds"]}
    assert kinds["campaign"]["after_timeout"].startswith("sent again under the same key for 1 h, then shown as unknown")
    assert kinds["transactional"]["duplicate_possible"] is True
    assert kinds["otp"]["duplicate_possible"] is False  # its five minutes lie inside the hour


def test_check_offline_knows_the_kinds_that_migrate_makes(cli, config):
    path = config(no_dedup)
    ours, theirs = (json.loads(good(cli("check", "--config", path, "--json", *words)))["providers"]
                    for words in ((), ("--offline",)))
    assert ours == theirs


@pytest.mark.parametrize("change, words", [
    (lambda c: c["providers"]["main"].update(plugin="htp"), ('plugin "htp"', 'did you mean "http"')),
    (lambda c: c["providers"]["main"]["settings"].pop("url"), ('plugin "http"', "url")),
    (lambda c: c["providers"]["main"]["settings"].update(urll="x"), ('plugin "http"', "urll")),
    (lambda c: c.update(lease_s=5, settle_allowance_ms=5000), ("lease_s",)),
    (lambda c: c.update(lese_s=5), ("lese_s", "lease_s")),
    (lambda c: c["providers"]["main"]["settings"]["dedup"].update(window_s=4), ("remembers a key", "hint: ")),
    (lambda c: c.update(providers={}), ("providers",)),
])
def test_check_refuses_a_faulty_configuration_with_the_cure(cli, config, change, words):
    said(cli("check", "--config", config(change)), 3, *words)


def test_check_refuses_ask_where_nobody_can_answer(cli, db, config):
    db.sql("update postrider.kind set on_unknown = 'ask' where name = 'campaign'")
    said(cli("check", "--config", config(no_dedup)), 3, 'kind "campaign"', 'provider "main"',
         "neither be asked nor de-duplicates", "choose hold or resend")
    good(cli("check", "--config", config()))  # a vendor that de-duplicates will do


def test_check_looks_at_routes(cli, db, config):
    db.sql("update postrider.kind set route = '{nowhere,main}' where name = 'campaign'")
    assert '"nowhere"' in good(cli("check", "--config", config()))
    db.sql("update postrider.kind set route = '{nowhere}' where name = 'campaign'")
    said(cli("check", "--config", config()), 3, 'kind "campaign" has no provider')


def test_check_looks_at_the_database(cli, db, config):
    path = config()
    db.sql("update postrider.installation set identity = 'another'")
    said(cli("check", "--config", path), 1, "adopted", "postrider adopt")
    db.sql("select postrider.adopt()")
    db.sql(f'alter database "{db.name}" set synchronous_commit = off')
    said(cli("check", "--config", path), 1, "not durable", "synchronous_commit")
    db.sql(f'alter database "{db.name}" reset synchronous_commit')
    db.sql("insert into postrider.schema_version (version, name) values (999, 'future')")
    said(cli("check", "--config", path), 1, "schema version 999", "newer")


def test_check_of_a_database_that_is_away(config):
    path = config(lambda c: c.update(database="host=/nonexistent"))
    done = run("check", "--config", path, env={"POSTRIDER_DSN": ""})  # nobody asked for the database
    assert "not looked at" in done.stdout
    said(run("check", "--config", path, "--dsn", "host=/nonexistent", check=False), 1, "/nonexistent")


def test_check_prints_no_secret(cli, config):
    def secret(made):
        made["admin_token"] = "tok-81236"
        made["database"] = made["database"].replace("user=postgres", "user=postgres&password=pw-9917")
        made["providers"]["main"]["settings"]["headers"] = {"Authorization": "Bearer br-55512"}
    for words in ((), ("--json",)):
        done = cli("check", "--config", config(secret), *words)
        for word in ("tok-81236", "pw-9917", "br-55512"):
            assert word not in good(done) + done.stderr


# -- segments ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, segments, alphabet, culprits", [
    ("x" * 160, 1, "GSM-7", []),
    ("x" * 161, 2, "GSM-7", []),
    ("o‘zbek", 1, "UCS-2", [{"at": 1, "code": 0x2018}]),
    ("ў" * 71, 2, "UCS-2", [{"at": i, "code": 0x45e} for i in range(71)]),
    ("€" * 80, 1, "GSM-7", []),  # two septets each: 160
    ("€" * 81, 2, "GSM-7", []),
])
def test_segments(text, segments, alphabet, culprits):
    answer = json.loads(run("segments", "--json", text).stdout)
    assert (answer["segments"], answer["alphabet"], answer["culprits"]) == (segments, alphabet, culprits)


def test_segments_names_the_culprit():
    out = run("segments", "-", stdin="narx 5`\n").stdout
    assert "1 segment: 7 characters" in out and "character 7: U+0060" in out
    said(run("segments", b"\xff\xfe".decode("utf-8", "surrogateescape"), check=False), 2, "not UTF-8")


# -- dev --------------------------------------------------------------------------------------------

def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Dev:
    def __init__(self, *args):
        self.log = clean.temp_dir("dev-test") / "log"
        with open(self.log, "ab") as log:
            self.process = clean.spawn([binary(), "dev", *args], stdout=log, stderr=log, death_signal="TERM")

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_up(self):
        def up():
            assert self.process.poll() is None, self.text()
            return "Ctrl-C stops" in self.text()
        wait_until(up, 60, self.text)
        self.dir = self.text().split("starting PostgreSQL in ")[1].split()[0]
        self.dsn = self.text().split("psql '")[1].split("'")[0]
        self.children = children_of(self.process.pid)
        assert len(self.children) == 3, self.text()
        return self

    def assert_nothing_left(self):
        assert not os.path.exists(self.dir), os.listdir(self.dir)
        wait_until(lambda: not any(map(is_there, self.children)), what="its children to be gone")


@pytest.fixture
def dev():
    started = []

    def start(*args):
        started.append(Dev(*args))
        return started[-1]
    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            try:
                one.process.wait(40)
            except subprocess.TimeoutExpired:
                clean.kill(one.process)


def test_dev_sends_a_code_and_leaves_nothing(dev):
    one = dev().wait_up()
    out = run("send", "--dsn", one.dsn, "--kind", "otp", "--wait", "20", TO, "Kodingiz: 482913").stdout
    assert "handed to vendor" in out
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(60) == 0, one.text()
    one.assert_nothing_left()
    names = {line.split(" | ")[0].strip() for line in one.text().splitlines() if " | " in line}
    assert {"postgres", "sandbox", "worker", "migrate"} <= names


@pytest.mark.parametrize("which", [0, 1, 2])
def test_dev_ends_when_a_part_of_it_dies(dev, which):
    one = dev().wait_up()
    os.kill(one.children[which], signal.SIGKILL)
    assert one.process.wait(60) == 1, one.text()
    assert "has ended" in one.text()
    one.assert_nothing_left()


def test_dev_ends_by_itself_and_after_a_signal_at_any_moment(dev):
    timed = dev("--seconds", "1")
    assert timed.process.wait(60) == 0, timed.text()
    early = dev()
    wait_until(lambda: "starting PostgreSQL" in early.text(), what="it to begin")
    early.process.send_signal(signal.SIGTERM)
    assert early.process.wait(60) == 0, early.text()
    for one in (timed, early):
        folder = one.text().split("starting PostgreSQL in ")[1].split()[0]
        assert not os.path.exists(folder)


def test_dev_killed_leaves_no_process_and_the_next_run_cleans_up(dev):
    one = dev().wait_up()
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait(10)
    wait_until(lambda: not any(map(is_there, one.children)), what="its children to be gone")
    dev("--seconds", "1").process.wait(60)
    one.assert_nothing_left()
    assert one.dir not in glob.glob("/tmp/postrider-dev-*")


def test_dev_without_postgresql_names_the_cure(tmp_path):
    done = run("dev", env={"POSTRIDER_PGBIN": str(tmp_path)}, check=False)
    said(done, 1, "POSTRIDER_PGBIN", "no initdb")
