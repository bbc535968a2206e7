"""`make bench`, tiny: it ends, counts right and judges nothing by time."""

import json
import os
import subprocess
import sys

import pytest

from tests.bench.bench import cpu_of, cpu_of_server, rates, stat_of
from tests.harness import clean
from tests.harness.procs import binary


@pytest.mark.limit(170)
def test_measures_and_ends(tmp_path):
    done = clean.spawn([sys.executable, "tests/bench/bench.py", "--in-flight", "200", "--json", tmp_path / "bench.json"],
                       cwd=clean.ROOT, env=dict(os.environ, MESSAGES="3000", POSTRIDER=str(binary())),
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, death_signal="TERM")
    try:
        text = done.communicate(timeout=160)[0]
    finally:
        clean.kill(done, 15, 30)
    assert done.returncode == 0, text
    runs = json.loads((tmp_path / "bench.json").read_text())["runs"]
    [plain], codes = runs["throughput"], runs["codes"]
    assert plain["sent"] == 3000 and plain["lost"] == plain["doubled"] == plain["unfinished"] == 0, text
    assert 0 < plain["max_in_air"] <= 200 and 0 < plain["connections"] <= 4, plain
    # A call takes 194 ms on average, so no more than 200 / 0.194 a second can be true (Little).
    assert 0 < plain["steady_per_s"] < 1.3 * 200 / 0.194, plain
    assert all(plain["cpu_s"][name] > 0 for name in ("worker", "postgres", "sandbox")), plain
    for run in codes:
        assert run["sent"] == 3000 + run["codes"]["sent"] and run["codes"]["n"] == run["codes"]["sent"] > 0, text
        assert run["codes"]["p50"] <= run["codes"]["p95"] <= run["codes"]["p99"] <= run["codes"]["max"]


def test_rates_of_known_arrivals():
    """1,000 arrivals one ms apart are 1,000/s, whole and in the middle, in whatever order they come."""
    assert rates(reversed(range(1000))) == (1000.0, 1000.0)
    # Ten slow ones at the end pull the whole down and leave the middle alone.
    whole, middle = rates(list(range(1000)) + [1000 + 100 * i for i in range(10)])
    assert middle == 1000.0 and 500 < whole < 540


def test_cpu_time_counts_living_and_ended_children():
    burn = "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.3: pass\n"
    script = (f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
              f"p = subprocess.Popen([sys.executable, '-c', {burn + 'print(1, flush=True); import signal; signal.pause()'!r}],"
              " stdout=subprocess.PIPE)\np.stdout.readline()\nprint(2, flush=True)\ninput()\np.kill()\n")
    parent = clean.spawn([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "2\n"
        own, (_, _, ended) = cpu_of(parent.pid), stat_of(parent.pid)
        assert ended >= 0.29
        assert cpu_of_server(parent.pid) >= own + ended + 0.29
    finally:
        clean.kill(parent)
    assert stat_of(parent.pid) is None and cpu_of(parent.pid) == 0.0
