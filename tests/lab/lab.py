#!/usr/bin/python3
"""make lab: the published laboratory with real processes. A naive loop beside postrider, before a
vendor that de-duplicates by key and one that cannot; what is printed is what the phones got.

    JOBS=100000      messages a run
    --json FILE      all figures as JSON
    --in-flight N    calls in the air in each of the 8 workers of the first table (1)
    --only first|second   one of the two tables
    --brief          only the runs that show something new: naive and postrider once a vendor and policy

Exit codes: 0 as promised, 1 a promise was broken (each is named), 2 usage."""

import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.harness import clean  # noqa: E402
from tests.lab import naive  # noqa: E402
from tests.lab.show import Progress, human, table  # noqa: E402
from tests.lab.stage import (Stage, Worker, new_cluster, number_from, options, run_main, start_all,  # noqa: E402
                             stop_all, write_json)

# The publication's four knobs.
KILLS, DROP_BEFORE, DROP_ANSWER = 0.001, 0.0025, 0.0025
OUTAGE_FROM, OUTAGE_LEN = 0.30, 0.003  # turns 30,001 to 30,300 of 100,000
WORKERS = 8
# Scaled down alike, so that 100,000 jobs take minutes: p50 150 ms and a timeout of 2 s there.
P50_MS, P99_MS, TIMEOUT_MS = 5, 20, 300
# The second table: everything as it is in production.
MANY_WORKERS, MANY_IN_FLIGHT, MANY_P50_MS, MANY_P99_MS, MANY_TIMEOUT_MS = 2, 500, 150, 800, 2000
BODY = "Yangi chegirma: 20 %. Stop: 1234"
STALL_S = 120  # nothing moves for so long: give up


class Run:
    """One sender before one vendor: work, kills, and the phones' answer."""

    def __init__(self, cluster, jobs, title, dedup, kills, vendor_args, seed):
        self.jobs, self.title, self.dedup, self.kills = jobs, title, dedup, kills
        self.stage = Stage(cluster, "--seed", seed, *vendor_args, dedup=dedup)
        self.random = random.Random(seed)
        # One kill in each equal part of the work, somewhere in it.
        self.at = [(i + self.random.random()) * 0.95 * jobs / kills for i in range(kills)]
        self.stopped = 0  # messages in the hands of those killed
        self.workers = []
        self.progress = None

    # what a kind of sender does: fill, start_one, over, states
    def play(self):
        self.fill()
        self.progress = Progress(self.jobs, f"{self.title}: ")
        self.workers = self.start_many()
        try:
            self.watch()
            result = self.result()
        except Exception:
            for worker in self.workers[:2]:
                print(f"\nend of a worker's log:\n{worker.log_text()[-1500:]}", file=sys.stderr)
            raise
        finally:
            stop_all(self.workers)
            self.stage.close()
        return result

    def watch(self):
        moved, before = time.monotonic(), -1
        while True:
            turns = self.stage.vendor.api("/stats")["requests"]
            while self.at and turns >= self.at[0]:
                self.at.pop(0)
                self.kill_one()
            if turns >= self.jobs * 0.95 and not self.at and self.over():
                break
            if turns != before:
                moved, before = time.monotonic(), turns
            elif time.monotonic() - moved > STALL_S:
                raise AssertionError(f"{self.title}: nothing happened for {STALL_S} s; {self.states_now()}")
            self.progress.show(min(turns, self.jobs), self.note(turns))
            time.sleep(0.05)
        self.progress.clear()

    def note(self, turns):
        killed = f"{self.kills - len(self.at)} workers killed"
        return killed if turns < self.jobs * 0.98 else f"{killed}; waiting for leases and back-off to end"

    def kill_one(self):
        victim = self.random.randrange(len(self.workers))
        self.workers[victim].kill()
        self.stopped += self.in_hands_of(self.workers[victim])
        self.workers[victim] = self.start_one()

    def start_many(self):
        return start_all([self.start_one() for _ in range(WORKERS)])

    def result(self):
        seconds = self.progress.seconds()
        judged, stats = self.judge(), self.stage.vendor.api("/stats")
        row = {"sender": self.title, "vendor_dedup": self.dedup, "jobs": self.jobs,
               "kills": self.kills, "stopped_by_kills": self.stopped,
               "sent": judged.on_phones, "lost": judged.lost, "doubled": judged.doubled,
               "stuck": judged.count("sending"), "failed": judged.count("failed"),
               "unknown": judged.count("unknown"), "expired": judged.count("expired"),
               "left": judged.left, "strangers": judged.strangers,
               "extra_deliveries": stats["duplicates"], "requests": stats["requests"],
               "vanished_before": stats["dropped_before"], "answers_lost": stats["dropped_answer"],
               "into_outage": stats["outage"], "seconds": round(seconds, 1)}
        row.update(self.doubts(judged))
        row["broken"] = self.broken(row)
        return row

    def doubts(self, judged):
        return {}

    def broken(self, row):
        return []


class Naive(Run):
    class Process:
        """The naive loop in a process of its own, with the few methods of a Worker used here."""

        def __init__(self, stage):
            self.dir = clean.temp_dir("naive")
            with open(self.dir / "log", "ab") as log:
                self.process = clean.spawn(
                    [sys.executable, naive.__file__, stage.dsn, stage.vendor.wait_address(), TIMEOUT_MS],
                    stdout=log, stderr=log)
            self.pid = self.process.pid

        def wait_ready(self, _timeout):
            return self

        def kill(self, number=signal.SIGKILL):
            self.process.send_signal(number)
            if number == signal.SIGKILL:
                self.process.wait(10)

        def stop(self):
            self.kill(signal.SIGTERM)
            self.process.wait(20)

        def log_text(self):
            return (self.dir / "log").read_text(errors="replace")

    def fill(self):
        self.stage.sql(naive.SCHEMA)
        self.stage.sql(naive.FILL, BODY, self.jobs)

    def start_one(self):
        return self.Process(self.stage)

    def in_hands_of(self, _worker):
        return 0  # nobody knows: the naive table does not say who has a row

    def states_now(self):
        return dict(self.stage.sql("select state, count(*)::int from naive_job group by state"))

    def note(self, _turns):
        return f"{self.kills - len(self.at)} workers killed"

    def over(self):
        """Nothing is pending, also once everybody has ended what it was at."""
        if self.states_now().get("pending"):
            return False
        stop_all(self.workers)
        if not self.states_now().get("pending"):
            return True
        self.workers = self.start_many()
        return False

    def judge(self):
        return self.stage.judge("select id::text, state from naive_job")


class Postrider(Run):
    in_flight, timeout_ms, workers_n = 1, TIMEOUT_MS, WORKERS

    def __init__(self, *args, on_unknown, **kwargs):
        super().__init__(*args, **kwargs)
        self.on_unknown = on_unknown

    def fill(self):
        self.stage.sql("update postrider.kind set on_unknown = %s where name = 'campaign'", self.on_unknown)
        self.stage.fill(self.jobs, body=BODY)

    def start_one(self):
        return Worker(self.stage.config(self.in_flight, providers={"main": {
            "timeout_ms": self.timeout_ms, "connect_timeout_ms": self.timeout_ms}}))

    def start_many(self):
        return start_all([self.start_one() for _ in range(self.workers_n)])

    def in_hands_of(self, worker):
        return self.stage.in_hands_of(worker)

    def states_now(self):
        return self.stage.counts()

    def over(self):
        counts = self.stage.counts()
        return not counts.get("pending") and not counts.get("sending")

    def judge(self):
        return self.stage.judge()

    def doubts(self, judged):
        """Attempts nobody can know the end of, and what the phones say of their messages."""
        attempts = self.stage.sql("select message_id::text, phase from postrider.attempts where outcome = 'unknown'")
        keys = {key for key, _ in attempts}
        return {"doubts": len(attempts), "doubts_by_kill": sum(phase == "lost" for _, phase in attempts),
                "unknown_on_a_phone": len(judged.unknown_keys - judged.missing),
                "unknown_on_none": len(judged.unknown_keys & judged.missing),
                "unknown_without_doubt": len(judged.unknown_keys - keys),
                "doubt_without_unknown": len(keys - judged.unknown_keys),
                "doubled_without_doubt": len(judged.doubled_keys - keys)}

    def broken(self, row):
        """The promises that do not hold in this row, in words."""
        rules = [(row["lost"] == 0, "messages were lost"), (row["stuck"] == 0, "messages are stuck in sending"),
                 (row["left"] == row["expired"] == 0, "not everything was sent"),
                 (row["failed"] == 0, "messages failed although nobody refused them"),
                 (row["strangers"] == 0, "phones got what nobody sent")]
        if self.dedup:
            rules += [(row["doubled"] == 0, "messages were doubled"), (row["unknown"] == 0, "doubts remain")]
        elif self.on_unknown == "hold":
            rules += [(row["doubled"] == 0, "messages were doubled"),
                      (row["unknown_without_doubt"] == row["doubt_without_unknown"] == 0,
                       "unknown is not exactly what is in doubt")]
        else:
            rules += [(row["extra_deliveries"] <= row["doubts"], "more doubled than were in doubt"),
                      (row["doubled_without_doubt"] == 0, "a message without doubt was doubled")]
        return [words for holds, words in rules if not holds]


class Many(Postrider):
    in_flight, timeout_ms, workers_n = MANY_IN_FLIGHT, MANY_TIMEOUT_MS, MANY_WORKERS


VENDOR = {True: "de-duplicates", False: "cannot"}


def first_runs(cluster, jobs, brief):
    """A function that makes the run, for each row of the first table."""
    faults = ["--latency-p50", P50_MS, "--latency-p99", P99_MS, "--drop-before", DROP_BEFORE,
              "--drop-answer", DROP_ANSWER, "--outage-from", int(jobs * OUTAGE_FROM) + 1,
              "--outage-count", round(jobs * OUTAGE_LEN)]
    kills = max(1, round(jobs * KILLS))

    def args(title, dedup):
        return cluster, jobs, title, dedup, kills, faults, 1
    runs = [lambda: Naive(*args("naive loop", True)),
            lambda: Postrider(*args("postrider, resend", True), on_unknown="resend"),
            lambda: Naive(*args("naive loop", False)),
            lambda: Postrider(*args("postrider, hold", True), on_unknown="hold"),
            lambda: Postrider(*args("postrider, hold", False), on_unknown="hold"),
            lambda: Postrider(*args("postrider, resend", False), on_unknown="resend")]
    return runs[2:] if brief else runs


def second_runs(cluster, jobs):
    latency = ["--latency-p50", MANY_P50_MS, "--latency-p99", MANY_P99_MS]
    jobs = max(4000, jobs * 4 // 10)
    kills = max(2, jobs // 5000)
    return [lambda d=d, u=u: Many(cluster, jobs, f"postrider, {u}", d, kills, latency, 2, on_unknown=u)
            for d, u in ((True, "hold"), (False, "hold"), (False, "resend"))]


def play(makers):
    rows = []
    for make in makers:
        row = make().play()
        row["seconds"] = round(row["seconds"], 1)
        rows.append(row)
        print(f"        {row['sender']}, vendor {VENDOR[row['vendor_dedup']]}: done in {human(row['seconds'])}", flush=True)
    return rows


def show_first(rows, jobs, in_flight):
    print(f"""
{jobs:,} jobs, {WORKERS} workers with {in_flight} call{'s' * (in_flight > 1)} in the air each, {rows[0]['kills']} of them killed with SIGKILL and replaced;
{DROP_BEFORE:.2%} of requests vanish before the vendor, of {DROP_ANSWER:.2%} the answer is lost, turns {int(jobs * OUTAGE_FROM) + 1:,} to {int(jobs * (OUTAGE_FROM + OUTAGE_LEN)):,} meet an outage.
Scaled: the vendor answers in {P50_MS} ms (p50) to {P99_MS} ms (p99), calls time out after {TIMEOUT_MS} ms. Counted by the phones:
""")
    heads = ["sender", "vendor", "sent", "lost", "doubled", "stuck", "failed", "unknown",
             "doubts", "unknown: on a phone", "on none"]
    table(heads, [[r["sender"], VENDOR[r["vendor_dedup"]], r["sent"], r["lost"], r["doubled"], r["stuck"],
                   r["failed"], r["unknown"], r.get("doubts", "-"), r.get("unknown_on_a_phone", "-"),
                   r.get("unknown_on_none", "-")] for r in rows])
    print("""
  sent: on a phone. lost: on none, and nothing says so. doubled: on a phone more than once. stuck: in `sending`
  for ever. doubts: attempts whose end nobody can know, calls of killed workers included.""")
    for r in rows:
        if "doubts" in r and not r["vendor_dedup"]:
            late = r["doubts"] - r["vanished_before"] - r["answers_lost"] - r["into_outage"] - r["doubts_by_kill"]
            print(f"""  {r['sender']}: {r['doubts']:,} doubts are {r['vanished_before']:,} vanished requests, {r['answers_lost']:,} lost answers, {r['into_outage']:,} calls into the outage,
  {r['doubts_by_kill']:,} in killed workers' hands, {late:,} answers later than the timeout (a busy machine).""")


def show_second(rows):
    print(f"""
What a kill costs with {MANY_IN_FLIGHT} calls in the air: {rows[0]['jobs']:,} jobs, {MANY_WORKERS} workers, {rows[0]['kills']} kills, no other fault; the vendor answers in
{MANY_P50_MS} ms (p50) to {MANY_P99_MS} ms (p99), calls time out after {MANY_TIMEOUT_MS / 1000:.0f} s. Counted by the phones:
""")
    heads = ["sender", "vendor", "in hand at a kill", "sent", "lost", "doubled", "failed", "unknown",
             "doubled a kill", "unknown a kill", "unknown: on a phone", "on none"]
    table(heads, [[r["sender"], VENDOR[r["vendor_dedup"]], r["stopped_by_kills"] // r["kills"], r["sent"], r["lost"],
                   r["doubled"], r["failed"], r["unknown"], round(r["doubled"] / r["kills"]),
                   round(r["unknown"] / r["kills"]), r["unknown_on_a_phone"], r["unknown_on_none"]] for r in rows])


def verdict(rows):
    """Prints what was promised and does not hold; True when all holds."""
    broken = [(r, words) for r in rows for words in r["broken"]]
    print()
    for row, words in broken:
        print(f"BROKEN  {row['sender']}, vendor {VENDOR[row['vendor_dedup']]}: {words}")
    if not broken:
        print("Every promise held: where the vendor de-duplicates 0 lost, 0 doubled, 0 failed, 0 unknown; where it cannot,\n"
              "hold doubled nothing and every doubt is shown as unknown, resend lost nothing and doubled only what was in doubt.")
    return not broken


def main():
    parser = options(__doc__)
    parser.add_argument("--in-flight", type=int, default=1, metavar="N")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--only", choices=("first", "second"))
    args = parser.parse_args()
    jobs = number_from("JOBS", 100_000, 1000)
    print(f"postrider lab: {jobs:,} jobs a run; 100,000 take some ten minutes in all on two quiet cores", flush=True)
    Postrider.in_flight = args.in_flight
    first, second = [], []
    with new_cluster() as cluster:
        if args.only != "second":
            first = play(first_runs(cluster, jobs, args.brief))
        if args.only != "first":
            second = play(second_runs(cluster, jobs))
    if first:
        show_first(first, jobs, args.in_flight)
    if second:
        show_second(second)
    held = verdict(first + second)
    write_json(args.json, {"jobs": jobs, "in_flight": args.in_flight, "first": first, "second": second, "held": held})
    return 0 if held else 1


if __name__ == "__main__":
    run_main(main)
