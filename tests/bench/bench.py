#!/usr/bin/python3
"""make bench: how many messages a second reach the vendor, what each costs, and how long a one-time
code takes meanwhile. Everything runs on this machine, PostgreSQL with fsync on.

    MESSAGES=200000   messages of each run
    --in-flight N     calls in the air in the worker (1500)
    --workers N       worker processes (1)
    --only NAME       throughput, codes, backlog or snapshot (throughput and codes)
    --backlog         also: the same work before 1,000,000 more due messages than before none
    --snapshot        also: the same work while a snapshot is held open
    --set NAME=N      another value for a whole-number setting of the worker, as settle_ms=40
    --json FILE       all figures as JSON

Figures are printed beside their targets and never judged: the exit code is 0 unless something broke
or the phones miss or doubled a message (1), 2 for usage."""

import contextlib
import os
import pathlib
import random
import re
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.lab.show import Progress, table  # noqa: E402
from tests.lab.stage import (Stage, Worker, new_cluster, number_from, options, percentile, run_main,  # noqa: E402
                             start_all, stop_all, write_json)

P50_MS, P99_MS, MEAN_MS = 150, 800, 194
CAMPAIGN_PER_S = 5556  # 5,000,000 in 15 minutes
CAMPAIGN_SHARE = 0.85  # of the calls in the air: otp and transactional reserve the rest
CODE_EVERY_S = 0.1
STALL_S = 120
TICKS = os.sysconf("SC_CLK_TCK")


# -- what processes used ---------------------------------------------------------------------


def stat_of(pid):
    """(parent, own CPU seconds, CPU seconds of children that ended); None once it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    f = text.rpartition(")")[2].split()
    return int(f[1]), (int(f[11]) + int(f[12])) / TICKS, (int(f[13]) + int(f[14])) / TICKS


def cpu_of(pid):
    found = stat_of(pid)
    return found[1] if found else 0.0


def cpu_of_server(postmaster):
    """The server process, its children, and those it has already buried."""
    total = sum(stat_of(postmaster)[1:])
    for entry in pathlib.Path("/proc").iterdir():
        found = stat_of(entry.name) if entry.name.isdigit() else None
        if found and found[0] == postmaster:
            total += found[1]
    return total


def memory_mib(pid, what="VmHWM"):
    with contextlib.suppress(OSError, AttributeError):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(rf"^{what}:\s+(\d+) kB", text, re.M).group(1)) / 1024
    return 0.0


class Usage:
    """CPU seconds, WAL and commits between two looks."""

    def __init__(self, stage, workers):
        self.stage, self.workers = stage, workers
        self.begin = self.look()

    def look(self):
        wal, commits = self.stage.sql(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, xact_commit"
            " from pg_stat_database where datname = current_database()")[0]
        return {"worker": sum(cpu_of(w.pid) for w in self.workers),
                "postgres": cpu_of_server(self.stage.cluster.process.pid),
                "sandbox": cpu_of(self.stage.vendor.pid), "wal": wal, "commits": commits}

    def since(self):
        now = self.look()
        return {name: now[name] - self.begin[name] for name in now}


# -- one campaign ------------------------------------------------------------------------------


class Codes(threading.Thread):
    """One code every 100 ms, each committed by itself; remembers when each commit returned."""

    def __init__(self, stage):
        super().__init__(daemon=True)
        self.stage = stage
        self.over = threading.Event()
        self.called, self.committed, self.problem = {}, {}, None

    def run(self):
        try:
            conn = self.stage.cluster.connect(self.stage.dsn)
            at = time.monotonic()
            with conn.cursor() as cur:
                while not self.over.wait(max(0.0, at - time.monotonic())):
                    at = max(at + CODE_EVERY_S, time.monotonic() - 1)
                    called = time.time() * 1000
                    cur.execute("select postrider.send(%s, %s, kind => 'otp')::text",
                                ("+998901234567", f"Kodingiz: {random.randrange(10 ** 6):06}"))
                    committed = time.time() * 1000
                    key = cur.fetchone()[0]
                    self.called[key], self.committed[key] = called, committed
            conn.close()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = problem


def until_taken(stage, wanted, title, workers, extra=None):
    """Shows progress until the phones have `wanted` messages and nothing waits; busiest seen."""
    progress = Progress(wanted, title)
    moved, before, peak, in_air = time.monotonic(), -1, {"connections": 0}, []
    pids = tuple(w.pid for w in workers)
    while True:
        stats = stage.vendor.api("/stats")
        keys = stats["keys"]
        if wanted * 0.15 < keys < wanted * 0.85:
            in_air.append(stats["in_air"])
        if extra and extra.problem:
            raise extra.problem
        if keys >= wanted:
            progress.clear()
            peak["in_air"] = sum(in_air) / max(1, len(in_air))
            return peak
        if keys != before:
            moved, before = time.monotonic(), keys
        elif time.monotonic() - moved > STALL_S:
            raise AssertionError(f"nothing arrived for {STALL_S} s at {keys:,} of {wanted:,}; {stage.counts()}\n"
                                 f"{workers[0].log_text()[-2000:]}")
        if not peak["connections"] and keys > wanted // 10:
            peak["connections"] = connections(stage, len(pids))
        progress.show(keys)
        time.sleep(0.2)


def connections(stage, workers):
    """Of one worker process: all sessions of this database that are not ours, shared out."""
    n = stage.sql("select count(*)::int from pg_stat_activity where datname = current_database()"
                  " and backend_type = 'client backend' and application_name <> 'test'")[0][0]
    return round(n / workers, 1)


def settled(stage, workers):
    """Waits until nothing is pending or sending; how long that took after the last arrival."""
    began = time.monotonic()
    while True:
        counts = stage.counts()
        if not counts.get("pending") and not counts.get("sending"):
            return time.monotonic() - began
        if time.monotonic() - began > STALL_S:
            raise AssertionError(f"not settled: {counts}\n{workers[0].log_text()[-2000:]}")
        time.sleep(0.2)


def rates(arrivals):
    """(first to last, of the middle four fifths) arrivals a second, from their times in ms."""
    times = sorted(arrivals)
    n = len(times)

    def between(a, b):
        return (b - a) * 1000 / max(1, times[b] - times[a])
    return between(0, n - 1), between(n // 10, n - 1 - n // 10)


def configured(stage, in_flight, **over):
    """As in production, but for the address."""
    return stage.config(in_flight, **{"lease_s": 60, "settle_allowance_ms": 3000, "drain_s": 30, **over})


def campaign(cluster, args, messages, title, in_flight=None, codes=False, before=None):
    """Sends one campaign through; every figure of it."""
    with Stage(cluster, "--latency-p50", P50_MS, "--latency-p99", P99_MS) as stage:
        wal = stage.sql("select pg_current_wal_insert_lsn()")[0][0]
        seconds = stage.fill(messages)
        wal = stage.sql("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::bigint", wal)[0][0]
        held = before(stage) if before else None
        stage.sql("checkpoint")
        in_flight = in_flight or args.in_flight
        workers = [Worker(configured(stage, in_flight, **dict(args.set))) for _ in range(args.workers)]
        usage = Usage(stage, workers)
        extra = Codes(stage) if codes else None
        try:
            start_all(workers)
            if extra:
                extra.start()
            peak = until_taken(stage, messages, title, workers, extra)
            if extra:
                extra.over.set()
                extra.join(10)
            peak["settle_s"] = settled(stage, workers)
            used = usage.since()
            peak["memory"] = max(memory_mib(w.pid) for w in workers)
            peak["server_memory"] = memory_mib(stage.vendor.pid)
        finally:
            stop_all(workers)
        if held:
            held.close()
        figures = figures_of(stage, messages, used, peak)
        figures.update(title=title, in_flight=in_flight, workers=args.workers, enqueue_per_s=messages / seconds,
                       enqueue_wal=wal / messages)
        if extra:
            figures["codes"] = code_times(stage, extra)
        return figures


def figures_of(stage, messages, used, peak):
    judged, stats = stage.judge(), stage.vendor.api("/stats")
    arrived = stage.arrivals("campaign").values()
    whole, steady = rates(arrived)
    total = judged.messages
    late = stage.sql("select phase, count(*)::int from postrider.attempts where outcome = 'unknown' group by phase")
    return {"messages": messages, "sent": judged.on_phones, "lost": judged.lost, "doubled": judged.doubled,
            "unfinished": judged.left + judged.count("sending"), "unknown": judged.count("unknown"),
            "failed": judged.count("failed"), "replays": stats["replays"], "doubts": dict(late),
            "per_s": whole, "steady_per_s": steady, "max_in_air": stats["max_in_air"],
            "mean_in_air": peak["in_air"],
            "cpu_s": {name: round(used[name], 2) for name in ("worker", "postgres", "sandbox")},
            "cpu_us": {name: used[name] * 1e6 / total for name in ("worker", "postgres", "sandbox")},
            "wal_per_message": used["wal"] / total, "commits_per_1000": used["commits"] * 1000 / total,
            "memory_mib": peak["memory"], "connections": peak["connections"], "settle_s": peak["settle_s"],
            "broken": judged.lost + judged.doubled + judged.strangers + judged.left + judged.count("sending")
            + (judged.messages - judged.on_phones)}


def code_times(stage, extra):
    """ms from the moment the commit returned, and from the call of send(), to the vendor."""
    arrived = stage.arrivals("otp")
    # Arrivals are whole ms, cut off: half a millisecond is added back.
    after = [arrived[k] + 0.5 - t for k, t in extra.committed.items() if k in arrived]
    call = [arrived[k] + 0.5 - t for k, t in extra.called.items() if k in arrived]
    commit = [extra.committed[k] - t for k, t in extra.called.items()]
    return {"n": len(after), "sent": len(extra.called),
            **{f"p{p}": round(percentile(after, p), 1) for p in (50, 95, 99)}, "max": round(max(after), 1),
            "from_call": {f"p{p}": round(percentile(call, p), 1) for p in (50, 95, 99)},
            "commit": {f"p{p}": round(percentile(commit, p), 1) for p in (50, 95, 99)}}


# -- the runs ----------------------------------------------------------------------------------


def show_campaign(f, target=None):
    cpu, us = f["cpu_s"], f["cpu_us"]
    rows = [
        ("messages/s, first to last at the vendor", f"{f['per_s']:,.0f}", target or ""),
        ("messages/s, middle four fifths", f"{f['steady_per_s']:,.0f}", ""),
        ("calls in the air at the vendor, mean", f"{f['mean_in_air']:,.0f}", f"{f['in_flight'] * f['workers']:,} in all,"),
        ("calls in the air at the vendor, most", f"{f['max_in_air']:,}", f"{CAMPAIGN_SHARE:.0%} for campaigns"),
        ("CPU of the worker, us a message", f"{us['worker']:,.0f}", f"({cpu['worker']:,.1f} s)"),
        ("CPU of PostgreSQL, us a message", f"{us['postgres']:,.0f}", f"({cpu['postgres']:,.1f} s)"),
        ("CPU of both, us a message", f"{us['worker'] + us['postgres']:,.0f}", ""),
        ("CPU of the simulated vendor, us a message", f"{us['sandbox']:,.0f}", f"({cpu['sandbox']:,.1f} s)"),
        ("worker's peak memory, MiB", f"{f['memory_mib']:,.1f}", "<= 64"),
        ("connections of a worker process", f"{f['connections']:g}", "<= 4"),
        ("WAL bytes a message, claim and settle", f"{f['wal_per_message']:,.0f}", "< 1,536"),
        ("WAL bytes a message, enqueue", f"{f['enqueue_wal']:,.0f}", ""),
        ("commits a 1,000 messages", f"{f['commits_per_1000']:,.1f}", "< 20"),
        ("send_many, messages/s", f"{f['enqueue_per_s']:,.0f}", ""),
        ("last outcome stored after last arrival, s", f"{f['settle_s']:,.1f}", ""),
    ]
    table(("", "measured", "target"), rows)
    doubts = sum(f["doubts"].values())
    print(f"  {f['sent']:,} messages on phones, {f['lost']:,} lost, {f['doubled']:,} doubled, {f['unknown']:,} unknown, "
          f"{f['failed']:,} failed; {doubts:,} answers later than the timeout", flush=True)


def show_codes(f):
    c = f["codes"]
    rows = [(f"codes, commit to request at the vendor, ms (n = {c['n']:,})", f"{c['p50']:g}", f"{c['p95']:g}", f"{c['p99']:g}",
             f"{c['max']:g}", "p50 <= 5, p99 <= 25"),
            ("from the call of send(), commit included, ms", *(f"{v:g}" for v in c["from_call"].values()), "", ""),
            ("send() and commit itself, ms", *(f"{v:g}" for v in c["commit"].values()), "", "")]
    table((f"campaign at {f['steady_per_s']:,.0f}/s", "p50", "p95", "p99", "max", "target"), rows)


def throughput(cluster, args, messages):
    f = campaign(cluster, args, messages, "campaign: ")
    print(f"\n{messages:,} messages, {args.workers} worker(s) with {args.in_flight:,} calls in the air\n")
    show_campaign(f, f">= {CAMPAIGN_PER_S:,}")
    return [f]


def codes(cluster, args, messages):
    """During a campaign at its published rate, and during one as fast as it goes."""
    paced = round(CAMPAIGN_PER_S * MEAN_MS / 1000 / CAMPAIGN_SHARE)
    found = []
    for in_flight, words in ((paced, f"as many in the air as {CAMPAIGN_PER_S:,}/s needs"),
                             (args.in_flight, "as fast as it goes")):
        f = campaign(cluster, args, messages, "codes and campaign: ", in_flight, codes=True)
        print(f"\none code every {CODE_EVERY_S * 1000:.0f} ms during a campaign of {messages:,}, {in_flight:,} in the air: {words}\n")
        show_codes(f)
        found.append(f)
    return found


def backlog(cluster, args, messages):
    """The same work with little and with much waiting behind it."""
    few, many = 50_000, number_from("BACKLOG", 1_000_000, 1000)
    a = campaign(cluster, args, few, "small backlog: ")
    b = campaign(cluster, args, many, "large backlog: ")
    print(f"\n{many:,} waiting messages against {few:,}\n")
    table(("", f"{few:,}", f"{many:,}", "ratio", "target"), [
        ("messages/s, middle four fifths", f"{a['steady_per_s']:,.0f}", f"{b['steady_per_s']:,.0f}",
         f"{b['steady_per_s'] / a['steady_per_s']:.0%}", ">= 95%"),
        ("CPU of PostgreSQL, us a message", f"{a['cpu_us']['postgres']:,.0f}", f"{b['cpu_us']['postgres']:,.0f}", "", "")])
    return [a, b]


class Snapshot:
    """A transaction that sees the database as it was: what it keeps from being cleaned weighs on claims."""

    def __init__(self, stage):
        self.conn = stage.cluster.connect(stage.dsn, autocommit=False)
        self.conn.set_session(isolation_level="REPEATABLE READ")
        with self.conn.cursor() as cur:
            cur.execute("select count(*) from postrider.kind")

    def close(self):
        self.conn.close()


def snapshot(cluster, args, messages):
    a = campaign(cluster, args, messages, "no snapshot: ")
    b = campaign(cluster, args, messages, "held snapshot: ", before=Snapshot)
    print(f"\n{messages:,} messages while a snapshot is held, against none\n")
    table(("", "none", "held", "ratio", "target"), [
        ("messages/s, middle four fifths", f"{a['steady_per_s']:,.0f}", f"{b['steady_per_s']:,.0f}",
         f"{b['steady_per_s'] / a['steady_per_s']:.0%}", ">= 80%"),
        ("CPU of PostgreSQL, us a message", f"{a['cpu_us']['postgres']:,.0f}", f"{b['cpu_us']['postgres']:,.0f}", "", "")])
    return [a, b]


RUNS = {"throughput": throughput, "codes": codes, "backlog": backlog, "snapshot": snapshot}


def machine():
    with contextlib.suppress(OSError, AttributeError):
        model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
        return f"{len(os.sched_getaffinity(0))} cores ({model}), load {os.getloadavg()[0]:.1f} at the start"
    return f"{os.cpu_count()} cores"


def setting(text):
    name, _, value = text.partition("=")
    return name, int(value)


def main():
    parser = options(__doc__)
    parser.add_argument("--in-flight", type=int, default=1500, metavar="N")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--only", choices=sorted(RUNS))
    parser.add_argument("--backlog", action="store_true")
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=N")
    args = parser.parse_args()
    messages = number_from("MESSAGES", 200_000, 1000)
    names = [args.only] if args.only else ["throughput", "codes"] + [n for n in ("backlog", "snapshot") if vars(args)[n]]
    print(f"postrider bench: {machine()}; PostgreSQL (fsync on), worker and vendor share them; "
          f"vendor p50 {P50_MS} ms, p99 {P99_MS} ms", flush=True)
    found = {}
    with new_cluster() as cluster:
        for name in names:
            found[name] = RUNS[name](cluster, args, messages)
    broken = [f"{name}: {f['title']}{f['lost']} lost, {f['doubled']} doubled, {f['unfinished']} unfinished, "
              f"{f['unknown']} unknown" for name, runs in found.items() for f in runs if f["broken"]]
    for words in broken:
        print(f"BROKEN  {words}")
    write_json(args.json, {"machine": machine(), "runs": found})
    return 1 if broken else 0


if __name__ == "__main__":
    run_main(main)
