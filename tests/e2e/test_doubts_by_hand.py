"""U3: an operator settles doubts in bulk: ask the vendor, take for sent, or (test_cli.py) send again."""

import json

import pytest

from tests.harness.procs import run

TO = "+998901234567"


@pytest.fixture
def doubts(db):
    """Eight messages in doubt at a provider that can be asked."""
    db.sql("insert into postrider.provider (name, plugin, caps) values ('main', 'p', '{\"askable\": true}')")
    ids = [row[0] for row in db.sql("select postrider.send(%s, 'x', kind => 'campaign')::text from generate_series(1, 8)", TO)]
    db.sql("with moved as (update postrider.message set state = 'unknown', due = null, doubts = 1, provider = 'main' returning kind)"
           " insert into postrider.counter_delta (kind, state, n)"
           " select kind, s::postrider.state, sign from moved, (values ('pending', -1), ('unknown', 1)) as v(s, sign)")
    return ids


def retry(db, *args, check=True):
    return run("retry", *args, dsn=db.dsn, check=check)


def test_ask_in_bulk(db, doubts):
    answer = json.loads(retry(db, "--state", "unknown", "--kind", "campaign", "--ask", "--json").stdout)
    assert answer == {"messages": 8, "answers": {"asking": 8}}
    assert db.one("select count(*) from postrider.ask where ask_at <= clock_timestamp()") == 8
    assert db.one("select count(*) from postrider.operator_log where action = 'ask'") == 8


def test_assume_sent_in_bulk_wants_a_reason(db, doubts):
    done = retry(db, "--state", "unknown", "--kind", "campaign", "--assume-sent", "--yes", check=False)
    assert done.returncode == 2 and "--reason" in done.stderr
    out = retry(db, "--state", "unknown", "--kind", "campaign", "--assume-sent", "--reason", "vendor's log", "--yes").stdout
    assert out == "8 taken for sent\n"
    assert db.one("select count(*) from postrider.message where state = 'sent' and doubts = 1") == 8
    assert db.sql("select distinct action, reason from postrider.operator_log where message_id is not null") == [("assume sent", "vendor's log")]


def test_one_by_one(db, doubts):
    assert "the vendor is asked" in retry(db, "--ask", doubts[0]).stdout
    assert "taken for sent" in retry(db, "--assume-sent", "--reason", "he has it", doubts[1]).stdout
    done = retry(db, "--ask", doubts[1], check=False)
    assert done.returncode == 1 and "handed to the vendor" in done.stdout
    db.sql("update postrider.provider set caps = '{}'")
    done = retry(db, "--ask", doubts[2], check=False)
    assert done.returncode == 1 and "cannot be asked" in done.stdout


@pytest.mark.parametrize("words, fault", [
    (("--ask", "--assume-sent", "--reason", "r", "00000000-0000-7000-8000-000000000000"), "not both"),
    (("--ask", "--state", "failed", "--kind", "otp"), "for --state unknown"),
])
def test_words(db, words, fault):
    done = retry(db, *words, check=False)
    assert done.returncode == 2 and fault in done.stderr
