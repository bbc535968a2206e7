"""What README.md and ARCHITECTURE.md say is so: every command and statement they show is run as
written, every table is compared with what it describes, every name they name exists.

A command that README shows and this file does not know fails here."""

import json
import os
import re
import subprocess

import psycopg2
import pytest

from tests.harness import clean
from tests.harness.cluster import bin_dir
from tests.harness.procs import LISTENING, run, wait_until

ROOT = clean.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DRIVER = ROOT / os.environ.get("POSTRIDER_TESTS", "build/release/tests") / "settings_driver"


# -- reading the page -------------------------------------------------------------------------------

def section(text, title):
    """What stands under one heading."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    assert found, f"no section {title}"
    return found.group(1)


def blocks(text):
    """Indented blocks, each without its indentation."""
    found = re.findall(r"(?:(?<=\n\n)|\A)((?:    .*\n|\n(?=    ))+)", text)
    return ["".join(line[4:] + "\n" for line in block.splitlines()) for block in found]


def block_with(word):
    [found] = [b for b in blocks(README) if word in b]
    return found


def commands(block):
    """Its lines as shell commands, without their comments."""
    return [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines() if line.strip()]


def tables(text):
    """Tables as lists of rows of cells, the heading first."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()
             if not re.fullmatch(r"[|\-: ]+", line)] for table in found]


def table_under(text, *heading):
    [found] = [t for t in tables(text) if tuple(t[0][:len(heading)]) == heading]
    return found[1:]


def inline(text):
    """What stands in back-quotes, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", "\n".join(l for l in text.splitlines() if not l.startswith("    ")))


# -- nothing is shown that is not tried ---------------------------------------------------------------

SHELL = {
    "make demo": "test_make_targets", "make test": "test_make_targets",
    "build/postrider dev": "test_dev",
    "make && sudo make install": "test_use_it",
    "export POSTRIDER_DSN=postgresql:///shop": "test_use_it",
    "export MAIN_TOKEN=secret": "test_use_it",
    "postrider migrate": "test_use_it",
    "postrider check --config shop.json": "test_use_it",
    "postrider worker --config shop.json": "test_use_it",
}
OTHER = {  # blocks that are no shell commands, by a word in them
    "begin;": "test_use_it", '"providers"': "test_use_it", "verdict, by the phones": "test_demo_excerpt",
    "pending ──▶": "test_states",
}


def test_everything_shown_is_tried():
    shown = blocks(README)
    assert len(shown) >= 7
    seen = set()
    for block in shown:
        other = [test for word, test in OTHER.items() if word in block]
        for command in [] if other else commands(block):
            assert command in SHELL, f"README shows a command that no test runs: {command}"
            seen.add(command)
        for test in other or [SHELL[c] for c in commands(block)]:
            assert test in globals(), test
    assert seen == set(SHELL), "known here and no longer shown"


def test_commands_in_the_text_exist():
    """`postrider X` and `make X` inside sentences of all three pages."""
    makefile = (ROOT / "Makefile").read_text()
    later = set(re.findall(r"^(\S+): ; \$\(call later", makefile, re.M))
    assert later
    for text in (README, ARCHITECTURE, CONTRIBUTING):
        for words in (w.split() for w in inline(text)):
            if words[0] in ("postrider", "build/postrider") and len(words) > 1:
                out = run(words[1], "--help").stdout
                if " VERB " in out.splitlines()[0] and len(words) > 2:
                    out = run(words[1], words[2], "--help").stdout
                assert "Not in this version" not in out, words
                for option in (w for w in words[2:] if w.startswith("--")):
                    assert option in out, words
            elif words[0] == "make" and len(words) > 1 and "=" not in words[1]:
                assert re.search(rf"^{words[1]}:", makefile, re.M), words
                assert words[1] not in later, words


def test_links_lead_somewhere():
    for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert "://" in target or (ROOT / target).exists(), (page, target)


def make(*args, dry=False):
    """make with what the one above us was told (CC, SAN), and nothing else of it."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    told = os.environ.get("MAKEFLAGS", "").partition("-- ")[2].split()
    told = [t for t in told if re.match(r"(CC|SAN|COV|BUILD)=", t)]
    done = subprocess.run(["make", *(["-n"] if dry else []), *told, *args], cwd=ROOT, env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_make_targets():
    """Both commands on top begin what test_demo and tests/run.py carry out."""
    assert "tests/lab/demo.py" in make("demo", dry=True)
    assert re.search(r"tests/run\.py unit sql e2e smoke", make("test", dry=True))


def test_demo_excerpt():
    """The lines shown are lines that the demo prints today (test_demo runs it)."""
    source = (ROOT / "tests/lab/demo.py").read_text()
    for line in block_with("verdict, by the phones").splitlines():
        words = re.sub(r"^\s*\d+ s\s+", "", line)
        pieces = [p.strip() for p in re.split(r"[\d,.]+(?: ms\b)?", words) if p.strip(" (:")]
        assert pieces, line
        for piece in pieces:
            assert piece in source or piece.replace("(5 s)", "") in source, (line, piece)


# -- the story: install, migrate, check, work, send -------------------------------------------------------

class Shell:
    """Runs lines of the page in one environment, as somebody would who types them."""

    def __init__(self, tmp_path):
        self.dir = tmp_path
        self.env = dict(os.environ)
        self.env.pop("POSTRIDER_PROVIDER_DIR", None)
        self.background = None

    def run(self, line):
        done = subprocess.run(["bash", "-c", line], cwd=self.dir, env=self.env, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line):
        self.log = self.dir / "worker.log"
        with open(self.log, "ab") as log:
            self.background = clean.spawn(["bash", "-c", f"exec {line}"], cwd=self.dir, env=self.env,
                                          stdout=log, stderr=log)

        def up():
            assert self.background.poll() is None, self.log.read_text()
            return LISTENING.search(self.log.read_text())
        return wait_until(up, 30, lambda: self.log.read_text()).group(1)


@pytest.fixture
def shell(tmp_path):
    place = tmp_path / "a place"
    place.mkdir()
    one = Shell(place)
    yield one
    if one.background and one.background.poll() is None:
        one.background.terminate()
        one.background.wait(40)


def psql(dsn, text):
    return subprocess.run([bin_dir() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", dsn], input=text, text=True,
                          capture_output=True, timeout=60, check=False)


@pytest.mark.limit(600)
def test_use_it(cluster, sandbox, shell):
    """"Use it", line by line; only the vendor's address and the two places a test may not use
    (the database's name, the port) differ. Then a rollback sends nothing and a commit sends."""
    vendor = sandbox("--latency-p50=5")
    name = cluster.createdb()
    dsn = cluster.dsn(name)
    config = json.loads(block_with('"providers"'))
    assert config["database"] == "postgresql:///shop"
    config.update(database=dsn, listen="127.0.0.1:0")
    config["providers"]["main"]["settings"]["url"] = vendor.url + "/messages"
    (shell.dir / "shop.json").write_text(json.dumps(config))
    for line in commands(block_with("sudo make install")):
        if line == "make && sudo make install":
            make("install", f"DESTDIR={shell.dir}/root")
            shell.env["PATH"] = f"{shell.dir}/root/usr/local/bin:{shell.env['PATH']}"
            shell.env["POSTRIDER_PROVIDER_DIR"] = f"{shell.dir}/root/usr/local/lib/postrider/providers"
            assert (shell.dir / "root/usr/local/share/doc/postrider/README.md").exists()
        elif line.startswith("export "):
            key, value = line[len("export "):].split("=", 1)
            shell.env[key] = dsn if key == "POSTRIDER_DSN" else value
        elif "postrider check" in line:
            text = shell.run(line)
            assert "no fault found" in text and "main (plugin http)" in text, text
            assert "secret" not in text
        elif "postrider worker" in line:
            shell.start(line)
        else:
            shell.run(line)
    story = block_with("begin;")
    assert story.startswith("begin;\n") and story.endswith("commit;\n")
    cluster.run("create table orders (id integer primary key, item text)", dsn)
    done = psql(dsn, story.replace("commit;", "rollback;"))
    assert done.returncode == 0, done.stderr
    assert cluster.run("select count(*) from postrider.messages", dsn) == [(0,)]
    done = psql(dsn, story)
    assert done.returncode == 0, done.stderr
    vendor.api("/wait?count=1&timeout_ms=20000")
    wait_until(lambda: cluster.run("select state from postrider.messages", dsn) == [("sent",)], what="its end stored")
    stats = vendor.api("/stats")
    assert (stats["requests"], stats["taken"], stats["duplicates"]) == (1, 1, 0)
    [entry] = vendor.api("/ledger")["entries"]
    assert entry["to"] == "+998901234567"
    assert cluster.run("select id from orders", dsn) == [(4711,)]
    # Once more: the order is there already, so all of it is refused, and the message with it.
    assert psql(dsn, story).returncode == 3
    assert cluster.run("select count(*) from postrider.messages", dsn) == [(1,)]
    # The two commands that look.
    assert "handed to vendor" in shell.run(f"postrider show {entry['key']}")
    assert "transactional" in shell.run("postrider status")
    cluster.dropdb(name)


def test_dev():
    """The line, made to end by itself; it prints the dashboard's address and a psql line."""
    [line] = [c for c in SHELL if c.endswith(" dev")]
    done = run(*line.split()[1:], "--seconds", "1")
    assert re.search(r"dashboard\s+http://127\.0\.0\.1:\d+/", done.stdout)
    assert re.search(r"""psql '.*' -c "select postrider\.send\('\+998901234567'.*\)"$""", done.stdout, re.M)


# -- tables against what they describe --------------------------------------------------------------------

def test_settings():
    """The C table printed as markdown stands in the README, word for word. To renew it:
    build/release/tests/settings_driver."""
    printed = subprocess.run([DRIVER], capture_output=True, text=True, check=True, timeout=20).stdout
    top, provider = tables(printed)
    assert len(top) > 10 and len(provider) > 8
    part = section(README, "Configuration")
    assert table_under(part, "setting") == top[1:]
    assert table_under(part, "of each provider") == provider[1:]


def test_the_sample_config_names_known_settings_only():
    """deploy/examples passes the same check, and so do its values."""
    done = run("check", "--offline", "--config", ROOT / "deploy/examples/postrider.json",
               env={"MAIN_TOKEN": "fake", "POSTRIDER_ADMIN_TOKEN": "fake"})
    assert "no fault found" in done.stdout


def test_kinds(db):
    def spelled(row):
        name, lane, on_unknown, ttl, attempts, reserved = row
        return [f"`{name}`", str(lane), on_unknown, ttl, str(attempts), f"{reserved} %" if reserved else "–"]
    rows = db.sql("select name, lane, on_unknown, case when ttl = interval '1 day' then '1 day'"
                  " else extract(epoch from ttl)::int / 60 || ' minutes' end, attempts, round(reserved * 100)::int"
                  " from postrider.kind order by lane")
    assert table_under(README, "kind", "lane") == [spelled(row) for row in rows]


REFUSED = {  # one statement that is refused so
    "PR001": "select postrider.send('12', 'x')",
    "PR002": "select postrider.send('+998901234567', '')",
    "PR003": "select postrider.send('+998901234567', repeat('x', 2000))",
    "PR004": "select postrider.send('+998901234567', 'x', kind => 'letter')",
    "PR005": "select postrider.send('+998901234567', 'x', expires_at => now() - interval '1 second')",
    "PR006": "select postrider.send_many(array['+998901234567', '+998901234568', '+998901234569'], array['x', 'y'])",
    "PR007": "select postrider.cancel('00000000-0000-7000-8000-000000000000')",
    "PR008": None,  # see below
}


def test_sqlstates(db):
    listed = dict(re.findall(r"(PR\d{3}) ([^,.]+)", re.sub(r"\s+", " ", README)))
    raised = set(re.findall(r"ERRCODE = '(PR\d{3})'", (ROOT / "sql/003_producer.sql").read_text()))
    assert set(listed) == raised == set(REFUSED)
    held = db.one("select postrider.send('+998901234567', 'x')::text")
    db.sql("update postrider.message set state = 'unknown', due = null, doubts = 1")
    for code, statement in REFUSED.items():
        with pytest.raises(psycopg2.Error) as caught:
            db.sql(statement or f"select postrider.retry('{held}')")
        assert caught.value.pgcode == code
        assert caught.value.diag.message_primary and caught.value.diag.message_hint
    assert db.one("select count(*) from postrider.message") == 1


def test_calls(db):
    """Every function shown exists with the arguments shown, and no other; each does what its row says."""
    for name, words in re.findall(r"`postrider\.(\w+)\(([^)`]*)\)`", section(README, "Use it")):
        shown = [w.replace("=>", "").strip() for w in words.split(",") if w.strip()]
        [(names,)] = db.sql("select p.proargnames from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
                            " where n.nspname = 'postrider' and p.proname = %s", name)
        assert shown == [n for n in names if n not in ("ordering_key", "supersede_key")], name
    assert db.one("select postrider.send_many(array['+998901234567', '+998901234568'], array['x'])") == 2
    db.sql("insert into postrider.message (recipient, body, kind)"
           " select '+99890123456' || n, 'Salom', 'campaign' from generate_series(0, 9) as n")
    assert db.one("select sum(count) from postrider.counts where state = 'pending'") == 12
    for word in ("ordering_key", "supersede_key"):
        with pytest.raises(psycopg2.Error) as caught:
            db.sql(f"select postrider.send('+998901234567', 'x', {word} => 'a')")
        assert caught.value.pgcode == "0A000"
    one = db.one("select postrider.send('+998901234567', 'x', dedup_key => 'order:1')::text")
    assert db.one("select postrider.send('+998901234567', 'x', dedup_key => 'order:1')::text") == one
    assert db.one("select postrider.cancel(%s)", one) == "canceled"
    assert db.one("select postrider.retry(%s, 'the customer called')", one) == "pending"
    assert db.one("select count(*) from postrider.messages") == 13
    assert db.sql("select * from postrider.attempts") == []


def test_states(db):
    known = {s for (s,) in db.sql("select unnest(enum_range(null::postrider.state))::text")}
    drawn = set(re.findall(r"\b[a-z]+(?=\s*──)|(?<=▶ )[a-z]+", block_with("pending ──▶")))
    assert drawn == known - {"suppressed"}  # a state whose place is kept
    for row in table_under(ARCHITECTURE, "from", "to"):
        named = {w.strip() for cell in row[:2] for w in re.sub(r"\(.*?\)", "", cell).split(",")}
        assert named <= known, row


def test_metrics(db, sandbox, worker):
    vendor = sandbox()
    db.sql("select postrider.adopt()")  # a copy of the migrated database
    one = worker()
    db.sql("select postrider.send('+998901234567', 'x', kind => 'otp')")
    vendor.api("/wait?count=1&timeout_ms=20000")
    for name in ("messages", "oldest_due_seconds"):  # figures of the database come now and then
        wait_until(lambda n=name: any(m.startswith(f"postrider_{n}{{") for m in one.metrics()), what=f"{name} at /metrics")
    shown = list(one.metrics())
    names = {re.split(r"[{]", m)[0] for m in shown}
    told = [w for w in inline(README) if w.startswith("postrider_") and w not in ROLES]
    assert len(told) >= 3
    for word in told:
        name, _, labels = word.partition("{")
        assert name in names, word
        if name != "postrider_messages" and labels:
            assert word in shown, word
    assert any(m.startswith("postrider_messages{") and 'state="' in m for m in shown)
    for path in ("/metrics", "/healthz", "/readyz", "/"):
        assert one.http(path)[0] == 200, path


def test_four_connections_and_no_open_transaction(db, sandbox, worker):
    """R1: while calls are in the air nothing but four idle sessions is left of the worker in PostgreSQL."""
    vendor = sandbox("--latency-p50=60000", "--latency-p99=60000")
    db.sql("select postrider.adopt()")
    db.sql("select postrider.send_many(array_fill('+998901234567'::text, array[40]), array['x'])")
    one = worker(lease_s=60, providers={"main": {"timeout_ms": 30000}})
    wait_until(lambda: vendor.api("/stats")["in_air"] == 40, what="all calls in the air")
    assert db.sql("select state, count(*)::int from postrider.message group by 1") == [("sending", 40)]
    seen = db.sql("select pid, xact_start is not null and state <> 'active' from pg_stat_activity"
                  " where application_name like 'postrider/%%' and datname = %s", db.name)
    assert len(seen) == 4 and not any(waiting for _, waiting in seen), seen
    # Nothing holds a snapshot or a lock over the calls: all it has begun since then is over soon.
    begun = "select min(xact_start) from pg_stat_activity where application_name like 'postrider/%%' and datname = %s"
    mark = db.one("select clock_timestamp()")
    wait_until(lambda: (lambda at: at is None or at > mark)(db.one(begun, db.name)), what="no older transaction")
    assert vendor.api("/stats")["in_air"] == 40
    one.kill()  # nobody waits a minute for these answers


ROLES = ("postrider_producer", "postrider_worker", "postrider_ops", "postrider_viewer")


def test_roles(db):
    assert set(re.findall(r"`(postrider_(?:producer|worker|ops|viewer))`", README)) == set(ROLES)
    for role in ROLES:
        reads_bodies, sends, inserts = db.sql(
            "select has_column_privilege(%s, 'postrider.messages', 'body', 'select'),"
            " has_function_privilege(%s, (select oid from pg_proc where proname = 'send'"
            "  and pronamespace = 'postrider'::regnamespace), 'execute'),"
            " has_any_column_privilege(%s, 'postrider.message', 'insert')", role, role, role)[0]
        assert reads_bodies == (role in ("postrider_worker", "postrider_ops")), role
        assert sends == (role != "postrider_viewer"), role
        assert inserts == (role == "postrider_ops"), role


# -- ARCHITECTURE -----------------------------------------------------------------------------------------

def sources(*patterns):
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns for path in ROOT.glob(pattern))


def test_rules_name_what_exists():
    """Each rule names functions that are defined, and tests that are there, in the file named."""
    code = sources("worker/**/*.c", "providers/**/*.c", "sql/*.sql")
    rows = table_under(ARCHITECTURE, "rule", "enforced by")
    assert [re.match(r"R\d+", row[0]).group() for row in rows] == [f"R{n}" for n in range(1, 13)]
    for rule, enforced, proved in rows:
        functions = re.findall(r"`(?:postrider\.)?(\w+)`", enforced)
        assert functions, rule
        for name in functions:
            assert re.search(rf"^(?:[a-z][^\n;]*\W)?{name}\([^;]*?\)\n\{{|FUNCTION postrider\.{name}\(|^#define {name} ",
                             code, re.M), (rule, name)
        files = re.findall(r"`(\w+\.(?:py|c|sql))`(?:: ((?:`\w+`(?:, )?)+))?", proved)
        assert files, rule
        for file, tests in files:
            [path] = [p for kind in ("unit", "sql", "e2e") for p in (ROOT / "tests" / kind).glob(file)]
            for test in re.findall(r"`(\w+)`", tests):
                assert re.search(rf"^(?:def|static void) {test}\(", path.read_text(encoding="utf-8"), re.M), (file, test)


def test_rules_are_named_where_they_are_enforced():
    code = sources("worker/**/*.[ch]", "sql/*.sql")
    for n in range(1, 13):
        assert re.search(rf"\bR{n}\b", code), f"no comment names R{n}"


def test_architecture_names_existing_files():
    for path in re.findall(r"`((?:worker|tests|sql|providers|deploy)/[\w./*-]+)`", ARCHITECTURE + CONTRIBUTING):
        assert list(ROOT.glob(path)), path
