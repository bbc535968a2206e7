#!/usr/bin/python3
"""make demo: a campaign and one-time codes go from PostgreSQL to phones while a worker is killed and
the vendor fails; then the phones are asked what they got.

    MESSAGES=20000   messages of the campaign
    --json FILE      the verdict as JSON

Exit codes: 0 nothing lost or doubled, 1 otherwise or not finished in time, 2 usage."""

import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.lab.show import Progress  # noqa: E402
from tests.lab.stage import (Stage, Worker, new_cluster, number_from, options, percentile, run_main,  # noqa: E402
                             start_all, stop_all, write_json)

LATENCY_P50_MS, LATENCY_P99_MS = 150, 800
OUTAGE_S = 5
LIMIT_S = 112  # so that even a run that fails ends within two minutes
KILL_AT, OUTAGE_AT = 0.25, 0.60


class Codes(threading.Thread):
    """One code a second, each in a transaction of its own, as an application would."""

    def __init__(self, stage):
        super().__init__(daemon=True)
        self.stage = stage
        self.over = threading.Event()
        self.sent = {}  # id -> when send() was called, epoch ms
        self.problem = None

    def run(self):
        try:
            conn = self.stage.cluster.connect(self.stage.dsn)
            at = time.monotonic()
            while not self.over.wait(max(0.0, at - time.monotonic())):
                at += 1
                began = time.time() * 1000
                with conn.cursor() as cur:
                    cur.execute("select postrider.send(%s, %s, kind => 'otp')::text",
                                ("+998901234567", f"Kodingiz: {random.randrange(10 ** 6):06}"))
                    self.sent[cur.fetchone()[0]] = began
            conn.close()
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = problem


class Demo:
    def __init__(self, cluster, messages):
        self.messages = messages
        self.stage = Stage(cluster, "--latency-p50", LATENCY_P50_MS, "--latency-p99", LATENCY_P99_MS)
        # Few enough in the air that there is time to see something.
        self.in_flight = max(20, min(120, messages // 160))
        self.workers = []
        self.killed = self.restarted = self.stranded = None
        self.outage = None  # (from, to) in epoch ms
        self.progress = None
        self.codes = Codes(self.stage)
        self.finished = False

    def worker(self, listen="127.0.0.1:0"):
        return Worker(self.stage.config(self.in_flight, listen=listen))

    def open(self):
        self.stage.fill(self.messages)
        self.workers = start_all([self.worker(), self.worker()])
        print(f"""
  {self.messages:,} campaign messages and one code a second; 2 workers, {self.in_flight} calls in the air each
  vendor: de-duplicates by key, answers in {LATENCY_P50_MS} ms (p50) to {LATENCY_P99_MS} ms (p99), calls time out after 2 s

  dashboard  {self.workers[0].url}/  and  {self.workers[1].url}/
  vendor     {self.stage.vendor.url}/api/stats
""", flush=True)

    # -- what goes wrong --------------------------------------------------------------------

    def kill(self):
        victim = self.workers[0]
        self.address = victim.wait_address()
        victim.kill()
        self.killed = time.monotonic()
        self.stranded = self.stage.in_hands_of(victim)
        self.progress.say(f"worker 1 killed with SIGKILL, {self.stranded} messages in its hands")

    def restart(self):
        self.workers[0] = self.worker(self.address)
        self.workers[0].wait_ready()
        self.restarted = time.monotonic()
        self.progress.say("worker 1 started again; what it left behind is judged when its lease ends (5 s)")

    def fail_vendor(self):
        self.stage.vendor.api("/knobs", "PUT", {"outage_now_for_s": OUTAGE_S})
        now = time.time() * 1000
        self.outage = (now, now + OUTAGE_S * 1000)
        self.progress.say(f"vendor outage: for {OUTAGE_S} s it takes nothing and answers nothing")

    def doing(self):
        now = time.time() * 1000
        if self.outage and now < self.outage[1]:
            return f"vendor outage, {(self.outage[1] - now) / 1000:.0f} s to go"
        if self.killed and not self.restarted:
            return "worker 1 is dead"
        return ""

    def step(self, done):
        if not self.killed and done >= self.messages * KILL_AT:
            self.kill()
        elif self.killed and not self.restarted and time.monotonic() > self.killed + 1:
            self.restart()
        elif self.restarted and not self.outage and done >= self.messages * OUTAGE_AT:
            self.fail_vendor()

    # -- from start to verdict --------------------------------------------------------------

    def watch(self, limit):
        while time.monotonic() < limit:
            counts = self.stage.counts("campaign")
            done = counts.get("sent", 0)
            self.step(done)
            if self.codes.problem:
                raise self.codes.problem
            if not counts.get("pending") and not counts.get("sending") and self.outage:
                self.codes.over.set()
                rest = self.stage.counts()
                if not self.codes.is_alive() and not rest.get("pending") and not rest.get("sending"):
                    self.finished = True
                    break
            self.progress.show(done, f"failed {counts.get('failed', 0):,}  unknown {counts.get('unknown', 0):,}"
                                     f"  sending {counts.get('sending', 0):,}  {self.doing()}".rstrip())
            time.sleep(0.05)
        self.progress.clear()
        self.codes.over.set()
        self.codes.join(5)

    def code_times(self):
        """ms from send() to its arrival at the vendor: (all, those no outage touched)."""
        arrived, every, calm = self.stage.arrivals("otp"), [], []
        for key, began in self.codes.sent.items():
            if key not in arrived:
                continue
            took = max(0.0, arrived[key] - began)
            every.append(took)
            if not self.outage or not self.outage[0] - 100 < began < self.outage[1]:
                calm.append(took)
        return every, calm

    def verdict(self):
        judged = self.stage.judge()
        stats = self.stage.vendor.api("/stats")
        every, calm = self.code_times()
        return {
            "messages": judged.messages, "campaign": self.messages, "codes": len(self.codes.sent),
            "handed_to_vendor": judged.on_phones, "lost": judged.lost,
            "doubled": judged.doubled + judged.strangers, "unknown": judged.count("unknown"),
            "failed": judged.count("failed"), "expired": judged.count("expired"), "left": judged.left,
            "finished": self.finished, "seconds": round(self.progress.seconds(), 1),
            "worker_killed": bool(self.killed), "outage": bool(self.outage),
            "stranded_by_kill": self.stranded, "calls_in_outage": stats["outage"],
            "repeats_recognised": stats["replays"],
            "otp_ms": {"codes": len(every), "p50": percentile(every, 50), "p99": percentile(every, 99),
                       "calm_codes": len(calm), "calm_p50": percentile(calm, 50),
                       "calm_p99": percentile(calm, 99)}}

    def show_logs(self):
        for number, worker in enumerate(self.workers, 1):
            print(f"\n  end of worker {number}'s log:\n{worker.log_text()[-2000:]}", file=sys.stderr)

    def close(self):
        stop_all(self.workers)
        self.stage.close()


def ms(value):
    return "-" if value is None else f"{value:,.0f} ms"


def good(v):
    return (v["finished"] and v["worker_killed"] and v["outage"] and v["lost"] == v["doubled"] == 0
            and v["handed_to_vendor"] == v["messages"])


def show(v):
    otp = v["otp_ms"]
    print(f"""
  verdict, by the phones' own ledger, after {v['seconds']:.0f} s
    messages           {v['messages']:>8,}   {v['campaign']:,} of the campaign, {v['codes']:,} codes
    handed to vendor   {v['handed_to_vendor']:>8,}
    lost               {v['lost']:>8,}
    doubled            {v['doubled']:>8,}
    unknown            {v['unknown']:>8,}
    failed             {v['failed']:>8,}
    codes              p50 {ms(otp['calm_p50'])}, p99 {ms(otp['calm_p99'])} from send() to the vendor ({otp['calm_codes']} codes outside the outage)
                       p50 {ms(otp['p50'])}, p99 {ms(otp['p99'])} with the outage ({otp['codes']} codes)
    on the way         {v['stranded_by_kill'] or 0:,} messages in a killed worker's hands, {v['calls_in_outage']:,} calls into an outage;
                       {v['repeats_recognised']:,} repeats the vendor recognised by their key
""")
    if v["expired"]:
        print(f"    expired            {v['expired']:>8,}")
    if not v["finished"]:
        print(f"  NOT FINISHED in time: {v['left']:,} messages still wait")
    print(f"  {v['lost']} lost, {v['doubled']} doubled: {'as promised' if good(v) else 'NOT AS PROMISED'}", flush=True)


def main():
    began = time.monotonic()
    parser = options(__doc__)
    args = parser.parse_args()
    messages = number_from("MESSAGES", 20_000, 100)
    print("postrider demo: starting a private PostgreSQL, a simulated vendor and two workers ...", flush=True)
    with new_cluster() as cluster:
        demo = Demo(cluster, messages)
        try:
            demo.open()
            demo.progress = Progress(messages)
            demo.codes.start()
            demo.watch(began + LIMIT_S)
            result = demo.verdict()
            if not good(result):
                demo.show_logs()
        finally:
            demo.close()
    show(result)
    write_json(args.json, result)
    return 0 if good(result) else 1


if __name__ == "__main__":
    run_main(main)
