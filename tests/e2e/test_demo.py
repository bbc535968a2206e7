"""`make demo`, smaller: what it says must be so, and it must be able to say the opposite."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.harness import clean
from tests.harness.procs import binary, wait_until
from tests.lab.stage import Verdict, percentile

DEMO = "tests/lab/demo.py"


def start(tmp_path, messages):
    """The demo as make starts it, its output in a file."""
    with open(tmp_path / "out", "wb") as out:
        return clean.spawn([sys.executable, DEMO, "--json", tmp_path / "verdict.json"], cwd=clean.ROOT,
                           env=dict(os.environ, MESSAGES=str(messages), POSTRIDER=str(binary())),
                           stdout=out, stderr=subprocess.STDOUT, death_signal="TERM")


@pytest.mark.limit(150)
def test_ends_by_itself_with_nothing_lost_or_doubled(tmp_path):
    process = start(tmp_path, 2000)
    code = process.wait(140)
    text = (tmp_path / "out").read_text()
    assert code == 0, text
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["campaign"] == 2000 and verdict["codes"] >= 5, verdict
    assert verdict["handed_to_vendor"] == verdict["messages"] == 2000 + verdict["codes"]
    assert verdict["lost"] == verdict["doubled"] == verdict["unknown"] == verdict["failed"] == 0
    # It went through what it promises to show.
    assert verdict["worker_killed"] and verdict["stranded_by_kill"] > 0
    assert verdict["calls_in_outage"] > 0
    assert "dashboard  http://127.0.0.1:" in text and "0 lost, 0 doubled: as promised" in text
    assert "\r" not in text and "\033" not in text  # not a terminal: plain lines


@pytest.mark.limit(90)
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    process = start(tmp_path, 50_000)
    try:
        wait_until(lambda: " of 50,000 " in (tmp_path / "out").read_text()
                   or process.poll() is not None, 80, "the demo to be under way")
        assert process.poll() is None, (tmp_path / "out").read_text()
        folders = [path for path in pathlib.Path("/tmp").glob("postrider-*/owner.pid")
                   if path.read_text() == str(process.pid)]
        assert folders
        children = descendants(process.pid)
        assert len(children) > 4  # PostgreSQL with its own, vendor, workers
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        clean.kill(process, signal.SIGTERM, 30)
    assert not [path for path in folders if path.parent.exists()]
    wait_until(lambda: not [pid for pid in children if alive(pid)], 20, "every child to be gone")


def stat(pid):
    """(state, parent) of a process; None once it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def alive(pid):
    found = stat(pid)
    return found is not None and found[0] != "Z"


def descendants(top):
    parents = {int(p.name): stat(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()}
    found, grown = {top}, True
    while grown:
        more = {pid for pid, s in parents.items() if s and s[1] in found} - found
        found |= more
        grown = bool(more)
    return found - {top}


def answer(missing=(), doubled=(), strangers=0, delivered=0):
    return {"delivered": delivered, "missing_keys": list(missing), "duplicated": len(doubled),
            "duplicate_keys": [{"key": k, "deliveries": 2} for k in doubled], "unexpected": strangers}


def test_the_judge_tells_lost_from_told():
    """Not on a phone is lost, unless the table says that or the message still waits for its turn."""
    states = {"a": "sent", "b": "sending", "c": "failed", "d": "unknown", "e": "pending", "f": "sent",
              "g": "expired"}
    judged = Verdict(states, answer("abcdeg", "f", 2, 1))
    assert (judged.lost, judged.left, judged.doubled, judged.strangers) == (2, 1, 1, 2)
    assert judged.unknown_keys == {"d"} and judged.count("sent") == 2
    fine = Verdict({"a": "sent", "b": "sending"}, answer(delivered=2))
    assert (fine.lost, fine.doubled, fine.left) == (0, 0, 0)


def test_percentiles_are_of_values_that_occurred():
    """Nearest rank: of 1 to 100 the 99th percentile is 99, of few values it is the largest."""
    assert percentile(range(1, 101), 99) == 99 and percentile(range(1, 101), 50) == 50
    assert percentile([3, 1, 2], 99) == 3 and percentile([3, 1, 2], 50) == 2
    assert percentile([7], 50) == 7 and percentile([], 50) is None
