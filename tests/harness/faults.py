"""What the fault tests share: a database with messages in it, and what must hold at the end.

    house = House(cluster)            # a migrated database of its own, quick retries; it goes with
                                      # the cluster, as each drop would wait for a checkpoint
    ids = house.load(24)              # campaign messages, committed
    house.settled()                   # waits until nothing is pending or sending
    house.check(sandbox, ids)         # the ledger's word: lost, doubled; counters = full count

The sandbox is the judge: losses and duplicates are read from its ledger."""

import json
import pathlib
import signal

from .procs import Worker, merged, wait_until

LEASE_S = 5  # the shortest that is allowed


def no_dedup():
    """The part of a config that says: this vendor knows no keys (the header goes along)."""
    return {"providers": {"main": {"settings": {"dedup": None, "key_header": "Idempotency-Key"}}}}


def config(dsn, vendor_url, **over):
    """Short leases, small batches. Values given replace those here, dict into dict."""
    base = {
        "database": dsn, "listen": "127.0.0.1:0", "in_flight": 4, "lease_s": LEASE_S,
        "poll_ms": 50, "settle_allowance_ms": 300,
        "providers": {"main": {
            "plugin": "http", "in_flight": 4, "connect_timeout_ms": 500, "timeout_ms": 2000,
            "settings": {
                "url": f"{vendor_url}/messages", "method": "POST",
                "body": {"to": "{{recipient}}", "text": "{{body}}", "key": "{{key}}",
                         "lane": "{{kind}}", "t": "{{created_ms}}"},
                "dedup": {"header": "Idempotency-Key", "window_s": 86400},
                "accepted": {"status": [200, 201, 202], "id": "/id"}}}}}
    return merged(base, over)


def start(running, house, sandbox, *, dedup=True, env=None, dsn=None, **over):
    """A worker on this database; `running` is who stops it."""
    settings = config(dsn or house.dsn, sandbox.url, **over)
    if not dedup:
        settings = merged(settings, no_dedup())
    running.append(Worker(settings, env=env))
    return running[-1]


def armed(point, action="kill", count=1):
    return {"POSTRIDER_FAILPOINT": f"{point}:{count}={action}"}


def stopped(process):
    """Stands still in a SIGSTOP."""
    text = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0] == "T"


class House:
    """One database and what is asked of it."""

    def __init__(self, cluster, name=None):
        self.cluster = cluster
        self.name = name or cluster.migrated()
        self.dsn = cluster.dsn(self.name)
        self.tcp_dsn = cluster.dsn(self.name, tcp=True)
        self._conn = None
        if name is None:
            self.sql("update postrider.kind set backoff_base_ms = 50, backoff_cap_ms = 200")

    def connect(self):
        if self._conn is None or self._conn.closed:
            self._conn = self.cluster.connect(self.dsn)
        return self._conn

    def sql(self, text, *values):
        with self.connect().cursor() as cur:
            cur.execute(text, values or None)
            return cur.fetchall() if cur.description else None

    def one(self, text, *values):
        rows = self.sql(text, *values)
        assert len(rows) == 1 and len(rows[0]) == 1, rows
        return rows[0][0]

    def close(self):
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    # -- messages

    def load(self, n, kind="campaign"):
        """n messages in one transaction; their ids."""
        before = {str(r[0]) for r in self.sql("select id from postrider.message")}
        made = self.one(
            "select postrider.send_many(array(select '+9989' || lpad(i::text, 8, '0')"
            " from generate_series(1, %s) i), array['Salom'], kind => %s)", n, kind)
        assert made == n
        return sorted({str(r[0]) for r in self.sql("select id from postrider.message")} - before)

    def send(self, kind="otp", recipient="+998901234567"):
        return str(self.one("select postrider.send(%s, 'Kodingiz: 482913', kind => %s)",
                            recipient, kind))

    def states(self):
        """{state: number of messages}, by a full count."""
        return dict(self.sql("select state::text, count(*) from postrider.message group by 1"))

    def ids(self, state):
        return {str(r[0]) for r in
                self.sql("select id from postrider.message where state = %s", state)}

    def backends(self):
        """How many sessions of workers there are."""
        return self.one("select count(*) from pg_stat_activity where datname = %s"
                        " and application_name like 'postrider/%%'", self.name)

    def left_alone(self):
        """Waits until the sessions of a dead worker have ended: what it sent has landed or not."""
        wait_until(lambda: self.backends() == 0, 20, "the dead worker's sessions to end")

    def claims(self):
        """Claims with messages; a tombstone of a lost one (no ids) stays for a lease."""
        return self.one("select count(*) from postrider.claim where ids <> '{}'")

    def settled(self, timeout=60):
        """Until nothing waits, nothing is sending and no claim is left (U2, S1)."""
        wait_until(lambda: not {"pending", "sending"} & set(self.states()) and self.claims() == 0,
                   timeout, lambda: f"all messages to end: {self.states()}, claims {self.claims()}",
                   interval=0.1)

    def counters_agree(self):
        """B3: the maintained counters equal a full count."""
        rows = self.sql("""
            select kind, state, sum(n) from (
              select kind, state::text, count(*) as n from postrider.message group by 1, 2
              union all
              select kind, state::text, -count from postrider.counts) as both_ways
             group by 1, 2 having sum(n) <> 0""")
        assert rows == [], f"counters drifted (kind, state, by how many): {rows}"

    def check(self, sandbox, ids, lost=0):
        """The phones' word on these messages, and the table's against it. Returns the keys that
        no phone has."""
        verdict = sandbox.api(f"/missing?limit={len(ids)}", "POST", "\n".join(ids).encode())
        assert verdict["asked"] == len(ids)
        assert verdict["duplicated"] == 0, verdict
        missing = set(verdict["missing_keys"])
        assert len(missing) == verdict["missing"]
        if lost is not None:
            assert len(missing) == lost, verdict
        assert not missing & self.ids("sent"), "the table says sent, no phone has it"
        self.counters_agree()
        return missing


def requests_of(sandbox, key):
    """How often the vendor was asked to send this message."""
    status, text = sandbox.http(f"/api/ledger/{key}")
    if status == 404:
        return 0
    assert status == 200, text
    return json.loads(text)["requests"]


def entries(sandbox):
    """{key: entry} of the whole ledger."""
    found, offset = {}, 0
    while True:
        page = sandbox.api(f"/ledger?offset={offset}&limit=10000")
        rows = page["entries"] if isinstance(page, dict) else page
        for entry in rows:
            found[entry["key"]] = entry
        if len(rows) < 10000:
            return found
        offset += len(rows)


def freeze(worker):
    worker.kill(signal.SIGSTOP)
    wait_until(lambda: stopped(worker), 10, "the worker to stand still")


def thaw(worker):
    worker.kill(signal.SIGCONT)
