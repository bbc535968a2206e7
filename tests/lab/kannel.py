#!/usr/bin/python3
"""make demo-kannel: postrider hands a campaign to a gateway nobody here wrote (Debian's Kannel), which hands
it to its fake SMSC; meanwhile smsbox is killed twice, once with calls in the air that the bearerbox has taken
and nobody answered. Then the fake SMSC's log is asked what arrived.

    MESSAGES=1000    messages of the campaign
    --json FILE      the verdict as JSON
    --without-receipts   Kannel then proves nothing afterwards: doubts stay unknown

Exit codes: 0 as promised, 1 otherwise or not finished in time, 2 usage."""

import pathlib
import secrets
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.lab import kannel_gateway as kannel  # noqa: E402
from tests.lab.show import Progress, table  # noqa: E402
from tests.lab.stage import Worker, new_cluster, number_from, options, run_main, write_json  # noqa: E402
from tests.harness.procs import wait_until  # noqa: E402

LIMIT_S = 150
IN_FLIGHT = 16
BATCH, BATCH_S = 20, 0.1  # so many messages at once, so often
KILL_AT, STALL_AT = 0.30, 0.65
DOWN_S = 1.0
PROVIDER = "gateway"

TEXTS = (  # {n} makes each text its own
    ("GSM-7", "Kodingiz: {n:06}. 1+1=2 & 50% off? a#b \"q\" \\ ñ"),
    ("GSM-7, extension table", "Narxi €{n} [yangi] {{arzon}} ~ ^ |"),
    ("GSM-7, a line end", "Salom!\nBuyurtma {n} tayyor\n"),
    ("UCS-2, Uzbek Latin", "Oʻzbekiston, gʻalaba {n}"),
    ("UCS-2, Uzbek Cyrillic", "Тасдиқлаш коди: {n:06}. Ҳеч кимга айтманг"),
    ("UCS-2, Vietnamese", "Mã xác nhận của bạn là {n:06}, đừng chia sẻ"),
    ("UCS-2, emoji", "Tabriklaymiz 🎉👍 {n}"),
    ("GSM-7, three parts", "Yangi chegirma {n}! " + "Barcha mahsulotlar 20 % arzon. " * 12),
    ("UCS-2, four parts", "Янги чегирма {n}! 🎉 " + "Барча маҳсулотлар 20 % арзон. " * 8),
    ("UCS-2, ten parts", "{n} " + "ўқғҳ 😀 " * 80),
)


class Message:
    def __init__(self, n):
        self.kind, text = TEXTS[n % len(TEXTS)]
        self.number = f"+99890{n:07}"
        self.text = text.format(n=n)


class Run:
    """One campaign through one gateway."""

    def __init__(self, cluster, messages, receipts=True, say=print):
        self.say = say
        self.cluster = cluster
        self.receipts = receipts
        self.messages = [Message(n) for n in range(messages)]
        self.database = cluster.migrated()
        self.dsn = cluster.dsn(self.database)
        self.conn = cluster.connect(self.dsn)
        self.gateway = kannel.Gateway()
        self.listen = kannel.free_ports(1)[0]
        self.worker = Worker(self.config())
        self.queued = 0
        self.kills = []  # what was in the air each time
        self.doubted = set()  # numbers seen as unknown; a receipt may settle one between two looks

    def config(self):
        provider = {"plugin": "kannel", "in_flight": IN_FLIGHT, "connect_timeout_ms": 1000, "timeout_ms": 4000,
                    "settings": kannel.settings(self.gateway)}
        config = {"database": self.dsn, "in_flight": IN_FLIGHT, "lease_s": 8, "settle_allowance_ms": 1000,
                  "drain_s": 10, "listen": f"127.0.0.1:{self.listen}", "providers": {PROVIDER: provider}}
        if self.receipts:
            provider["receipt_token"] = secrets.token_urlsafe(24)
            config["public_url"] = f"http://127.0.0.1:{self.listen}"
        return config

    def close(self):
        self.worker.stop()
        self.gateway.close()
        self.conn.close()
        self.cluster.dropdb(self.database)

    def sql(self, text, *values):
        with self.conn.cursor() as cur:
            cur.execute(text, values or None)
            return cur.fetchall() if cur.description else []

    def states(self):
        return dict(self.sql("select state::text, count(*)::int from postrider.messages group by 1"))

    # -- what happens -----------------------------------------------------------------------

    def feed(self):
        """One more batch, as an application would."""
        for m in self.messages[self.queued:self.queued + BATCH]:
            self.sql("select postrider.send(%s, %s, kind => 'campaign')", m.number, m.text)
        self.queued = min(self.queued + BATCH, len(self.messages))

    def in_the_air(self):
        return self.states().get("sending", 0)

    def kill(self):
        """smsbox dies as it stands, at work."""
        self.feed()
        wait_until(self.in_the_air, 10, "calls in the air", 0)
        self.kills.append(("killed", self.in_the_air()))
        self.gateway.kill_smsbox()
        self.say(f"smsbox killed with SIGKILL, {self.kills[-1][1]} messages in postrider's hands")

    def kill_unanswered(self):
        """smsbox dies with calls in the air that it has passed on: the bearerbox takes them later."""
        self.gateway.stall_bearerbox()
        while self.queued < len(self.messages) and self.in_the_air() < IN_FLIGHT:
            self.feed()
        wait_until(lambda: self.in_the_air() >= min(IN_FLIGHT, 4), 10, "calls in the air")
        self.kills.append(("unanswered", self.in_the_air()))
        self.gateway.kill_smsbox()
        self.gateway.resume_bearerbox()
        self.say(f"bearerbox stalled, smsbox killed: {self.kills[-1][1]} calls that nobody will answer")

    def restart(self):
        self.gateway.start_smsbox()
        self.say("smsbox started again")

    def play(self, limit, progress=None):
        """Feeds, kills, restarts; True when nothing is left to do in time."""
        total, down_since = len(self.messages), None
        at = time.monotonic()
        self.worker.wait_ready(60)
        while time.monotonic() < limit:
            if self.queued < total and time.monotonic() >= at:
                self.feed()
                at = time.monotonic() + BATCH_S
            states = self.states()
            done = states.get("sent", 0)
            if states.get("unknown"):
                self.doubted |= {row[0] for row in self.sql("select recipient from postrider.messages"
                                                            " where state = 'unknown'")}
            if down_since is None and len(self.kills) == 0 and done >= total * KILL_AT:
                self.kill()
                down_since = time.monotonic()
            elif down_since is None and len(self.kills) == 1 and done >= total * STALL_AT:
                self.kill_unanswered()
                down_since = time.monotonic()
            elif down_since is not None and time.monotonic() > down_since + DOWN_S:
                self.restart()
                down_since = None
            if progress:
                progress.show(done, "  ".join(f"{k} {v:,}" for k, v in sorted(states.items()) if k != "sent"))
            if self.queued == total and len(self.kills) == 2 and down_since is None and self.settled():
                return True
            time.sleep(0.05)
        return False

    def settled(self):
        """Nothing waits, here or in the gateway, and news has stopped coming."""
        if not set(self.states()) <= {"sent", "unknown", "failed"} or self.gateway.queued():
            return False
        if not self.receipts:
            return True
        before = self.receipt_counts(), self.states()
        time.sleep(1.5)  # longer than smsbox's pause before it fetches a dlr-url again
        return before == (self.receipt_counts(), self.states()) and not self.gateway.queued()

    def receipt_counts(self):
        return dict(self.sql("select receipt::text, count(*)::int from postrider.messages group by 1"))

    # -- what came of it --------------------------------------------------------------------

    def verdict(self, finished):
        rows = dict((number, (state, receipt)) for number, state, receipt in
                    self.sql("select recipient, state::text, receipt::text from postrider.messages"))
        doubts = sum(value for name, value in self.worker.metrics().items()
                     if name.startswith("postrider_attempts_total{") and 'outcome="unknown"' in name)
        return judge(self.messages, rows, self.doubted, int(doubts), self.gateway.arrivals(), self.kills, finished)


def judge(messages, rows, doubted, doubts, arrived, kills, finished):
    """The fake SMSC's log against the database: counts, and the numbers behind what must not be."""
    texts = {m.number: kannel.on_the_air(m.text) for m in messages}
    state = {number: row[0] for number, row in rows.items()}
    whole = {number for number, text in texts.items() if text in arrived.whole.get(number, [])}
    lost = sorted(n for n in texts if n not in whole and state.get(n) not in ("unknown", "failed", "pending"))
    doubled = sorted(n for n in texts if arrived.copies(n) > 1)
    wrong = sorted(n for n in arrived.whole if set(arrived.whole[n]) != {texts.get(n)})
    unknown = sorted(n for n in texts if state.get(n) == "unknown")
    kinds = {}
    for m in messages:
        k = kinds.setdefault(m.kind, [0, 0])
        k[0] += 1
        k[1] += m.number in whole
    receipts = {}
    for _, receipt in rows.values():
        receipts[receipt] = receipts.get(receipt, 0) + 1
    return {
        "messages": len(messages), "finished": finished,
        "arrived": len(whole), "parts": arrived.parts, "lost": len(lost), "doubled": len(doubled),
        "wrong": len(wrong), "torn": len(arrived.torn), "strangers": len(arrived.strangers),
        "failed": sum(s == "failed" for s in state.values()),
        "pending": sum(s in ("pending", "sending") for s in state.values()),
        "unknown": len(unknown), "unknown_arrived": sum(n in whole for n in unknown),
        "doubts": doubts, "doubted": len(doubted), "doubted_arrived": sum(n in whole for n in doubted),
        "settled_by_receipt": doubts - len(unknown),
        "receipts": receipts, "kills": [{"how": how, "in_hands": n} for how, n in kills],
        "texts": {kind: {"messages": n, "arrived": came} for kind, (n, came) in kinds.items()},
        "numbers": {"lost": lost[:10], "doubled": doubled[:10], "wrong": wrong[:10]}}


def good(v):
    return (v["finished"] and v["lost"] == v["doubled"] == v["wrong"] == v["strangers"] == v["failed"] == 0
            and v["pending"] == 0 and v["doubts"] >= v["unknown"] and len(v["kills"]) == 2 and v["torn"] <= v["unknown"]
            and v["arrived"] + v["unknown"] - v["unknown_arrived"] == v["messages"])


def show(v, seconds):
    receipts = v["receipts"]
    print(f"""
  verdict, by the fake SMSC's own log, after {seconds:.0f} s
    messages           {v['messages']:>8,}
    arrived whole      {v['arrived']:>8,}   in {v['parts']:,} parts
    lost silently      {v['lost']:>8,}
    doubled            {v['doubled']:>8,}
    other text         {v['wrong'] + v['strangers']:>8,}
    calls unanswered   {v['doubts']:>8,}   smsbox died over them
      settled since    {v['settled_by_receipt']:>8,}   a receipt proved that Kannel had the message
      still unknown    {v['unknown']:>8,}   {v['unknown_arrived']:,} of them had been taken: Kannel proves neither, and `hold` sends nothing twice
    receipts           {receipts.get('delivered', 0):>8,}   delivered; {receipts.get('in_transit', 0):,} in transit, {receipts.get('none', 0):,} without

    Receipts are made by Kannel's driver for the fake SMSC: they prove their way back, not that a phone rang.
    Kannel fetches a receipt's URL from memory: those in a killed smsbox's hands are lost with it.
""")
    table(("text", "messages", "arrived"), [(k, t["messages"], t["arrived"]) for k, t in v["texts"].items()])
    print(f"\n  {v['lost']} lost silently, {v['doubled']} doubled, {v['unknown']} unknown: "
          f"{'as promised' if good(v) else 'NOT AS PROMISED'}", flush=True)
    if not good(v):
        print(f"  {v}", file=sys.stderr)


def main():
    began = time.monotonic()
    parser = options(__doc__)
    parser.add_argument("--without-receipts", action="store_true")
    args = parser.parse_args()
    messages = number_from("MESSAGES", 1000, 100)
    print("postrider demo-kannel: starting a private PostgreSQL, Kannel with its fake SMSC, and a worker ...", flush=True)
    with new_cluster() as cluster:
        progress = Progress(messages)
        run = Run(cluster, messages, not args.without_receipts, progress.say)
        try:
            finished = run.play(began + LIMIT_S, progress)
            progress.clear()
            result = run.verdict(finished)
            if not good(result):
                print(f"\n  end of the worker's log:\n{run.worker.log_text()[-3000:]}", file=sys.stderr)
        finally:
            run.close()
    show(result, time.monotonic() - began)
    write_json(args.json, result)
    return 0 if good(result) else 1


if __name__ == "__main__":
    run_main(main)
