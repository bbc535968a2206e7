"""`provider list`, `provider test`, `suppress`, and what `check` says of vendors.

What a vendor can prove is asserted from its documentation: Twilio de-duplicates nothing and shows a list of
messages, Infobip refuses a known messageId, Kannel has neither key nor look-up. `provider test` is judged by
the phones of the sandbox, which speaks each dialect independently of the plugin."""

import json
import os
import pty
import re

import pytest

from tests.conftest import default_config
from tests.harness import clean
from tests.harness.procs import Sandbox, binary, run, wait_until

TO = "+998901230000"
REFUSED = "+998901239904"
LOST = "+998901239903"
TWILIO = {"account_sid": "AC00000000000000000000000000000001", "auth_token": "sandbox-secret", "from": "+15005550006"}
SETTINGS = {  # as the sandbox's accounts
    "twilio": TWILIO,
    "infobip": {"api_key": "sandbox-key", "from": "Acme"},
    "kannel": {"username": "postrider", "password": "s3cret-pw", "from": "Acme"},
    "eskiz": {"email": "test@example.uz", "password": "s3cret-pw"},
    "aws-sns": {"region": "eu-central-1", "access_key_id": "AKIDSANDBOX", "secret_access_key": "sandbox-secret"},
}
PASSWORD = {"kannel": ("password", "s3cret-pw"), "eskiz": ("password", "s3cret-pw")}
SECRETS = {  # what must not be printed; the account as well
    "twilio": [TWILIO["auth_token"], TWILIO["account_sid"]],
    "infobip": ["sandbox-key"],
    "kannel": ["s3cret-pw"],
    "eskiz": ["s3cret-pw", "test@example.uz", "eyJ"],  # the token is a JWT
    "aws-sns": ["sandbox-secret", "AKIDSANDBOX"],
}
WRONG = {"twilio": "auth_token", "infobip": "api_key", "kannel": "password", "eskiz": "password",
         "aws-sns": "secret_access_key"}


def said(done, code, *words):
    assert done.returncode == code, (done.args, done.returncode, done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr
    return done


def good(done):
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def dialect():
    """dialect("twilio"): the sandbox that speaks so, one a module."""
    running = {}

    def make(name):
        if name not in running:
            words = [f"--dialect-set={k}={v}" for k, v in [PASSWORD[name]]] if name in PASSWORD else []
            running[name] = Sandbox(f"--dialect={name}", "--drop-mode=reset", *words)
        return running[name]
    yield make
    for one in running.values():
        one.stop()


@pytest.fixture
def write(tmp_path):
    def make(providers, **more):
        path = tmp_path / "postrider.json"
        path.write_text(json.dumps({"providers": providers, **more}))
        return path
    return make


def one(plugin, url="http://127.0.0.1:9", timeout_ms=27000, **over):
    return {"plugin": plugin, "timeout_ms": timeout_ms, "settings": {**SETTINGS[plugin], "url": url, **over}}


THREE = {name: one(name) for name in ("twilio", "infobip", "kannel")}


def try_it(config, *args, **kwargs):
    return run("provider", "test", *args, "--config", config, check=False, **kwargs)


# -- check ------------------------------------------------------------------------------------------

def follows(out):
    """{(kind, provider): words} of what check printed."""
    return {(k, p): w for k, p, w in re.findall(r"^  (\w+) via (\w+): after a timeout, (.*)$", out, re.M)}


def test_check_says_what_follows_at_three_vendors(write):
    words = follows(good(run("check", "--offline", "--config", write(THREE))))
    assert len(words) == 9
    # Nothing is de-duplicated, but the list can be asked once it shows all: 27 s + 60 s.
    assert words["campaign", "twilio"].startswith("asked about after 1 min 27 s, and never sent again")
    # Infobip knows a messageId for an hour by default; a code lives five minutes.
    assert words["otp", "infobip"].startswith("sent again under the same key for 1 h, which covers its life")
    assert words["campaign", "infobip"].startswith("sent again under the same key for 1 h, then asked about")
    assert words["campaign", "kannel"].startswith("not sent again, but shown as unknown until")
    assert "up to 4 times" in words["otp", "kannel"]


def test_check_says_the_same_to_programs(write):
    doc = json.loads(good(run("check", "--offline", "--json", "--config", write(THREE))))
    found = {p["name"]: p for p in doc["providers"]}
    assert (found["twilio"]["dedup"], found["twilio"]["ask"]) == ("none", "text")
    assert (found["infobip"]["dedup"], found["infobip"]["ask"], found["infobip"]["dedup_window_ms"]) == \
        ("reject", "key", 3600000)
    assert (found["kannel"]["dedup"], found["kannel"]["ask"], found["kannel"]["receipts"]) == ("none", "none", "unsigned")
    kinds = {(p, k["kind"]): k for p in found for k in found[p]["kinds"]}
    assert kinds["twilio", "campaign"]["next"] == "ask" and kinds["twilio", "campaign"]["ask_after_ms"] == 87000
    assert not kinds["twilio", "campaign"]["duplicate_possible"]
    assert kinds["infobip", "otp"]["next"] == "resend_key" and not kinds["infobip", "otp"]["duplicate_possible"]
    assert kinds["kannel", "campaign"]["next"] == "hold"
    assert kinds["kannel", "otp"]["next"] == "resend" and kinds["kannel", "otp"]["duplicate_possible"]


def test_check_warns_of_receipts_that_could_be_had(write):
    whole = {"public_url": "https://sms.example.com/", "listen": "127.0.0.1:0"}
    out = good(run("check", "--offline", "--config", write({"main": one("kannel")}, **whole)))
    assert 'provider "main": its vendor sends receipts, but receipt_token is not set' in out
    with_token = dict(one("kannel"), receipt_token="guard-of-receipts-1")
    done = run("check", "--offline", "--config", write({"main": with_token}, **whole))
    assert "its vendor sends receipts" not in done.stdout
    assert "https://sms.example.com/receipts/main/TOKEN" in done.stdout and "guard-of-receipts" not in done.stdout
    # Amazon SNS sends none: nothing to set up.
    assert "its vendor sends receipts" not in good(
        run("check", "--offline", "--config", write({"main": one("aws-sns")})))


def test_check_warns_where_the_vendors_unit_is_too_coarse(write, db):
    db.sql("update postrider.kind set ttl = '30 seconds' where name = 'otp'")
    out = good(run("check", "--dsn", db.dsn, "--config", write({"main": one("kannel")})))
    assert 'kind "otp" lives 30 s, but the vendor of "main" is told lives in minutes' in out
    assert 'kind "campaign" lives' not in out


def test_check_refuses_ask_at_a_vendor_that_knows_only_its_own_id(write, db):
    db.sql("update postrider.kind set on_unknown = 'ask' where name = 'campaign'")
    telnyx = {"plugin": "telnyx", "settings": {"api_key": "k", "from": "+15005550006"}}
    said(run("check", "--dsn", db.dsn, "--config", write({"main": telnyx}), check=False), 3,
         'kind "campaign"', "neither be asked nor de-duplicates")


# -- provider list ----------------------------------------------------------------------------------

def test_list_says_what_each_can_prove(write):
    config = write(THREE, database="host=/nonexistent")
    done = said(run("provider", "list", "--config", config, env={"POSTRIDER_DSN": ""}), 0, "doors are not known")
    parts = {p.split(" ", 1)[0]: p for p in done.stdout.split("\n\n")}
    assert "cannot de-duplicate" in parts["twilio"] and "by number, time and text" in parts["twilio"]
    assert "refuses the repeat" in parts["infobip"] and "by our key" in parts["infobip"]
    assert "cannot be asked" in parts["kannel"] and "door: not known" in parts["kannel"]
    for words in SECRETS.values():
        assert not any(w in done.stdout + done.stderr for w in words)


def test_list_knows_the_doors_of_living_workers(db, worker, sandbox, tmp_path):
    sandbox = sandbox()
    sandbox.api("/knobs", "PUT", {"status_all": 401})
    worker()
    run("send", TO, "x", "--kind", "otp", dsn=db.dsn)

    def doors():
        doc = json.loads(good(run("provider", "list", "--json", dsn=db.dsn)))
        return doc["providers"][0].get("doors") if doc["providers"] else None
    wait_until(lambda: doors() == [{"door": "held", "why": "held", "workers": 1}], 30, lambda: f"held: {doors()}")
    assert "door: held at 1 worker: held" in good(run("provider", "list", dsn=db.dsn))
    config = tmp_path / "c.json"
    config.write_text(json.dumps(default_config(db.dsn, sandbox.url)))
    [main] = json.loads(good(run("provider", "list", "--json", "--config", config)))["providers"]
    assert main["doors"][0]["door"] == "held" and main["dedup"] == "replay"


def test_list_of_a_database_that_nobody_has_worked_on(db):
    assert good(run("provider", "list", dsn=db.dsn)).startswith("no provider")
    said(run("provider", "list", dsn="host=/nonexistent", check=False), 1, "/nonexistent")


# -- provider test ----------------------------------------------------------------------------------

@pytest.mark.parametrize("plugin", SETTINGS)
def test_one_message_reaches_the_phone(dialect, write, plugin):
    vendor = dialect(plugin)
    text = f"Salom & {plugin}: 1+1=2?"
    before = len(vendor.api("/phone/%2B998901230000")["texts"]) if plugin else 0
    done = try_it(write({"main": one(plugin, vendor.url)}), "main", "--to", TO, "--text", text, "--yes")
    assert re.search(r"^verdict +accepted: ", good(done), re.M)
    texts = vendor.api("/phone/%2B998901230000")["texts"]
    assert len(texts) == before + 1 and texts[-1]["text"] == text
    for word in SECRETS[plugin]:
        assert word not in done.stdout + done.stderr


@pytest.mark.parametrize("plugin", SETTINGS)
def test_a_wrong_password_is_told_and_not_shown(dialect, write, plugin):
    vendor = dialect(plugin)
    config = write({"main": one(plugin, vendor.url, **{WRONG[plugin]: "wr0ng+pass word"})})
    done = try_it(config, "main", "--to", TO, "--yes")
    assert done.returncode == 1, done
    assert re.search(r"^verdict +held: ", done.stdout, re.M) or "refused the login" in done.stderr
    assert re.search(r"^reply +[24]\d\d, after ", done.stdout, re.M)
    assert "wr0ng" not in done.stdout + done.stderr


@pytest.mark.parametrize("plugin", ["twilio", "infobip", "kannel"])
def test_a_refused_number_is_exit_1(dialect, write, plugin):
    config = write({"main": one(plugin, dialect(plugin).url)})
    doc = try_it(config, "main", "--to", REFUSED, "--yes", "--json")
    assert doc.returncode == 1
    doc = json.loads(doc.stdout)
    assert doc["outcome"] == "rejected" and doc["sent"] is True and doc["id"] is None


def test_a_lost_answer_is_unknown_until_the_look_up_finds_it(dialect, write):
    config = write({"main": one("twilio", dialect("twilio").url, lookup_delay_s=2)})
    lost = try_it(config, "main", "--to", LOST, "--text", "lost 1", "--yes")
    assert lost.returncode == 1 and re.search(r"^verdict +unknown: .*may have been taken", lost.stdout, re.M)
    asked = try_it(config, "main", "--to", LOST, "--text", "lost 2", "--yes", "--ask", "--json")
    doc = json.loads(good(asked))
    assert doc["outcome"] == "unknown" and doc["lookup"]["finding"] == "has it"
    [taken] = [m for m in dialect("twilio").api("/messages?limit=10")["messages"] if m["text"] == "lost 2"]
    assert doc["lookup"]["ids"] == taken["ids"]


def test_a_vendor_that_is_away_gets_nothing(write):
    done = try_it(write({"main": one("kannel")}), "main", "--to", TO, "--yes", "--json")
    assert done.returncode == 1
    doc = json.loads(done.stdout)
    assert doc["outcome"] == "unreached" and doc["sent"] is False and doc["reply"]["status"] == 0


@pytest.mark.parametrize("plugin", SETTINGS)
def test_a_dry_run_shows_the_request_and_sends_nothing(dialect, write, plugin):
    vendor = dialect(plugin)
    before = vendor.api("/stats")["requests"]
    done = try_it(write({"main": one(plugin, vendor.url)}), "main", "--to", TO, "--dry-run")
    assert f"POST {vendor.url}" in good(done) and "nothing was sent" in done.stdout
    assert vendor.api("/stats")["requests"] == before
    for word in SECRETS[plugin]:
        assert word not in done.stdout + done.stderr


def test_secrets_are_found_however_they_are_written(write):
    settings = {"url": "https://user.example/send/x?apikey=q%2Fk&to={{recipient}}",
                "headers": {"X-Account": "acme 7/8\"9", "Authorization": "Bearer br-55512"},
                "body": {"to": "{{recipient}}", "text": "{{body}}", "pass": "p\"w\\9 ä", "pin": 71234,
                         "mixed": "sig=zz-81236;{{key}}"},
                "accepted": {"status": [200], "id": "/id"}}
    config = write({"main": {"plugin": "http", "settings": settings}})
    out = good(try_it(config, "main", "--to", TO, "--dry-run", "--text", "plain text", "--json"))
    request = json.loads(out)["request"]
    for word in ("q%2Fk", "7/8", "br-55512", "w\\\\9", "71234", "zz-81236"):
        assert word not in json.dumps(request, ensure_ascii=False), word
    assert request["url"].startswith("https://user.example/send/x?apikey=****&to=")
    assert "plain text" in request["body"] and '"pin":****' in request["body"]
    assert {"name": "Authorization", "value": "Bearer ****"} in request["headers"]


def test_what_came_from_elsewhere_is_always_a_secret(write):
    hidden = one("kannel", {"env": "GATEWAY_URL"})
    config = write({"main": hidden})
    done = try_it(config, "main", "--to", TO, "--dry-run", env={"GATEWAY_URL": "http://hidden.example:9000"})
    assert "hidden.example" not in good(done) and "POST ****/cgi-bin/sendsms" in done.stdout


@pytest.mark.parametrize("words, fault", [
    ((), "NAME is missing"),
    (("main",), "--config is missing"),
    (("main", "-c", "FILE"), "--to is missing"),
    (("main", "-c", "FILE", "--to", "12"), "no phone number"),
    (("main", "-c", "FILE", "--to", TO), "say --yes"),
    (("main", "-c", "FILE", "--to", TO, "--yes", "--text", ""), "--text is empty"),
    (("mian", "-c", "FILE", "--to", TO, "--yes"), 'did you mean "main"'),
    (("main", "-c", "FILE", "--to", TO, "--dry-run", "--ask"), "neither"),
    (("main", "-c", "FILE", "--to", TO, "--yes", "--ask"), "cannot be asked"),
])
def test_usage_errors_send_nothing(write, words, fault):
    path = write({"main": one("kannel")})
    done = run("provider", "test", *[path if w == "FILE" else w for w in words], check=False)
    said(done, 2, fault, "--help")


def test_a_refused_configuration_is_exit_3(write):
    bad = one("twilio")
    del bad["settings"]["account_sid"]
    said(try_it(write({"main": bad}), "main", "--to", TO, "--yes"), 3, 'provider "main"', "account_sid")
    said(run("provider", "list", "--config", write({"main": bad}), check=False), 3, "account_sid")


@pytest.mark.parametrize("answer, code, sent", [(b"n\n", 1, 0), (b"y\n", 0, 1)])
def test_on_a_terminal_it_asks_first(dialect, write, answer, code, sent):
    vendor = dialect("kannel")
    config = write({"main": one("kannel", vendor.url)})
    before = vendor.api("/stats")["requests"]
    ours, theirs = pty.openpty()
    process = clean.spawn([binary(), "provider", "test", "main", "--to", TO, "--config", config], stdin=theirs,
                          stdout=theirs, stderr=theirs)
    os.close(theirs)
    heard = b""
    while b"[y/N]" not in heard:
        heard += os.read(ours, 1000)
    assert b"one real message through main to " + TO.encode() in heard
    os.write(ours, answer)
    assert process.wait(20) == code
    os.close(ours)
    assert vendor.api("/stats")["requests"] == before + sent


def test_verbs(db):
    out = good(run("provider", "--help"))
    assert out.startswith("usage: postrider provider ") and "list" in out and "test" in out
    said(run("provider", check=False), 2, "a verb is missing")
    said(run("provider", "lsit", check=False), 2, "did you mean list")
    said(run("provider", "hold", "main", check=False), 2, "not in this version")
    said(run("suppress", "load", "x", check=False), 2, "not in this version")
    for words in (("provider", "list"), ("provider", "test"), ("suppress", "add"), ("suppress", "remove"), ("suppress", "list")):
        text = good(run(*words, "--help"))
        assert text.startswith("usage: postrider " + " ".join(words)) and max(map(len, text.splitlines())) <= 100


# -- suppress ---------------------------------------------------------------------------------------

def rows(db):
    return db.sql("select recipient, class, source, reason from postrider.suppression order by 1, 2")


def test_suppress_adds_lists_and_removes(db):
    def cli(*args):
        return run("suppress", *args, dsn=db.dsn, check=False)
    out = good(cli("add", "998 90 123-45-67", "+998901234568", "--reason", "asked by phone"))
    assert out.count("suppressed") == 2
    assert rows(db) == [("+998901234567", "all", "operator", "asked by phone"),
                        ("+998901234568", "all", "operator", "asked by phone")]
    assert "already" in good(cli("add", "+998901234567"))  # and its first reason stays
    assert json.loads(good(cli("add", "+998901234567", "--class", "marketing", "--json"))) == {
        "results": [{"recipient": "+998901234567", "changed": True}]}
    listed = json.loads(good(cli("list", "--json")))["suppressed"]
    assert {(e["recipient"], e["class"]) for e in listed} == {
        ("+998901234567", "all"), ("+998901234567", "marketing"), ("+998901234568", "all")}
    assert "+998901234568" not in good(cli("list", "+998901234567"))
    assert good(cli("list", "--class", "marketing")).split()[:3] == ["+998901234567", "marketing", "operator"]
    assert "taken off" in good(cli("remove", "+998901234567", "--class", "all"))
    assert rows(db) == [("+998901234567", "marketing", "operator", None),
                        ("+998901234568", "all", "operator", "asked by phone")]
    good(cli("remove", "+998901234567", "+998901234568"))
    assert rows(db) == [] and good(cli("list")) == "no entry\n"
    gone = cli("remove", "+998901234567")
    assert gone.returncode == 1 and "was not on the list" in gone.stdout


def test_a_start_word_does_not_lift_what_was_added_by_hand(db):
    run("suppress", "add", TO, dsn=db.dsn)
    db.sql("select postrider.heard(%s, 'start', 'START')", TO)
    assert len(rows(db)) == 1


@pytest.mark.parametrize("words, fault", [
    (("add",), "NUMBER is missing"),
    (("add", "+998901234567", "abc"), '"abc" is no phone number'),
    (("add", "+998901234567", "--class", "x"), "must be marketing or all"),
    (("remove",), "NUMBER is missing"),
    (("list", "--limit", "0"), "--limit"),
])
def test_suppress_refuses_all_or_nothing(db, words, fault):
    said(run("suppress", *words, dsn=db.dsn, check=False), 2, fault)
    assert rows(db) == []


def test_the_help_says_that_the_list_is_not_looked_at_yet():
    for words in ((), ("add",), ("list",)):
        assert "sending does not look at it yet" in good(run("suppress", *words, "--help"))
