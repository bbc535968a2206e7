"""`make lab` with 10,000 jobs: the promises hold, and the laboratory can tell a sender that breaks them."""

import json
import os
import subprocess
import sys

import pytest

from tests.harness import clean
from tests.harness.procs import binary
from tests.lab.lab import Postrider

JOBS = 10_000


def play(tmp_path, *args):
    """The laboratory as make starts it: (exit code, its figures, what it printed)."""
    with open(tmp_path / "out", "wb") as out:
        process = clean.spawn([sys.executable, "tests/lab/lab.py", "--json", tmp_path / "lab.json", *args],
                              cwd=clean.ROOT, env=dict(os.environ, JOBS=str(JOBS), POSTRIDER=str(binary())),
                              stdout=out, stderr=subprocess.STDOUT, death_signal="TERM")
    try:
        code = process.wait(600)
    finally:
        clean.kill(process, 15, 30)
    text = (tmp_path / "out").read_text()
    assert (tmp_path / "lab.json").exists(), text
    return code, json.loads((tmp_path / "lab.json").read_text()), text


@pytest.mark.limit(620)
def test_published_laboratory(tmp_path):
    code, lab, text = play(tmp_path, "--brief", "--only", "first", "--in-flight", "2")
    assert code == 0 and lab["held"], text
    rows = {(r["sender"], r["vendor_dedup"]): r for r in lab["first"]}
    assert all(r["kills"] == 10 and r["into_outage"] == 30 for r in lab["first"]), rows

    naive = rows["naive loop", False]
    assert naive["doubled"] > 0 and naive["stuck"] > 0, naive  # 25 and 8 expected: the faults are there

    safe = rows["postrider, hold", True]
    assert safe["sent"] == JOBS, safe
    assert safe["lost"] == safe["doubled"] == safe["stuck"] == safe["failed"] == safe["unknown"] == 0, safe
    assert safe["doubts"] > 0 and safe["stopped_by_kills"] > 0, safe

    hold = rows["postrider, hold", False]
    assert hold["lost"] == hold["doubled"] == hold["stuck"] == hold["failed"] == 0, hold
    assert hold["sent"] + hold["unknown_on_none"] == JOBS and hold["unknown"] == hold["doubts"] > 0, hold
    # Of these the vendor knows better: it took what lost its answer, and never saw what vanished.
    assert hold["unknown_on_a_phone"] >= hold["answers_lost"] > 0, hold
    assert hold["unknown_on_none"] >= hold["vanished_before"] + hold["into_outage"], hold

    resend = rows["postrider, resend", False]
    assert resend["lost"] == resend["stuck"] == resend["failed"] == 0, resend
    assert 0 < resend["extra_deliveries"] <= resend["doubts"], resend
    assert resend["sent"] + resend["unknown_on_none"] == JOBS, resend


@pytest.mark.limit(320)
def test_a_kill_with_many_calls_in_the_air(tmp_path):
    code, lab, text = play(tmp_path, "--only", "second")
    assert code == 0 and lab["held"], text
    dedup, hold, resend = lab["second"]
    assert all(r["stopped_by_kills"] > 0 and r["lost"] == 0 for r in lab["second"]), text
    assert dedup["sent"] == dedup["jobs"] and dedup["doubled"] == dedup["unknown"] == 0
    assert hold["doubled"] == 0 < hold["unknown"] and hold["sent"] + hold["unknown_on_none"] == hold["jobs"]
    assert resend["sent"] == resend["jobs"] and resend["doubled"] <= resend["doubts"]


CLEAN = {"lost": 0, "stuck": 0, "left": 0, "expired": 0, "failed": 0, "strangers": 0, "doubled": 0, "unknown": 0,
         "unknown_without_doubt": 0, "doubt_without_unknown": 0, "extra_deliveries": 0, "doubts": 0,
         "doubled_without_doubt": 0}


@pytest.mark.parametrize("dedup,policy,figures,words", [
    (True, "hold", {}, None),
    (True, "hold", {"lost": 1}, "lost"),
    (True, "resend", {"doubled": 1}, "doubled"),
    (True, "hold", {"unknown": 1, "doubts": 1}, "doubts remain"),
    (True, "hold", {"failed": 1}, "failed"),
    (False, "hold", {"unknown": 3, "doubts": 3}, None),
    (False, "hold", {"unknown": 3, "doubts": 2, "unknown_without_doubt": 1}, "not exactly"),
    (False, "hold", {"doubled": 1}, "doubled"),
    (False, "hold", {"stuck": 1}, "stuck"),
    (False, "resend", {"doubled": 2, "extra_deliveries": 2, "doubts": 2}, None),
    (False, "resend", {"doubled": 2, "extra_deliveries": 3, "doubts": 2}, "more doubled"),
    (False, "resend", {"doubled": 1, "extra_deliveries": 1, "doubts": 2, "doubled_without_doubt": 1}, "without doubt"),
])
def test_the_laboratory_names_what_is_broken(dedup, policy, figures, words):
    run = object.__new__(Postrider)
    run.dedup, run.on_unknown = dedup, policy
    broken = run.broken(dict(CLEAN, **figures))
    assert (words is None and broken == []) or (words and any(words in b for b in broken)), broken
