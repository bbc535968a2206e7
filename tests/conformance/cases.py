"""One variant's way through all cases. The vendor's ledger and the messages' states are the judges;
what a plugin said is never asked. What is expected follows from what the plugin claims (caps).

A case ends as "ok", "n/a" with the reason, or "FAIL" with what was seen."""

import hashlib
import itertools
import json
import threading
import time
import traceback
import urllib.parse
from dataclasses import dataclass

from tests.harness.procs import wait_until

from .wire import HALF, LOSE

PATIENCE_S, TIRED_S = 90, 20
LATE_MS = 1500
ENTERED = 16  # plain messages: after as many good answers nothing is left of the worker's caution

BURSTS = threading.Semaphore(4)  # a machine of two cores should not time out over its own tests

OUTCOMES = ("accepted", "rejected", "opted out", "throttled", "held", "later", "unreached", "lost answer",
            "half answer", "never seen", "5xx taken", "duplicate", "found", "login")
TEXTS = {
    "marks": "1+1=2 & 50% off? a#b \"q\" \\ ñ\nend",
    "uzbek": "O\u02bbzbekiston, g\u02bbisht: to\u02bblov 5 000 so\u02bbm",
    "vietnamese": "Mã xác nhận của bạn: \u0111ã gửi \u0110ồng",
    "emoji": "Hi \U0001f600 \u2764\ufe0f ok",
    "10 parts": "x" * 1529 + "y",  # 10 x 153 septets
    "10 parts UCS-2": "\u0448" * 669 + "\u0449",  # 10 x 67 units
}
RECEIPTS = ("delivered", "undelivered", "expired", "none", "late", "early", "settles", "forged", "parts")
CASES = OUTCOMES + tuple(TEXTS) + RECEIPTS


@dataclass
class Message:
    case: str
    number: str
    text: str
    kind: str
    id: str = ""

    @property
    def name(self):
        """In the ledger."""
        return f"{self.number}:{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


class Row:
    """A message as the database has it, with its attempts."""

    def __init__(self, columns):
        (self.state, self.attempts, self.calls, self.doubts, self.receipt, self.reason, self.vendor_id) = columns
        self.outcomes = []  # (outcome, phase, code) on record, oldest first

    def __str__(self):
        return (f"state {self.state}, attempts {self.attempts}, calls {self.calls}, doubts {self.doubts}, "
                f"receipt {self.receipt}, reason {self.reason}, id {self.vendor_id}, on record {self.outcomes}")


class Course:
    """A variant, its vendor, its wire, and the results so far."""

    def __init__(self, variant, place, caps, box, wire, db, *, token, wanted=CASES, told=lambda *_: None):
        """`place`: 0 to 99, part of its numbers, that no two variants share one."""
        self.v, self.place, self.caps, self.box, self.wire, self.db = variant, place, caps, box, wire, db
        self.token, self.wanted, self._told = token, wanted, told
        self.worker = None  # who runs it comes last: it needs all the others
        self.patience = PATIENCE_S
        self.results = {}  # case -> (result, why)
        self._numbers = itertools.count(1)
        self._conn = None

    # ---- what is claimed

    @property
    def dedups(self):
        return self.caps["dedup"] != "none"

    @property
    def asks(self):
        """Asking helps only where it needs no id: that was lost with the answer."""
        return self.caps["ask"] in ("by_key", "by_text") and not self.dedups

    @property
    def reports(self):
        return self.caps["receipts"] != "none"

    @property
    def doubtful(self):
        """The kind for what may be lost: the one that asks where that is possible."""
        hold, ask = self.v.kinds
        return ask if self.asks else hold

    # ---- database and ledger

    def sql(self, text, *values):
        if self._conn is None:
            self._conn = self.db.connect()
        with self._conn.cursor() as cur:
            cur.execute(text, values or None)
            return cur.fetchall() if cur.description else None

    def row(self, m):
        [columns] = self.sql("select state::text, attempts::int, calls, doubts::int, receipt::text, reason, vendor_id"
                             " from postrider.messages where id = %s", m.id)
        row = Row(columns)
        row.outcomes = self.sql("select outcome::text, phase, code from postrider.attempts where message_id = %s"
                                " order by started_at, token", m.id)
        return row

    def ledger(self, m):
        """(deliveries, requests) as the vendor counted them."""
        status, body = self.box.http("/api/ledger/" + urllib.parse.quote(m.name))
        if status == 404:
            return 0, 0
        entry = json.loads(body)
        return entry["deliveries"], entry["requests"]

    def phone(self, m):
        """What the vendor took for this number."""
        to = urllib.parse.quote(m.number)
        return self.box.api(f"/api/messages?to={to}")["messages"]

    def knobs(self, **values):
        self.box.api("/knobs", "PUT", values)

    # ---- messages

    def send(self, case, ending=None, text=None, kind=None, rule=None):
        n = next(self._numbers)
        number = f"+{self.v.prefix}{self.place:02}{n:03}{ending or f'{n:04}'}"
        m = Message(case, number, text or f"{self.v.name} {n} {case}", kind or self.v.kinds[0])
        if rule:
            self.wire.once(number, rule)
        m.id = str(self.sql("select postrider.send(%s, %s, kind => %s)", number, m.text, m.kind)[0][0])
        return m

    def until(self, m, condition, what, timeout=None):
        """Waits until condition(row); returns the row, whether it came about or not. Who has let us
        wait in vain once is not waited for so long again."""
        last = []

        def look():
            last[:] = [self.row(m)]
            return condition(last[0])
        try:
            wait_until(look, timeout or self.patience, what, interval=0.2)
        except AssertionError:
            self.patience = TIRED_S
        return last[0]

    def ends(self, m, state):
        return self.until(m, lambda r: r.state == state, state)

    # ---- results

    def judge(self, case, faults, m=None):
        faults = [f for f in faults if f]
        if faults and m is not None:
            faults.append(f"{m.number} ({m.kind}): {self.row(m)}; ledger (deliveries, requests) {self.ledger(m)}")
            faults.append("over the wire:\n" + self.wire.told(m.number))
        old = self.results.get(case)
        if old and old[0] == "FAIL":
            if faults:
                self.results[case] = ("FAIL", old[1] + "; " + "; ".join(faults))
            return
        self.results[case] = ("FAIL", "; ".join(faults)) if faults else ("ok", "")
        self._told(self.v.name, case, *self.results[case])

    def na(self, case, why, faults=(), m=None):
        """Does not apply; `faults` is what was seen against that."""
        faults = [f for f in faults if f]
        if faults:
            self.judge(case, [f"not applicable ({why}), and yet"] + faults, m)
        else:
            self.results[case] = ("n/a", why)
            self._told(self.v.name, case, "n/a", why)

    def expect(self, m, state, *, deliveries=None, requests=None, attempts=None, calls=None, record=None):
        """Waits for the state, then compares; returns what is wrong."""
        row = self.ends(m, state)
        got, asked = self.ledger(m)
        faults = []
        for what, have, want in (("state", row.state, state), ("deliveries", got, deliveries),
                                 ("requests at the vendor", asked, requests), ("attempts", row.attempts, attempts),
                                 ("calls", row.calls, calls)):
            if want is not None and have not in (want if isinstance(want, tuple) else (want,)):
                faults.append(f"{what} {have}, not {want}")
        if record is not None and [o[0] for o in row.outcomes] != list(record):
            faults.append(f"on record {[o[0] for o in row.outcomes]}, not {list(record)}")
        return faults

    def text_at_phone(self, m):
        texts = [t["text"] for t in self.phone(m)]
        return "" if texts == [m.text] else f"at the phone: {texts!r:.300}, not [{m.text!r:.100}]"

    def id_as_declared(self, m):
        row, at_vendor = self.row(m), self.phone(m)
        ids = at_vendor[0]["ids"] if at_vendor else []
        if row.vendor_id is None:
            return "" if self.caps["answers_without_id"] else "no vendor id, though the plugin says there is one"
        return "" if row.vendor_id in ids else f"id {row.vendor_id} is not the vendor's {ids}"

    # ---- the course

    def run(self):
        try:
            for part in (self.plain, self.server_error, self.held, self.throttled, self.login, self.receipts,
                         self.unreached):
                part()
        except Exception:
            self.results["the course"] = ("FAIL", traceback.format_exc(limit=4))
            self._told(self.v.name, "the course", *self.results["the course"])
        finally:
            if self._conn:
                self._conn.close()
        return self.results

    def wants(self, *cases):
        return any(c in self.wanted for c in cases)

    def plain(self):
        """All that shuts no door, at once: what is answered, then what is not."""
        with BURSTS:
            self._together(("accepted", self._accepted), ("rejected", self._rejected), ("opted out", self._opted_out),
                           *((name, lambda n=name, t=text: self._text(n, t)) for name, text in TEXTS.items()))
        self._together(("later", self._later), ("lost answer", self._lost), ("half answer", self._half),
                       ("never seen", self._never), ("found", self._found))

    def _together(self, *starts):
        for finish in [start() for case, start in starts if case in self.wanted]:
            finish()

    def _accepted(self):
        many = [self.send("accepted") for _ in range(ENTERED)]

        def finish():
            for m in many:
                faults = self.expect(m, "sent", deliveries=1, requests=1, attempts=1, calls=1)
                self.judge("accepted", faults or [self.text_at_phone(m), self.id_as_declared(m)], m)
        return finish

    def _rejected(self):
        m = self.send("rejected", "9904")
        return lambda: self.judge("rejected", self.expect(
            m, "failed", deliveries=0, requests=1, attempts=1, record=["rejected"]), m)

    def _opted_out(self):
        m = self.send("opted out", "9908")

        def finish():
            faults = self.expect(m, "failed", deliveries=0, requests=1, attempts=1, record=["rejected"])
            listed = self.sql("select class, source from postrider.suppression where recipient = %s", m.number)
            if self.v.no_opt_out:
                self.na("opted out", self.v.no_opt_out, faults + ([f"the list says {listed}"] if listed else []), m)
            else:
                self.judge("opted out", faults + ([] if listed == [("all", "vendor")] else [f"the list says {listed}"]), m)
        return finish

    def _later(self):
        m = self.send("later", "9909", kind=self.doubtful)

        def finish():
            if not self.v.no_later:
                self.judge("later", self.expect(m, "sent", deliveries=1, requests=2, calls=2,
                                                attempts=1 if self.v.later == "throttled" else 2,
                                                record=[self.v.later, "accepted"]), m)
            else:  # an unproven 5xx, not taken
                self.na("later", self.v.no_later, self._of_doubt(m, taken=False, requests=(2, 1)), m)
        return finish

    def _of_doubt(self, m, taken, requests=None):
        """What must come of an unproven attempt; `taken`: the phone has it, whatever we know.
        `requests`: those that reach the vendor if it goes again, and if it does not."""
        again, once = requests or (2, 1)
        if self.dedups:  # libcurl may repeat by itself where a connection died: one attempt then
            return self.expect(m, "sent", deliveries=1, requests=again, attempts=(1, 2))
        if self.asks:
            if taken:
                return self.expect(m, "sent", deliveries=1, requests=once, calls=1)
            return self.expect(m, "sent", deliveries=1, requests=again, calls=2)
        faults = self.expect(m, "unknown", deliveries=int(taken), requests=once, attempts=1, calls=1, record=["unknown"])
        return faults

    def _lost(self):
        """Under `hold`: nothing may be sent twice, by whatever the vendor can prove."""
        m = self.send("lost answer", "9903")

        return lambda: self.judge("lost answer", self._of_doubt(m, taken=True), m)

    def _duplicate(self, m):
        """The vendor's answer to a known key is taken for what it is."""
        if not self.dedups:
            return self.na("duplicate", "claims no de-duplication: no key is known to the vendor")
        said = self.box.api("/stats")["decided"].get("replayed", 0)
        record = [o[0] for o in self.row(m).outcomes]
        self.judge("duplicate", [
            f"the vendor named {said} duplicates" if said < 1 else "",
            f"on record {record}" if record != ["unknown", "accepted"] else ""], m)

    def _half(self):
        m = self.send("half answer", kind=self.doubtful, rule=HALF)

        def finish():
            self.judge("half answer", self._of_doubt(m, taken=True), m)
            self._duplicate(m)
        return finish

    def _never(self):
        """The request is lost: the vendor never saw it."""
        m = self.send("never seen", kind=self.doubtful, rule=LOSE)

        def finish():
            faults = self._of_doubt(m, taken=False, requests=(1, 0))
            if self.asks or self.dedups:
                self.judge("never seen", faults, m)
            else:
                self.na("never seen", self._no_look_up(), faults, m)
        return finish

    def _no_look_up(self):
        return ("its look-up needs the vendor's id, which was lost with the answer: unknown under hold"
                if self.caps["ask"] == "by_id" else "claims neither look-up nor de-duplication: unknown under hold")

    def _found(self):
        if not self.asks:
            return lambda: self.na("found", "a repeat under the same key tells, no look-up is needed"
                                   if self.dedups else self._no_look_up())
        m = self.send("found", "9903", kind=self.doubtful)

        def finish():
            faults = self.expect(m, "sent", deliveries=1, requests=1, calls=1, record=["accepted"])
            phases = [o[1] for o in self.row(m).outcomes]
            self.judge("found", faults + [f"settled in phase {phases}" if phases != ["asked"] else "",
                                          self.id_as_declared(m)], m)
        return finish

    def _text(self, name, text):
        m = self.send(name, text=text)
        if self.v.longest and len(text) > self.v.longest:
            def finish():
                row = self.until(m, lambda r: r.state in ("failed", "sent", "unknown"), "an end")
                taken = self.ledger(m)[0]
                self.na(name, f"refused: over the vendor's limit of {self.v.longest} characters",
                        [] if (row.state, taken) == ("failed", 0) else [f"{row.state}, {taken} taken"], m)
            return finish
        return lambda: self.judge(name, self.expect(m, "sent", deliveries=1, requests=1, calls=1)
                                  or [self.text_at_phone(m)], m)

    def server_error(self):
        """Taken, and answered as the vendor words its own trouble."""
        if not self.wants("5xx taken"):
            return
        self.knobs(error_taken=1)
        m = self.send("5xx taken", kind=self.doubtful)
        self.until(m, lambda r: r.doubts > 0, "the doubt")
        self.knobs(error_taken=0)
        faults = [] if not self.dedups else None
        if self.dedups:  # a repeat may have met the knob as well
            faults = self.expect(m, "sent", deliveries=1)
        else:
            faults = self._of_doubt(m, taken=True)
        self.judge("5xx taken", faults, m)

    def calm(self):
        """So many good answers that the worker forgets what shut the door before."""
        for m in [self.send("accepted") for _ in range(ENTERED)]:
            self.judge("accepted", self.expect(m, "sent", deliveries=1), m)

    def held(self):
        if not self.wants("held"):
            return
        self.calm()
        m = self.send("held", "9910")
        faults = self.expect(m, "sent", deliveries=1, requests=2, attempts=1, calls=2, record=["held", "accepted"])
        paused = f"provider={self.v.name} why=held" in self.worker.log_text()
        self.judge("held", faults + ([] if paused else ["the provider was not paused"]), m)

    def throttled(self):
        if not self.wants("throttled"):
            return
        m = self.send("throttled", "9907")
        self.judge("throttled", self.expect(
            m, "sent", deliveries=1, requests=2, attempts=1, calls=2, record=["throttled", "accepted"]), m)

    def login(self):
        """The vendor forgets its tokens: one login follows, nothing is lost or doubled."""
        if not self.wants("login"):
            return None
        before = self.box.api("/stats")["dialect"]["logins"]
        if self.v.no_login:
            return self.na("login", self.v.no_login, [f"{before} logins"] if before else [])
        if self.v.own_token:
            seconds = int(time.time()) + 1  # such a token counts them: the next has to be of a later one
            wait_until(lambda: time.time() > seconds, what="the next second")
        self.knobs(expire_tokens=True)
        many = [self.send("login") for _ in range(4)]
        faults = [f for m in many for f in self.expect(m, "sent", deliveries=1, attempts=1)]
        logins = self.box.api("/stats")["dialect"]["logins"] - before
        if logins != (0 if self.v.own_token else 1):
            faults.append(f"{logins} logins")
        if max(self.row(m).calls for m in many) != 2:
            faults.append(f"calls {[self.row(m).calls for m in many]}: none met the old token, or one too often")
        if not self.caps["logs_in"]:
            faults.append("the plugin claims no login")
        return self.judge("login", faults, many[0])

    # ---- receipts

    def receipts(self):
        if not self.wants(*RECEIPTS):
            return
        if not self.reports:
            for case in RECEIPTS:
                self.na(case, "the plugin claims no receipts with these settings")
            return
        self.knobs(receipts="on", receipt_late_ms=LATE_MS)
        late = self.send("late", "9906")
        first = {case: self.send(case, ending) for case, ending in
                 (("delivered", "9901"), ("undelivered", "9902"), ("expired", "9911"), ("none", "9905"))}
        self._settles()
        self._parts()
        for case, want in (("delivered", "delivered"), ("undelivered", "undelivered"), ("expired", self.v.expired)):
            self._reported(case, first[case], want)
        self._reported("late", late, "delivered")
        self._came_late(late)
        self._none(first["none"])
        self._forged(first["none"])
        self._early()

    def _reported(self, case, m, want):
        row = self.until(m, lambda r: r.state == "sent" and r.receipt == want, want)
        got = self.ledger(m)
        self.judge(case, [f"{row.state}, receipt {row.receipt}, not {want}" if (row.state, row.receipt) != ("sent", want)
                          else "", f"ledger {got}" if got != (1, 1) else ""], m)

    def _came_late(self, m):
        [(came,)] = self.sql("select max(extract(epoch from at)) * 1000 from postrider.receipts where message_id = %s"
                             " or vendor_id = (select vendor_id from postrider.messages where id = %s)", m.id, m.id)
        taken = self.phone(m)[0]["taken_ms"]
        if came is None or came - taken < LATE_MS - 200:
            self.judge("late", [f"came {came}, taken {taken}"], m)

    def _none(self, m):
        row = self.ends(m, "sent")
        try:
            wait_until(lambda: self.box.api("/stats")["dialect"]["receipts"]["pending"] == 0, 30, "all receipts")
        except AssertionError as problem:
            return self.judge("none", [str(problem)], m)
        told = self.box.api("/stats")["dialect"]["receipts"]
        row = self.row(m)
        self.judge("none", [f"receipt {row.receipt}" if (row.state, row.receipt) != ("sent", "none") else "",
                            f"the vendor counts {told}" if told["failed"] or told["given_up"] or told["untold"] else ""], m)
        return None

    def _forged(self, m):
        """Nothing of a forgery is kept. Unsigned ones are guarded by the address alone."""
        before = self.sql("select count(*) from postrider.callback where provider = %s", self.v.name)
        shot = {"id": self.phone(m)[0]["ids"][0], "state": "delivered"}
        signed = self.caps["receipts"] == "signed"
        if signed:
            tries = [(dict(shot, sign="forged"), 403), (dict(shot, sign="unsigned"), 403)]
        else:
            wrong = f"{self.worker.url}/receipts/{self.v.name}/{self.token[:-1]}X?k={m.id}"
            tries = [(dict(shot, url=wrong), 404)]
        faults = []
        for body, want in tries:
            status = self.box.api("/api/receipt", "POST", body)["status"]
            if status != want:
                faults.append(f"{body} was answered {status}, not {want}")
        after = self.sql("select count(*) from postrider.callback where provider = %s", self.v.name)
        row = self.row(m)
        if after != before or row.receipt != "none":
            faults.append(f"callbacks {before} then {after}, receipt {row.receipt}")
        if signed:
            self.judge("forged", faults, m)
        else:
            self.na("forged", "receipts are not signed: the token in their address is the guard (a wrong one: 404)",
                    faults, m)

    def _settles(self):
        """Under hold the receipt of a message whose answer was lost settles the doubt."""
        if self.dedups or self.asks:
            return self.na("settles", "the doubt is settled by the same key or a look-up")
        m = self.send("settles", "9903")
        if self.caps["receipts_by_id"]:
            row = self.until(m, lambda r: r.state == "unknown", "unknown")
            return self.na("settles", "its receipts name the vendor's id alone, which was lost with the answer",
                           [] if row.state == "unknown" and self.ledger(m) == (1, 1) else [str(row)], m)
        row = self.until(m, lambda r: r.state == "sent" and r.receipt == "delivered", "the receipt")
        good = (row.state, row.receipt) == ("sent", "delivered") and self.ledger(m) == (1, 1)
        return self.judge("settles", [] if good else [str(row)], m)

    def _parts(self):
        if not self.caps["several_ids"]:
            return self.na("parts", "one id and one receipt a message")
        m = self.send("parts", "9901", text="parts " + "z" * 400)
        faults = []
        row = self.until(m, lambda r: r.state == "sent" and r.receipt == "delivered", "all parts")
        ids = self.phone(m)[0]["ids"] if self.phone(m) else []
        kept = self.sql("select vendor_id, receipt::text from postrider.vendor_ref where message_id = %s order by part", m.id)
        if (row.state, row.receipt) != ("sent", "delivered"):
            faults.append(str(row))
        if len(ids) != 3 or kept != [(i, "delivered") for i in ids]:
            faults.append(f"ids at the vendor {ids}, kept {kept}")
        return self.judge("parts", faults, m)

    def _early(self):
        """The vendor answers only once its receipt was taken."""
        if self.v.no_early:
            return self.na("early", self.v.no_early)
        self.knobs(receipt_first="on")
        m = self.send("early", "9901")
        self._reported("early", m, "delivered")
        self.knobs(receipt_first="off")
        return None

    # ---- nobody listens

    def unreached(self):
        if not self.wants("unreached"):
            return
        self.wire.cut()
        m = self.send("unreached")
        row = self.until(m, lambda r: (r.state, r.reason) == ("pending", "provider unreached"), "the refusal", 30)
        faults = [f"while nobody listened: {row}"] if (row.state, row.attempts, row.calls) != ("pending", 0, 0) else []
        self.wire.mend()
        self.judge("unreached", faults + self.expect(m, "sent", deliveries=1, requests=1, attempts=1, calls=1), m)
