#!/usr/bin/python3
"""Runs the parts of the test suite named on the command line and adds them up.

    tests/run.py unit sql e2e smoke fuzz [-- PYTEST ARGUMENTS]

Each part prints what it does as it goes. A part that crashes or cannot start counts as one failure
and says so. The last line is `N passed, N failed`; the exit code is 0 only when nothing failed."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fuzz import seeds  # noqa: E402, the checkout is on the path only now

PROGRAM = os.environ.get("POSTRIDER", "build/postrider")
PROGRAMS = os.environ.get("POSTRIDER_TESTS", "build/release/tests")
FUZZERS = os.environ.get("POSTRIDER_FUZZ", "build/fuzz/fuzz")
COMMANDS = ("dev sandbox worker migrate check adopt provider send show status retry cancel segments suppress"
            " explain campaign audit purge").split()
# End-to-end tests that need nothing of the checkout but its programs, and half of the time.
BESIDE = ("test_ask test_receipts test_receipts_vendor test_dialects test_kannel test_cli test_cli_provider"
          " test_conformance test_doubts_by_hand test_sandbox test_serve test_serve_later test_http").split()
UNIT_LIMIT_S = 300
SQL_LIMIT_S = 600
SMOKE_FUZZ_S = 3
SMOKE_PLUGIN_FUZZ_S = 1

TAP_LINE = re.compile(r"^\s*(not )?ok\s+\d+\b(.*)$")  # pg_prove's own bare "ok" is no result
TAP_PLAN = re.compile(r"^1\.\.(\d+)")


class Score:
    """What passed and failed in one part or in all."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} ok, {self.failed} not ok{skipped}"


def child(args, limit_s=None, **kwargs):
    """Runs a child to its end; Ctrl-C and SIGTERM reach it, and it is waited for. Returns
    (exit code, output or None); the exit code is None after a timeout."""
    process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, cwd=ROOT, **kwargs)
    try:
        out = process.communicate(timeout=limit_s)[0]
        return process.returncode, out
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[0]
    except BaseException as stop:
        if not isinstance(stop, KeyboardInterrupt):  # the terminal tells the child about Ctrl-C
            process.terminate()
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        signal.signal(signal.SIGINT, old)
        raise


def captured(args, limit_s, **kwargs):
    code, out = child(args, limit_s, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kwargs)
    return code, out.decode(errors="replace")


def how_it_ended(code):
    if code is None:
        return "did not end in time"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"exit code {code}"


def count_tap(text):
    """The score of TAP output, and the number of results its plans promised."""
    score, planned = Score(), 0
    for line in text.splitlines():
        plan = TAP_PLAN.match(line)
        result = TAP_LINE.match(line)
        if plan:
            planned += int(plan.group(1))
        elif result:
            if re.search(r"#\s*(skip|todo)", result.group(2), re.IGNORECASE):
                score.skipped += 1
            elif result.group(1):
                score.failed += 1
            else:
                score.passed += 1
    return score, planned


def judge_tap(name, code, text):
    """Prints one line for a program that spoke TAP, and everything it said if something failed."""
    score, planned = count_tap(text)
    done = score.passed + score.failed + score.skipped
    trouble = None
    if done < planned or (code != 0 and not score.failed):
        trouble = f"{how_it_ended(code)} after {done} of {planned} tests"
    elif planned == 0:
        trouble = "ran no test"
    if trouble:
        score.failed += 1
    print(f"  {'FAIL' if score.failed else 'ok  '}  {name}: {score}", flush=True)
    if score.failed:
        print("".join(f"        {line}\n" for line in text.splitlines()
                      if not re.match(r"^\s*ok\b", line)), end="")
    if trouble:
        print(f"        {name} crashed: {trouble}", flush=True)
    return score


def part_unit(_):
    score = Score()
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    for source in sorted((ROOT / "tests/unit").glob("test_*.c")):
        program = pathlib.Path(PROGRAMS) / source.stem
        if not (ROOT / program).exists():
            print(f"  FAIL  {source.stem}: not built")
            score.failed += 1
            continue
        code, text = captured([f"./{program}"], UNIT_LIMIT_S, env=environment)
        score.add(judge_tap(source.stem, code, text))
    return score


def part_sql(_):
    from tests.harness.cluster import Cluster
    score = Score()
    files = sorted((ROOT / "tests/sql").glob("*.sql"))
    if not files:
        return score
    with Cluster(fsync=False) as pg:
        for path in files:
            name = pg.migrated()
            pg.run("create extension if not exists pgtap", name)
            args = ["pg_prove", "--verbose", "--failures", "--host", pg.dir, "--port", pg.port,
                    "--username", "postgres", "--dbname", name, path.relative_to(ROOT)]
            code, text = captured(args, SQL_LIMIT_S)
            score.add(judge_tap(path.name, code, text))
            pg.dropdb(name)
    return score


def pytest_command(report, files):
    return [sys.executable, "-m", "pytest", "-v", "-ra", "--tb=short", "--rootdir=.", "--durations=15",
            "--durations-min=5", "-p", "no:cacheprovider", f"--junitxml={report}", *files]


def judge_pytest(score, code, report):
    """Adds what one pytest run reported."""
    try:
        suites = list(xml.etree.ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, xml.etree.ElementTree.ParseError):
        suites = []
    failed = 0
    for suite in suites:
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        failed += bad
        score.skipped += int(suite.get("skipped", 0))
        score.passed += int(suite.get("tests", 0)) - bad - int(suite.get("skipped", 0))
    if code not in (0, 1) or (code == 1 and not failed):
        print(f"        pytest crashed: {how_it_ended(code)}")
        failed += 1
    score.failed += failed


def part_e2e(args):
    """Most tests wait more than they work. So without arguments the files of BESIDE run in a process of
    their own, and are shown when the others are done."""
    score = Score()
    everything = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests/e2e").glob("**/test_*.py"))
    beside = [] if args else [f for f in everything if pathlib.Path(f).stem in BESIDE]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1")
    if not everything:
        return score
    with tempfile.TemporaryDirectory(prefix="postrider-junit-") as folder:
        reports = [pathlib.Path(folder, name) for name in ("first.xml", "second.xml")]
        with open(pathlib.Path(folder, "second.log"), "w+b") as log:
            second = beside and subprocess.Popen(pytest_command(reports[1], beside), cwd=ROOT, env=environment,
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                first = args or [f for f in everything if f not in beside]
                code, _ = child(pytest_command(reports[0], ["tests/e2e", *args] if args else first), env=environment)
                judge_pytest(score, code, reports[0])
                if second:
                    code = second.wait()
                    log.seek(0)
                    print(log.read().decode(errors="replace"), flush=True)
                    judge_pytest(score, code, reports[1])
            finally:
                if second and second.poll() is None:
                    second.terminate()
                    try:
                        second.wait(30)
                    except subprocess.TimeoutExpired:
                        second.kill()
    return score


def part_smoke(_):
    """Every command answers --help; each fuzzer that was built finds nothing in a few seconds."""
    score = Score()
    code, text = captured([f"./{PROGRAM}", "--help"], 10)
    shown = re.findall(r"^  (\w+) {2,}\S", text, re.MULTILINE)
    if code == 0 and shown == COMMANDS:
        score.passed += 1
    else:
        score.failed += 1
        print(f"  FAIL  postrider --help: {how_it_ended(code)}; commands shown: {' '.join(shown)}")
    for command in COMMANDS:
        code, text = captured([f"./{PROGRAM}", command, "--help"], 10)
        if code == 0 and re.search(rf"postrider {command}\b", text):
            score.passed += 1
        else:
            score.failed += 1
            print(f"  FAIL  postrider {command} --help: {how_it_ended(code)}\n{text[-500:]}")
    print(f"  {'FAIL' if score.failed else 'ok  '}  --help of the program and its {len(COMMANDS)} commands: {score}")
    score.add(run_fuzzers(SMOKE_FUZZ_S, SMOKE_PLUGIN_FUZZ_S))
    return score


def part_fuzz(_):
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    return run_fuzzers(seconds, seconds)


def run_fuzzers(seconds, plugin_seconds):
    """The fuzzers of tests/fuzz, and the one that is linked with each plugin."""
    score = Score()
    for source in sorted((ROOT / "tests/fuzz").glob("fuzz_*.c")):
        score.add(run_fuzzer(source.stem, seconds))
    for plugin in seeds.plugins():
        score.add(run_fuzzer(f"fuzz_plugin_{plugin}", plugin_seconds, plugin))
    return score


def run_fuzzer(name, seconds, plugin=None):
    score = Score()
    program = ROOT / FUZZERS / name
    if not program.exists():
        print(f"  --    {name}: not built, skipped")
        score.skipped += 1
        return score
    corpus = tempfile.mkdtemp(prefix="postrider-fuzz-")
    if plugin:
        seeds.write(plugin, corpus)
    found = ROOT / FUZZERS / "findings"
    found.mkdir(exist_ok=True)
    kept = ROOT / "tests/fuzz/corpus" / name
    code, text = captured([program, f"-max_total_time={seconds}", "-print_final_stats=1",
                           "-rss_limit_mb=2048", f"-artifact_prefix={found}/{name}-",
                           corpus, *([kept] if kept.is_dir() else [])], seconds + 120)
    shutil.rmtree(corpus, ignore_errors=True)
    runs = re.search(r"number_of_executed_units:\s*(\d+)", text)
    if code == 0 and runs:
        score.passed += 1
        print(f"  ok    {name}: {int(runs.group(1)):,} inputs in {seconds} s", flush=True)
    else:
        score.failed += 1
        print(f"  FAIL  {name}: {how_it_ended(code)}\n{text[-6000:]}", flush=True)
    return score


PARTS = {
    "unit": ("unit tests", part_unit),
    "sql": ("SQL tests", part_sql),
    "e2e": ("end-to-end tests", part_e2e),
    "smoke": ("smoke", part_smoke),
    "fuzz": ("fuzzers", part_fuzz),
}


def main(argv):
    cut = argv.index("--") if "--" in argv else len(argv)
    names, rest = argv[:cut], argv[cut + 1:]
    if not names or any(name not in PARTS for name in names):
        print(__doc__, file=sys.stderr)
        return 2
    os.chdir(ROOT)
    total = Score()
    for name in names:
        title, part = PARTS[name]
        print(f"== {title}", flush=True)
        began = time.monotonic()
        try:
            score = part(rest)
        except Exception as problem:  # a part that crashes is a failure, not the end of the rest
            print(f"        {title} crashed: {problem}", flush=True)
            score = Score()
            score.failed = 1
        print(f"   {title}: {score} in {time.monotonic() - began:.0f} s\n", flush=True)
        total.add(score)
    if total.passed + total.failed == 0:
        print("no test ran")
        total.failed = 1
    if total.skipped:
        print(f"{total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    for deadly in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(deadly, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
        sys.exit(130)
