-- Tables of postrider.
--
-- One message table, partitioned by day on its time-ordered id. Its only secondary index holds
-- what is due, so finished rows never weigh on a claim, and retention is a dropped partition.
-- There is no default partition: attaching the next day would have to scan it under a lock.

CREATE TYPE postrider.state AS ENUM
  ('pending', 'sending', 'unknown', 'sent', 'failed', 'expired', 'canceled', 'suppressed');
COMMENT ON TYPE postrider.state IS
  'Where a message is. Final: sent (a vendor took responsibility), failed, expired, canceled, suppressed.';

CREATE TYPE postrider.receipt AS ENUM ('none', 'in_transit', 'delivered', 'undelivered', 'expired');
COMMENT ON TYPE postrider.receipt IS 'What the vendor reported about the handset, beside the state.';

CREATE TYPE postrider.outcome AS ENUM
  ('accepted', 'rejected', 'throttled', 'held', 'unreached', 'refused', 'unknown');
COMMENT ON TYPE postrider.outcome IS 'What one attempt proved.';

-- Ids -------------------------------------------------------------------------------------

CREATE FUNCTION postrider.uuid7(at timestamptz DEFAULT clock_timestamp()) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  -- Time in 1/4096 ms is the first 48 bits and the 12 behind the version, in one number. One
  -- expression, so that the planner inlines it: a bulk insert calls it once a row.
  SELECT (overlay('0' || to_hex((date_part('epoch', at) * 4096000)::bigint) PLACING '7' FROM 13 FOR 0)
          || substr(gen_random_uuid()::text, 20))::uuid
$$;
COMMENT ON FUNCTION postrider.uuid7 IS
  'A version 7 UUID (RFC 9562): milliseconds, then 12 bits of the millisecond''s fraction, then random bits.';

CREATE FUNCTION postrider.uuid_floor(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION postrider.uuid_floor IS 'The smallest id of a moment: where a partition begins.';

CREATE FUNCTION postrider.uuid_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT to_timestamp(('x' || left(translate(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$$;
COMMENT ON FUNCTION postrider.uuid_time IS 'When an id was made, to the millisecond.';

-- What may be sent, and how ------------------------------------------------------------------

CREATE TABLE postrider.kind (
  name text CONSTRAINT kind_pkey PRIMARY KEY CONSTRAINT kind_name CHECK (name ~ '^[a-z][a-z0-9_]{0,39}$'),
  lane smallint NOT NULL CONSTRAINT kind_lane CHECK (lane BETWEEN 0 AND 9),
  reserved real NOT NULL DEFAULT 0 CONSTRAINT kind_reserved CHECK (reserved BETWEEN 0 AND 0.9),
  route text[],
  on_unknown text NOT NULL CONSTRAINT kind_on_unknown CHECK (on_unknown IN ('hold', 'ask', 'resend')),
  ttl interval NOT NULL CONSTRAINT kind_ttl CHECK (ttl BETWEEN '1 second' AND '31 days'),
  attempts smallint NOT NULL DEFAULT 4 CONSTRAINT kind_attempts CHECK (attempts BETWEEN 1 AND 100),
  max_calls integer NOT NULL DEFAULT 100 CONSTRAINT kind_max_calls CHECK (max_calls BETWEEN 1 AND 1000),
  backoff_base_ms integer NOT NULL CONSTRAINT kind_backoff_base CHECK (backoff_base_ms BETWEEN 10 AND 3600000),
  backoff_cap_ms integer NOT NULL CONSTRAINT kind_backoff_cap CHECK (backoff_cap_ms BETWEEN backoff_base_ms AND 86400000),
  max_segments smallint NOT NULL DEFAULT 10 CONSTRAINT kind_max_segments CHECK (max_segments BETWEEN 1 AND 255),
  cross_vendor_resend boolean NOT NULL DEFAULT false,
  wake boolean NOT NULL DEFAULT true
);
COMMENT ON TABLE postrider.kind IS 'Kinds of message and their rules. Edit freely; workers reread it every few seconds.';
COMMENT ON COLUMN postrider.kind.lane IS 'Priority: a lower lane is claimed first.';
COMMENT ON COLUMN postrider.kind.reserved IS 'Share of the worker''s in-flight slots that lower-priority lanes may not take.';
COMMENT ON COLUMN postrider.kind.route IS 'Providers in order of preference; NULL: all, in the order of the config file.';
COMMENT ON COLUMN postrider.kind.on_unknown IS 'What follows an outcome nobody can know: hold (never send again), ask, resend.';
COMMENT ON COLUMN postrider.kind.ttl IS 'How long after run_at a message is still useful, unless send() says otherwise.';
COMMENT ON COLUMN postrider.kind.attempts IS 'Most attempts that count; what was surely not sent or was throttled does not.';
COMMENT ON COLUMN postrider.kind.max_calls IS 'Most requests of any outcome for one message: ends endless throttling.';
COMMENT ON COLUMN postrider.kind.backoff_base_ms IS 'Pause after the first failed attempt; doubles with each further one.';
COMMENT ON COLUMN postrider.kind.backoff_cap_ms IS 'Longest pause between attempts.';
COMMENT ON COLUMN postrider.kind.max_segments IS 'Longest text send() accepts, in SMS segments.';
COMMENT ON COLUMN postrider.kind.cross_vendor_resend IS 'After a doubt, may another vendor be tried? A duplicate by definition.';
COMMENT ON COLUMN postrider.kind.wake IS 'NOTIFY the workers at commit. Off for bulk: each notifying commit takes a server-wide lock.';

INSERT INTO postrider.kind
  (name, lane, reserved, on_unknown, ttl, attempts, backoff_base_ms, backoff_cap_ms, wake) VALUES
  ('otp',           0, 0.10, 'resend', '5 minutes', 4,  1000,  30000, true),
  ('transactional', 1, 0.05, 'resend', '1 day',     6,  2000, 600000, true),
  ('campaign',      2, 0.00, 'hold',   '1 day',     4,  5000, 900000, false);

CREATE TABLE postrider.provider (
  name text CONSTRAINT provider_pkey PRIMARY KEY,
  plugin text NOT NULL,
  caps jsonb NOT NULL DEFAULT '{}',
  seen_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postrider.provider IS 'Providers as the workers last declared them, with what each can prove.';

CREATE TABLE postrider.worker (
  id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT worker_pkey PRIMARY KEY,
  host text NOT NULL,
  pid integer NOT NULL,
  version text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now(),
  stopped_at timestamptz,
  stats jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
COMMENT ON TABLE postrider.worker IS
  'Worker processes and their last sign of life. For people: no decision about a message reads it.';

-- Messages ------------------------------------------------------------------------------------

CREATE TABLE postrider.message (
  id uuid NOT NULL DEFAULT postrider.uuid7(),
  token bigint NOT NULL DEFAULT 0,
  due timestamptz,
  expires_at timestamptz NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  doubt_since timestamptz,
  calls integer NOT NULL DEFAULT 0,
  state postrider.state NOT NULL DEFAULT 'pending',
  receipt postrider.receipt NOT NULL DEFAULT 'none',
  lane smallint NOT NULL,
  attempts smallint NOT NULL DEFAULT 0,
  doubts smallint NOT NULL DEFAULT 0,
  taken boolean NOT NULL DEFAULT false,
  kind text NOT NULL DEFAULT 'transactional',
  recipient text NOT NULL,
  body text NOT NULL,
  sender text,
  key uuid,
  provider text,
  vendor_id text,
  reason text,
  ordering_key text,
  supersede_key text,
  meta jsonb,
  CONSTRAINT message_pkey PRIMARY KEY (id),
  CONSTRAINT message_due CHECK ((due IS NOT NULL) = (state = 'pending')),
  CONSTRAINT message_counts CHECK (attempts >= 0 AND doubts >= 0 AND calls >= 0),
  CONSTRAINT message_meta_size CHECK (pg_column_size(meta) <= 16384)
) PARTITION BY RANGE (id);
COMMENT ON TABLE postrider.message IS
  'Every message of the retention period. Insert through send(), send_many() or a plain INSERT; never update by hand.';
COMMENT ON CONSTRAINT message_meta_size ON postrider.message IS 'meta of at most 16 KiB: it travels with every claim, and a worker holds what it claimed in memory.';
COMMENT ON COLUMN postrider.message.id IS 'Time-ordered UUID: public id, partition key and, unless key is set, idempotency key.';
COMMENT ON COLUMN postrider.message.token IS 'The last claim that took the row. Later writes must name it (fencing).';
COMMENT ON COLUMN postrider.message.due IS 'When to claim it; set exactly while pending, and the only thing indexed.';
COMMENT ON COLUMN postrider.message.changed_at IS 'When the state last changed.';
COMMENT ON COLUMN postrider.message.doubt_since IS 'When the first attempt still in doubt was claimed: the vendor''s key window counts from here.';
COMMENT ON COLUMN postrider.message.calls IS 'Requests that were allowed to leave; never given back.';
COMMENT ON COLUMN postrider.message.attempts IS 'Attempts that count; one that surely did not send is given back.';
COMMENT ON COLUMN postrider.message.doubts IS 'Attempts whose outcome nobody knows yet.';
COMMENT ON COLUMN postrider.message.taken IS 'News came that an earlier attempt was accepted while a newer one was in the air.';
COMMENT ON COLUMN postrider.message.key IS 'Idempotency key given by the application; NULL: the id.';
COMMENT ON COLUMN postrider.message.provider IS 'Vendor of the last attempt; binding while doubts > 0.';
COMMENT ON COLUMN postrider.message.reason IS 'Why the state is what it is, in a word a program can compare.';

CREATE INDEX message_due_idx ON postrider.message (lane, due, id) WHERE due IS NOT NULL;

CREATE TABLE postrider.attempt (
  message_id uuid NOT NULL,
  token bigint NOT NULL,
  outcome postrider.outcome NOT NULL,
  provider text,
  phase text NOT NULL,
  code text,
  detail text,
  vendor_id text,
  started_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL,
  CONSTRAINT attempt_pkey PRIMARY KEY (message_id, token)
) PARTITION BY RANGE (message_id);
COMMENT ON TABLE postrider.attempt IS
  'Attempts of messages whose first attempt did not end cleanly. One row per claim of a message.';
COMMENT ON COLUMN postrider.attempt.phase IS 'How far the call came: queue, connect, tls, gate, sent, reply, complete; lost when its process died.';
COMMENT ON COLUMN postrider.attempt.code IS 'The vendor''s code, cleaned and shortened.';

CREATE SEQUENCE postrider.claim_token AS bigint;
COMMENT ON SEQUENCE postrider.claim_token IS 'Tokens of claims: never reused, so a late writer can never match a newer claim.';

CREATE TABLE postrider.claim (
  token bigint CONSTRAINT claim_pkey PRIMARY KEY,
  worker bigint,
  lane smallint NOT NULL,
  claimed_at timestamptz NOT NULL,
  lease_until timestamptz NOT NULL,
  ids uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE postrider.claim IS
  'One row a batch in the air: the lease belongs to the claim, not to its messages. Deleted with the last settle. No ids: a tombstone that keeps a lost claim from committing late.';

CREATE TABLE postrider.dedup (
  key text CONSTRAINT dedup_pkey PRIMARY KEY,
  message_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postrider.dedup IS 'Keys the application gave to send() and the message each belongs to.';

-- Counters --------------------------------------------------------------------------------------

CREATE TABLE postrider.counter (
  kind text NOT NULL,
  state postrider.state NOT NULL,
  n bigint NOT NULL,
  CONSTRAINT counter_pkey PRIMARY KEY (kind, state)
) WITH (fillfactor = 50);
COMMENT ON TABLE postrider.counter IS 'Messages per kind and state, without what counter_delta still holds.';

CREATE TABLE postrider.counter_delta (
  kind text NOT NULL,
  state postrider.state NOT NULL,
  n bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
COMMENT ON TABLE postrider.counter_delta IS
  'Changes since the last fold, appended by the transaction that made them: no row is ever contended for.';

-- The house -------------------------------------------------------------------------------------

CREATE TABLE postrider.installation (
  one boolean CONSTRAINT installation_pkey PRIMARY KEY DEFAULT true CONSTRAINT installation_one CHECK (one),
  identity text NOT NULL,
  adopted_at timestamptz NOT NULL DEFAULT now(),
  adopted_by text NOT NULL DEFAULT current_user
);
COMMENT ON TABLE postrider.installation IS
  'The database this data belongs to. A restored, cloned or promoted copy differs and is not sent from until adopted.';

CREATE TABLE postrider.operator_log (
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  who text NOT NULL DEFAULT session_user,
  action text NOT NULL,
  message_id uuid,
  reason text
);
COMMENT ON TABLE postrider.operator_log IS 'What people did by hand, and why.';

-- R12: what is compared with installation.identity before anything is sent.
CREATE FUNCTION postrider.identity() RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('system=%s timeline=%s database=%s', s.system_identifier,
                CASE WHEN pg_is_in_recovery() THEN 'standby'
                     ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END,
                d.oid)
    FROM pg_control_system() AS s, pg_database AS d
   WHERE d.datname = current_database()
$$;
COMMENT ON FUNCTION postrider.identity IS
  'Which database this is: changes when it is restored, cloned, copied or promoted.';

-- Partitions ------------------------------------------------------------------------------------

CREATE FUNCTION postrider.ensure_partitions(ahead integer DEFAULT 7) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_day date;
  v_table text;
  v_name text;
  v_made integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('postrider.ensure_partitions'));
  FOREACH v_table IN ARRAY ARRAY['message', 'attempt'] LOOP
    FOR i IN -1 .. least(greatest(ahead, 1), 60) LOOP
      v_day := (clock_timestamp() AT TIME ZONE 'UTC')::date + i;
      v_name := v_table || to_char(v_day, '_YYYYMMDD');
      CONTINUE WHEN to_regclass('postrider.' || v_name) IS NOT NULL;
      -- Made apart and attached: ATTACH lets reads and writes of the other partitions go on.
      EXECUTE format(
        'CREATE TABLE postrider.%I (LIKE postrider.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)'
        || ' WITH (%s autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,'
        || ' autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1)',
        v_name, v_table,
        -- Half-filled pages keep the settle's new version on the same page (HOT).
        CASE WHEN v_table = 'message' THEN 'fillfactor = 50,' ELSE '' END);
      EXECUTE format(
        'ALTER TABLE postrider.%I ATTACH PARTITION postrider.%I FOR VALUES FROM (%L) TO (%L)',
        v_table, v_name,
        postrider.uuid_floor(v_day::timestamp AT TIME ZONE 'UTC'),
        postrider.uuid_floor((v_day + 1)::timestamp AT TIME ZONE 'UTC'));
      v_made := v_made + 1;
    END LOOP;
  END LOOP;
  RETURN v_made;
END
$$;
COMMENT ON FUNCTION postrider.ensure_partitions IS
  'Makes the partitions of yesterday to `ahead` days from now that are missing; returns how many it made. Workers call it.';

SELECT postrider.ensure_partitions(7);
