#!/usr/bin/python3
"""The naive sender, for comparison: claim one, call, mark. This is what the laboratory measures
postrider against; nothing in postrider uses it.

    naive.py DSN HOST:PORT TIMEOUT_MS

One claim is one transaction (SKIP LOCKED). A timeout puts the row back to `pending`; after three
attempts it is `failed`. There is no lease: what dies after claiming stays in `sending`. It sends the
row's id as idempotency key, so a vendor that de-duplicates may. SIGTERM ends it between two jobs."""

import http.client
import json
import signal
import sys
import time

import psycopg2

ATTEMPTS = 3
SCHEMA = """
create table naive_job (
  id uuid primary key default gen_random_uuid(),
  no bigint generated always as identity,
  state text not null default 'pending',
  attempts integer not null default 0,
  recipient text not null,
  body text not null);
create index naive_job_pending on naive_job (no) where state = 'pending';
"""
FILL = """
insert into naive_job (recipient, body)
select '+99890' || lpad((n %% 10000000)::text, 7, '0'), %s from generate_series(0, %s - 1) as n"""
CLAIM = """
update naive_job set state = 'sending', attempts = attempts + 1
 where id = (select id from naive_job where state = 'pending' order by no limit 1 for update skip locked)
returning id::text, recipient, body, attempts"""
MARK = "update naive_job set state = %s where id = %s"


class Vendor:
    """One keep-alive connection, made anew after a timeout."""

    def __init__(self, address, timeout_ms):
        self.address = address
        self.timeout_s = timeout_ms / 1000
        self.conn = None

    def send(self, key, recipient, body):
        """True when the vendor said that it took the message."""
        if self.conn is None:
            self.conn = http.client.HTTPConnection(self.address, timeout=self.timeout_s)
        text = json.dumps({"to": recipient, "text": body, "key": key, "lane": "naive", "t": time.time() * 1000})
        try:
            self.conn.request("POST", "/messages", text, {"Content-Type": "application/json",
                                                          "Idempotency-Key": key})
            reply = self.conn.getresponse()
            reply.read()
            return 200 <= reply.status < 300
        except (OSError, http.client.HTTPException):
            self.conn.close()
            self.conn = None
            return False


def work(cur, vendor):
    """One job; False when none is pending."""
    cur.execute(CLAIM)
    row = cur.fetchone()
    if not row:
        return False
    key, recipient, body, attempts = row
    if vendor.send(key, recipient, body):
        cur.execute(MARK, ("sent", key))
    else:
        cur.execute(MARK, ("pending" if attempts < ATTEMPTS else "failed", key))
    return True


def main():
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    dsn, address, timeout_ms = sys.argv[1:]
    vendor = Vendor(address, int(timeout_ms))
    conn = psycopg2.connect(dsn, application_name="naive")
    conn.autocommit = True
    with conn.cursor() as cur:
        while not over:
            if not work(cur, vendor):
                time.sleep(0.05)


if __name__ == "__main__":
    main()
