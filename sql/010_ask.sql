-- Asking a vendor what became of a message whose answer was lost (R7), and what that needs: when a
-- message was first claimed (its lifetime is passed on frozen, R2), and which vendor's id belongs
-- to which message. claim, settle_sent and settle are made anew with these; plans are pinned as
-- 004_claim.sql explains.

-- Never NULL: a row that grew at its claim would not stay on its page (HOT).
ALTER TABLE postrider.message ADD COLUMN first_at timestamptz NOT NULL DEFAULT 'infinity';
ALTER TABLE postrider.message ADD COLUMN asked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN postrider.message.first_at IS 'When it was first claimed (infinity: never): the lifetime that a vendor is told counts from here, the same in every attempt.';
COMMENT ON COLUMN postrider.message.asked IS 'The vendor was asked about every doubt there is and has not seen the message: another send is allowed.';

CREATE TABLE postrider.ask (
  message_id uuid CONSTRAINT ask_pkey PRIMARY KEY,
  provider text NOT NULL,
  ask_at timestamptz NOT NULL,
  tries smallint NOT NULL DEFAULT 0,
  misses smallint NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
COMMENT ON TABLE postrider.ask IS
  'Doubts to be asked about, one row a message in state unknown. Deleted when the doubt is settled, from wherever, or nothing more can be learnt.';
COMMENT ON COLUMN postrider.ask.tries IS 'Look-ups begun.';
COMMENT ON COLUMN postrider.ask.misses IS 'Look-ups that said: never seen.';
CREATE INDEX ask_due_idx ON postrider.ask (provider, ask_at);

CREATE TABLE postrider.ask_budget (
  provider text CONSTRAINT ask_budget_pkey PRIMARY KEY,
  minute timestamptz NOT NULL,
  used integer NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE postrider.ask_budget IS 'Look-ups of the running minute: one limit for all workers.';

CREATE TABLE postrider.vendor_ref (
  provider text NOT NULL,
  vendor_id text NOT NULL,
  message_id uuid NOT NULL,
  part smallint NOT NULL,
  parts smallint NOT NULL,
  receipt postrider.receipt NOT NULL DEFAULT 'none',
  CONSTRAINT vendor_ref_pkey PRIMARY KEY (message_id, part),
  CONSTRAINT vendor_ref_vendor_id UNIQUE (provider, vendor_id)
);
COMMENT ON TABLE postrider.vendor_ref IS
  'Vendors'' ids of messages, where an id has to be found: receipts that name nothing else, messages of several parts, look-ups that compare texts.';

CREATE VIEW postrider.askable AS
  SELECT p.name FROM postrider.provider AS p WHERE p.caps @> '{"askable": true}';
COMMENT ON VIEW postrider.askable IS 'Providers that can be asked about a message whose answer was lost.';

CREATE FUNCTION postrider.ids_kept() RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(array_agg(p.name), '{}') FROM postrider.provider AS p WHERE p.caps @> '{"keeps_ids": true}'
$$;
COMMENT ON FUNCTION postrider.ids_kept IS 'Providers whose message ids have to be found again (vendor_ref).';

DROP FUNCTION postrider.claim;
DROP FUNCTION postrider.settle_sent;
DROP FUNCTION postrider.settle;

-- R1, R2, R9 as in 004_claim.sql.
CREATE FUNCTION postrider.claim(
  p_token bigint, p_worker bigint, p_lane integer, p_kinds text[], p_providers text[], p_open text[],
  p_limit integer, p_lease_ms bigint, p_after_due text, p_after_id text)
RETURNS TABLE (
  id uuid, kind text, recipient text, body text, sender text, key uuid, meta jsonb, provider text,
  attempts integer, calls integer, doubts integer, life_ms bigint, doubt_age_ms bigint,
  expires_ms bigint, due text, asked boolean, validity_ms bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  -- The bound skips dead index entries at the head; it is a hint, dropped about once a second.
  v_after_due timestamptz := coalesce(p_after_due::timestamptz, '-infinity');
  v_after_id uuid := coalesce(p_after_id::uuid, '00000000-0000-0000-0000-000000000000');
  v_ids uuid[];
  v_dues timestamptz[];
  v_n integer;
  v_low uuid;
  v_high uuid;
BEGIN
  SELECT array_agg(p.id ORDER BY p.id), array_agg(p.due ORDER BY p.id)
    INTO v_ids, v_dues
    FROM (SELECT m.id, m.due
            FROM postrider.message AS m
           WHERE m.due IS NOT NULL AND m.lane = p_lane AND m.due <= v_now
             AND (m.due, m.id) > (v_after_due, v_after_id)
             AND m.kind = ANY (p_kinds)
             AND (m.doubts = 0 OR (m.provider = ANY (p_open) OR postrider.roams(m.kind)) AND NOT postrider.receipt_waits(m.id))
           ORDER BY m.due, m.id
           LIMIT p_limit
             FOR UPDATE OF m SKIP LOCKED) AS p;
  v_n := coalesce(cardinality(v_ids), 0);
  IF v_n > 0 THEN
    -- These name the partitions: the others are not even opened.
    v_low := v_ids[1];
    v_high := v_ids[v_n];
    RETURN QUERY
    WITH moved AS (
      UPDATE postrider.message AS m
         SET state = CASE WHEN m.expires_at > v_now THEN 'sending'
                          WHEN m.doubts > 0 THEN 'unknown' ELSE 'expired' END::postrider.state,
             reason = CASE WHEN m.expires_at > v_now THEN m.reason ELSE postrider.expired_reason(m.expires_at, v_now) END,
             attempts = m.attempts + (m.expires_at > v_now)::int,
             provider = CASE WHEN m.doubts > 0 AND NOT postrider.roams(m.kind) THEN m.provider
                             ELSE p_providers[array_position(p_kinds, m.kind)] END,
             due = NULL, token = p_token, changed_at = v_now,
             first_at = CASE WHEN m.expires_at > v_now THEN least(m.first_at, v_now) ELSE m.first_at END
        FROM unnest(v_ids, v_dues) AS p(id, due)
       WHERE m.id = p.id AND m.id BETWEEN v_low AND v_high
      RETURNING m.id, m.kind, m.recipient, m.body, m.sender, m.key, m.meta, m.provider, m.attempts,
                m.calls, m.doubts, m.expires_at, m.doubt_since, m.state, p.due, m.asked, m.first_at
    ), lease AS (
      INSERT INTO postrider.claim (token, worker, lane, claimed_at, lease_until, ids)
      SELECT p_token, p_worker, p_lane, v_now, v_now + p_lease_ms * interval '1 millisecond', array_agg(v.id ORDER BY v.id)
        FROM moved AS v WHERE v.state = 'sending' HAVING count(*) > 0
    ), doubted AS ( -- expired with a doubt: all that is left to do is to ask
      INSERT INTO postrider.ask (message_id, provider, ask_at)
      SELECT v.id, v.provider, v_now FROM moved AS v
       WHERE v.state = 'unknown' AND v.provider IN (SELECT p.name FROM postrider.askable AS p)
      ON CONFLICT DO NOTHING
    ), counted AS (
      INSERT INTO postrider.counter_delta (kind, state, n)
      SELECT v.kind, v.state, count(*) FROM moved AS v GROUP BY v.kind, v.state
      UNION ALL
      SELECT v.kind, 'pending', -count(*) FROM moved AS v GROUP BY v.kind
    )
    SELECT v.id, v.kind, v.recipient, v.body, v.sender, v.key, v.meta, v.provider,
           v.attempts::int, v.calls, v.doubts::int,
           (date_part('epoch', v.expires_at - v_now) * 1000)::bigint,
           (date_part('epoch', v_now - v.doubt_since) * 1000)::bigint,
           (date_part('epoch', v.expires_at) * 1000)::bigint,
           v.due::text, v.asked, (date_part('epoch', v.expires_at - v.first_at) * 1000)::bigint
      FROM moved AS v WHERE v.state = 'sending';
  END IF;
  -- The last row says how many were picked, expired ones included, and where to go on.
  SELECT p.due, p.id INTO v_after_due, v_after_id
    FROM unnest(v_ids, v_dues) AS p(id, due) ORDER BY p.due DESC, p.id DESC LIMIT 1;
  attempts := v_n;
  id := v_after_id;
  due := v_after_due::text;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION postrider.claim IS
  'Takes up to p_limit due messages of a lane for this token: state sending, attempt counted, provider named, lease written, all in one commit before any network use. The last row (kind NULL) carries the number picked and the new lower bound. p_providers[i] is the provider for p_kinds[i]; p_open are the providers pinned rows may go to.';

-- R3 as in 005_settle.sql.
CREATE FUNCTION postrider.settle_sent(
  p_ids uuid[], p_tokens bigint[], p_vendor_ids text[], p_done bigint[])
RETURNS TABLE (n integer)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  -- Ids come sorted, so these name the partitions: the others are not even opened.
  v_low uuid := p_ids[1];
  v_high uuid := p_ids[cardinality(p_ids)];
  v_keep text[] := postrider.ids_kept();
BEGIN
  RETURN QUERY
  WITH input AS MATERIALIZED (
    SELECT i.id, i.token, i.vendor_id, i.n
      FROM unnest(p_ids, p_tokens, p_vendor_ids) WITH ORDINALITY AS i(id, token, vendor_id, n)
  ), moved AS (
    UPDATE postrider.message AS m
       SET state = 'sent', vendor_id = i.vendor_id, calls = m.calls + 1, taken = false, reason = NULL,
           changed_at = clock_timestamp()
      FROM input AS i
     WHERE m.id = i.id AND m.token = i.token AND m.state = 'sending' AND m.id BETWEEN v_low AND v_high
    RETURNING i.n, m.kind, m.id, m.provider, m.vendor_id
  ), kept AS (
    INSERT INTO postrider.vendor_ref (provider, vendor_id, message_id, part, parts)
    SELECT v.provider, v.vendor_id, v.id, 1, 1 FROM moved AS v
     WHERE v.provider = ANY (v_keep) AND v.vendor_id IS NOT NULL
    ON CONFLICT DO NOTHING
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, d.state, d.sign * v.n
      FROM (SELECT kind, count(*) AS n FROM moved GROUP BY kind) AS v,
           (VALUES ('sending'::postrider.state, -1), ('sent', 1)) AS d(state, sign)
  )
  SELECT (i.n - 1)::int FROM input AS i WHERE i.n NOT IN (SELECT v.n FROM moved AS v);
  IF v_keep <> '{}' THEN
    PERFORM postrider.own_ids(p_ids);
  END IF;
  IF cardinality(p_done) > 0 THEN
    PERFORM postrider.claims_done(p_done);
  END IF;
END
$$;
COMMENT ON FUNCTION postrider.settle_sent IS
  'The common end: first attempt, accepted, no doubt. Returns the positions (from 0) that no longer matched id, token and sending: late news. Ids come sorted.';

CREATE FUNCTION postrider.settle(
  p_ids uuid[], p_tokens bigint[], p_states text[], p_delays bigint[], p_dues text[], p_attempts integer[],
  p_calls integer[], p_doubts integer[], p_vendor_ids text[], p_reasons text[], p_outcomes text[],
  p_phases text[], p_codes text[], p_details text[], p_ages bigint[], p_done bigint[],
  p_asks bigint[] DEFAULT NULL, p_parts text[] DEFAULT NULL)
RETURNS TABLE (n integer)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_low uuid := p_ids[1];
  v_high uuid := p_ids[cardinality(p_ids)];
  v_keep text[] := postrider.ids_kept();
BEGIN
  RETURN QUERY
  WITH input AS MATERIALIZED (
    SELECT i.*, (i.outcome IS NOT DISTINCT FROM 'unknown')::int AS doubt
      FROM unnest(p_ids, p_tokens, p_states, p_delays, p_dues, p_attempts, p_calls, p_doubts, p_vendor_ids,
                  p_reasons, p_outcomes, p_phases, p_codes, p_details, p_ages, p_asks, p_parts) WITH ORDINALITY
        AS i(id, token, state, delay_ms, due, attempts, calls, doubts, vendor_id,
             reason, outcome, phase, code, detail, age_ms, ask_ms, parts, n)
  ), moved AS (
    UPDATE postrider.message AS m
       SET state = postrider.settled_state(i.state, i.outcome, least(i.doubts, m.doubts + i.doubt), m.taken, m.expires_at <= v_now),
           due = CASE WHEN postrider.settled_state(i.state, i.outcome, least(i.doubts, m.doubts + i.doubt), m.taken, m.expires_at <= v_now) = 'pending'
                      THEN coalesce(i.due::timestamptz, v_now + coalesce(i.delay_ms, 0) * interval '1 millisecond') END,
           attempts = i.attempts, calls = m.calls + i.calls,
           -- The worker counts from what it claimed; late news may have cleared a doubt meanwhile.
           doubts = least(i.doubts, m.doubts + i.doubt),
           doubt_since = CASE WHEN least(i.doubts, m.doubts + i.doubt) = 0 THEN NULL
                              WHEN m.doubt_since IS NULL THEN v_now - i.age_ms * interval '1 millisecond'
                              ELSE m.doubt_since END,
           vendor_id = CASE WHEN m.taken THEN coalesce(m.vendor_id, i.vendor_id) ELSE coalesce(i.vendor_id, m.vendor_id) END,
           reason = CASE WHEN NOT m.taken THEN i.reason
                         WHEN i.outcome IS DISTINCT FROM 'accepted' THEN 'accepted late'
                         WHEN i.vendor_id IS DISTINCT FROM m.vendor_id THEN 'accepted twice' END,
           taken = false, changed_at = v_now,
           asked = m.asked AND i.outcome IS DISTINCT FROM 'unknown'
      FROM input AS i
     WHERE m.id = i.id AND m.token = i.token AND m.state = 'sending' AND m.id BETWEEN v_low AND v_high
    RETURNING i.n, i.ask_ms, i.parts, m.id, m.kind, m.state, m.provider, m.vendor_id
  ), asks AS (
    INSERT INTO postrider.ask AS a (message_id, provider, ask_at)
    SELECT v.id, v.provider, v_now + v.ask_ms * interval '1 millisecond'
      FROM moved AS v WHERE v.state = 'unknown' AND v.ask_ms >= 0 AND v.provider IS NOT NULL
    ON CONFLICT (message_id) DO UPDATE
       SET provider = excluded.provider, ask_at = excluded.ask_at, tries = 0, misses = 0
  ), refs AS (
    INSERT INTO postrider.vendor_ref (provider, vendor_id, message_id, part, parts)
    SELECT v.provider, p.vendor_id, v.id, p.part, count(*) OVER (PARTITION BY v.id)
      FROM moved AS v, string_to_table(coalesce(v.parts, v.vendor_id), E'\n') WITH ORDINALITY AS p(vendor_id, part)
     WHERE v.state = 'sent' AND (v.parts IS NOT NULL OR v.provider = ANY (v_keep) AND v.vendor_id IS NOT NULL)
    ON CONFLICT DO NOTHING
  ), kept AS (
    INSERT INTO postrider.attempt (message_id, token, outcome, provider, phase, code, detail, vendor_id, started_at, ended_at)
    SELECT i.id, i.token, i.outcome::postrider.outcome, v.provider, i.phase, i.code, i.detail, i.vendor_id,
           v_now - i.age_ms * interval '1 millisecond', v_now
      FROM input AS i JOIN moved AS v ON v.n = i.n
     WHERE i.outcome IS NOT NULL
    ON CONFLICT DO NOTHING
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, v.state, count(*) FROM moved AS v GROUP BY v.kind, v.state
    UNION ALL
    SELECT v.kind, 'sending', -count(*) FROM moved AS v GROUP BY v.kind
  )
  SELECT (i.n - 1)::int FROM input AS i WHERE i.n NOT IN (SELECT v.n FROM moved AS v);
  IF v_keep <> '{}' THEN
    PERFORM postrider.own_ids(p_ids);
  END IF;
  IF 'unknown' = ANY (p_outcomes) THEN
    PERFORM postrider.receipts_hurry(p_ids); -- one that came before the answer may settle the doubt
  END IF;
  IF cardinality(p_done) > 0 THEN
    PERFORM postrider.claims_done(p_done);
  END IF;
END
$$;
COMMENT ON FUNCTION postrider.settle IS
  'Every other end: what decide said, and the attempt''s record. A row without outcome was never sent: its attempt and its due time come back. Returns the positions that no longer matched.';

-- As in 007_house.sql; what expires in doubt is asked about.
CREATE OR REPLACE FUNCTION postrider.expire(p_lane integer, p_look integer DEFAULT 5000) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_n integer;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('postrider.expire'), p_lane) THEN
    RETURN 0; -- another worker is at it
  END IF;
  WITH oldest AS MATERIALIZED (
    SELECT m.id, m.expires_at FROM postrider.message AS m
     WHERE m.due IS NOT NULL AND m.lane = p_lane AND m.due <= v_now
     ORDER BY m.due, m.id LIMIT p_look
  ), picked AS MATERIALIZED (
    SELECT m.id FROM oldest AS o JOIN postrider.message AS m ON m.id = o.id
     WHERE o.expires_at <= v_now AND m.due IS NOT NULL
     ORDER BY m.id FOR UPDATE OF m SKIP LOCKED
  ), moved AS (
    UPDATE postrider.message AS m
       SET state = CASE WHEN m.doubts > 0 THEN 'unknown' ELSE 'expired' END::postrider.state, due = NULL,
           reason = postrider.expired_reason(m.expires_at, v_now), changed_at = v_now
      FROM picked AS p WHERE m.id = p.id AND m.due IS NOT NULL
    RETURNING m.id, m.kind, m.state, m.provider
  ), doubted AS (
    INSERT INTO postrider.ask (message_id, provider, ask_at)
    SELECT v.id, v.provider, v_now FROM moved AS v
     WHERE v.state = 'unknown' AND v.provider IN (SELECT p.name FROM postrider.askable AS p)
    ON CONFLICT DO NOTHING
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, v.state, count(*) FROM moved AS v GROUP BY v.kind, v.state
    UNION ALL
    SELECT v.kind, 'pending', -count(*) FROM moved AS v GROUP BY v.kind
  )
  SELECT count(*) INTO v_n FROM moved;
  RETURN v_n;
END
$$;

-- As in 003_producer.sql; also of a message that a look-up might send again.
CREATE OR REPLACE FUNCTION postrider.cancel(id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_row record;
  v_state postrider.state;
BEGIN
  SELECT m.kind, m.state, m.doubts, m.reason INTO v_row FROM postrider.message AS m WHERE m.id = id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = format('no message %s', id),
      HINT = 'It may have been removed by retention.';
  END IF;
  IF v_row.state = 'sending' THEN
    RETURN 'too late'; -- a request may be on its way; its outcome stands
  ELSIF v_row.state = 'unknown' AND v_row.reason IS DISTINCT FROM 'canceled' THEN
    -- A look-up that finds nothing could bring it back: not any more.
    UPDATE postrider.message AS m SET reason = 'canceled' WHERE m.id = id;
    INSERT INTO postrider.operator_log (action, message_id) VALUES ('cancel', id);
    RETURN 'unknown';
  ELSIF v_row.state <> 'pending' THEN
    RETURN CASE WHEN v_row.state IN ('canceled', 'unknown') THEN v_row.state::text ELSE 'too late' END;
  END IF;
  -- What may already have been taken is not called canceled: it stays in doubt, and stops.
  v_state := CASE WHEN v_row.doubts > 0 THEN 'unknown' ELSE 'canceled' END;
  UPDATE postrider.message AS m
     SET state = v_state, due = NULL, reason = 'canceled', changed_at = clock_timestamp()
   WHERE m.id = id;
  IF v_state = 'unknown' THEN
    INSERT INTO postrider.ask (message_id, provider, ask_at)
    SELECT m.id, m.provider, clock_timestamp() FROM postrider.message AS m JOIN postrider.askable AS p ON p.name = m.provider
     WHERE m.id = id ON CONFLICT DO NOTHING;
  END IF;
  INSERT INTO postrider.counter_delta (kind, state, n) VALUES (v_row.kind, 'pending', -1), (v_row.kind, v_state, 1);
  INSERT INTO postrider.operator_log (action, message_id) VALUES ('cancel', id);
  RETURN v_state::text;
END
$$;

-- As in 006_late.sql; the vendor is asked whose id it is.
CREATE OR REPLACE FUNCTION postrider.withdraw(p_ids uuid[], p_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n integer;
BEGIN
  WITH moved AS (
    UPDATE postrider.message AS m
       SET state = 'unknown', doubts = m.doubts + 1, doubt_since = coalesce(m.doubt_since, m.changed_at),
           reason = p_reason, changed_at = clock_timestamp()
     WHERE m.id = ANY (p_ids) AND m.state = 'sent'
    RETURNING m.id, m.token, m.kind, m.provider, m.vendor_id
  ), kept AS (
    INSERT INTO postrider.attempt AS a (message_id, token, outcome, provider, phase, code, vendor_id, started_at, ended_at)
    SELECT v.id, v.token, 'unknown', v.provider, 'complete', p_reason, v.vendor_id, clock_timestamp(), clock_timestamp() FROM moved AS v
    ON CONFLICT (message_id, token) DO UPDATE SET outcome = 'unknown', code = excluded.code
  ), asks AS (
    INSERT INTO postrider.ask (message_id, provider, ask_at)
    SELECT v.id, v.provider, clock_timestamp() FROM moved AS v JOIN postrider.provider AS p ON p.name = v.provider
     WHERE p.caps @> '{"askable": true}' OR p.caps @> '{"askable_by_id": true}'
    ON CONFLICT DO NOTHING
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, d.state, d.sign * v.n
      FROM (SELECT kind, count(*) AS n FROM moved GROUP BY kind) AS v,
           (VALUES ('sent'::postrider.state, -1), ('unknown', 1)) AS d(state, sign)
  )
  SELECT count(*) INTO v_n FROM moved;
  RETURN v_n;
END
$$;

-- As in 006_late.sql; a doubt that is settled is not asked about, one that is left is, and ids find their message.
CREATE OR REPLACE FUNCTION postrider.late_write(
  p_id uuid, p_seen_token bigint, p_seen_state text, p_seen_doubts integer,
  p_state text, p_delay_ms bigint, p_doubts integer, p_taken boolean, p_vendor_id text, p_reason text,
  p_token bigint, p_outcome text, p_phase text, p_code text, p_detail text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_kind text;
  v_provider text;
  v_state postrider.state;
  v_now timestamptz := clock_timestamp();
BEGIN
  UPDATE postrider.message AS m
     -- Canceled while in doubt: once nothing was taken after all, it is canceled and not tried again.
     SET state = CASE WHEN p_seen_state = 'unknown' AND m.reason = 'canceled' AND p_state IN ('pending', 'failed', 'expired')
                      THEN 'canceled' ELSE p_state END::postrider.state,
         due = CASE WHEN p_state = 'pending' AND NOT (p_seen_state = 'unknown' AND m.reason IS NOT DISTINCT FROM 'canceled')
                    THEN coalesce(m.due, v_now + coalesce(p_delay_ms, 0) * interval '1 millisecond') END,
         doubts = p_doubts, doubt_since = CASE WHEN p_doubts > 0 THEN coalesce(m.doubt_since, v_now) END,
         taken = p_taken, vendor_id = coalesce(p_vendor_id, m.vendor_id),
         -- What is still so keeps its reason and its time (of a claim, while sending).
         reason = CASE WHEN p_state = p_seen_state AND p_reason = 'doubt cleared' THEN m.reason
                       WHEN p_seen_state = 'unknown' AND m.reason = 'canceled' AND p_state <> 'sent' THEN m.reason
                       ELSE p_reason END,
         changed_at = CASE WHEN p_state = p_seen_state THEN m.changed_at ELSE v_now END
   WHERE m.id = p_id AND m.token = p_seen_token AND m.state = p_seen_state::postrider.state AND m.doubts = p_seen_doubts
  RETURNING m.kind, m.provider, m.state INTO v_kind, v_provider, v_state;
  IF NOT FOUND THEN
    RETURN false; -- it moved meanwhile: read again, decide again
  END IF;
  IF v_state <> p_seen_state::postrider.state THEN
    INSERT INTO postrider.counter_delta (kind, state, n)
    VALUES (v_kind, p_seen_state::postrider.state, -1), (v_kind, v_state, 1);
  END IF;
  INSERT INTO postrider.attempt AS a (message_id, token, outcome, provider, phase, code, detail, vendor_id, started_at, ended_at)
  VALUES (p_id, p_token, p_outcome::postrider.outcome, v_provider, p_phase, p_code, p_detail, p_vendor_id, v_now, v_now)
  ON CONFLICT (message_id, token) DO UPDATE
     SET outcome = excluded.outcome, phase = excluded.phase, code = excluded.code, detail = excluded.detail,
         vendor_id = coalesce(excluded.vendor_id, a.vendor_id), ended_at = excluded.ended_at
   WHERE a.outcome = 'unknown';
  IF v_state <> 'unknown' THEN
    DELETE FROM postrider.ask AS a WHERE a.message_id = p_id;
    PERFORM postrider.receipts_hurry(ARRAY[p_id]); -- what it waited for is here
  ELSIF p_seen_state <> 'unknown' AND p_doubts > 0 AND v_provider IN (SELECT p.name FROM postrider.askable AS p) THEN
    INSERT INTO postrider.ask (message_id, provider, ask_at) VALUES (p_id, v_provider, v_now) ON CONFLICT DO NOTHING;
  END IF;
  IF p_vendor_id IS NOT NULL AND v_provider = ANY (postrider.ids_kept()) THEN
    INSERT INTO postrider.vendor_ref (provider, vendor_id, message_id, part, parts)
    VALUES (v_provider, p_vendor_id, p_id, 1, 1) ON CONFLICT DO NOTHING;
    PERFORM postrider.own_ids(ARRAY[p_id]);
  END IF;
  RETURN true;
END
$$;

-- R5: a vendor's id that came with the vendor's own answer is stronger than one a look-up chose among equal
-- texts: whoever took it that way is in doubt again.
CREATE FUNCTION postrider.own_ids(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id uuid;
  v_owner uuid;
  v_provider text;
  v_vendor_id text;
BEGIN
  FOR v_id, v_owner, v_provider, v_vendor_id IN
    SELECT m.id, r.message_id, m.provider, m.vendor_id
      FROM postrider.message AS m JOIN postrider.vendor_ref AS r ON r.provider = m.provider AND r.vendor_id = m.vendor_id
     WHERE m.id = ANY (p_ids) AND r.message_id <> m.id ORDER BY m.id
  LOOP
    UPDATE postrider.vendor_ref AS r SET message_id = v_id
     WHERE r.provider = v_provider AND r.vendor_id = v_vendor_id
       AND NOT EXISTS (SELECT 1 FROM postrider.vendor_ref AS o WHERE o.message_id = v_id AND o.part = r.part);
    PERFORM postrider.withdraw(ARRAY[v_owner], 'vendor id given twice');
  END LOOP;
END
$$;
COMMENT ON FUNCTION postrider.own_ids IS
  'The ids these messages were accepted under are theirs; another message that had one of them is in doubt, and asked about again.';

-- Asking ------------------------------------------------------------------------------------------

CREATE FUNCTION postrider.ask_take(p_providers text[], p_per_minute integer[], p_rooms integer[], p_hidden_ms bigint)
RETURNS TABLE (
  id uuid, token bigint, doubts integer, kind text, recipient text, body text, sender text, key uuid, meta jsonb,
  provider text, attempts integer, calls integer, vendor_id text, canceled boolean, tries integer, misses integer,
  expires_ms bigint, life_ms bigint, validity_ms bigint, doubt_age_ms bigint, now_ms bigint, attempt bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_room integer;
  v_ids uuid[] := '{}';
  v_some uuid[];
BEGIN
  FOR i IN 1 .. cardinality(p_providers) LOOP
    CONTINUE WHEN NOT EXISTS (SELECT 1 FROM postrider.ask AS a WHERE a.provider = p_providers[i] AND a.ask_at <= v_now);
    v_room := p_rooms[i];
    IF p_per_minute[i] > 0 THEN
      INSERT INTO postrider.ask_budget AS b (provider, minute, used)
      VALUES (p_providers[i], date_trunc('minute', v_now), 0)
      ON CONFLICT (provider) DO UPDATE
         SET used = CASE WHEN b.minute = excluded.minute THEN b.used ELSE 0 END, minute = excluded.minute
      RETURNING least(p_rooms[i], p_per_minute[i] - b.used) INTO v_room;
    END IF;
    CONTINUE WHEN v_room <= 0;
    WITH due AS (
      SELECT a.message_id FROM postrider.ask AS a
       WHERE a.provider = p_providers[i] AND a.ask_at <= v_now
       ORDER BY a.ask_at LIMIT v_room FOR UPDATE SKIP LOCKED
    ), taken AS (
      UPDATE postrider.ask AS a
         SET ask_at = v_now + p_hidden_ms * interval '1 millisecond', tries = least(a.tries + 1, 1000)
        FROM due WHERE a.message_id = due.message_id
      RETURNING a.message_id
    )
    SELECT array_agg(t.message_id) INTO v_some FROM taken AS t;
    v_ids := v_ids || coalesce(v_some, '{}');
    IF p_per_minute[i] > 0 THEN
      UPDATE postrider.ask_budget AS b SET used = b.used + coalesce(cardinality(v_some), 0) WHERE b.provider = p_providers[i];
    END IF;
  END LOOP;
  -- A receipt, a person or a late answer may have settled it since.
  DELETE FROM postrider.ask AS a
   USING unnest(v_ids) AS u(id)
   WHERE a.message_id = u.id
     AND NOT EXISTS (SELECT 1 FROM postrider.message AS m WHERE m.id = u.id AND m.state = 'unknown' AND m.doubts > 0);
  RETURN QUERY
  SELECT m.id, m.token, m.doubts::int, m.kind, m.recipient, m.body, m.sender, m.key, m.meta, a.provider, m.attempts::int,
         m.calls, m.vendor_id, m.reason IS NOT DISTINCT FROM 'canceled', a.tries::int, a.misses::int,
         (extract(epoch FROM m.expires_at) * 1000)::bigint,
         (extract(epoch FROM m.expires_at - v_now) * 1000)::bigint,
         (extract(epoch FROM m.expires_at - least(m.first_at, v_now)) * 1000)::bigint,
         (extract(epoch FROM v_now - coalesce(m.doubt_since, m.changed_at)) * 1000)::bigint,
         (extract(epoch FROM v_now) * 1000)::bigint,
         coalesce((SELECT max(t.token) FROM postrider.attempt AS t WHERE t.message_id = m.id AND t.outcome = 'unknown'), m.token)
    FROM unnest(v_ids) AS u(id)
    JOIN postrider.ask AS a ON a.message_id = u.id
    JOIN postrider.message AS m ON m.id = u.id;
END
$$;
COMMENT ON FUNCTION postrider.ask_take IS
  'Doubts of these providers that are due to be asked about, hidden from others for p_hidden_ms; at most p_rooms[i] now and p_per_minute[i] (0: no limit) a minute over all workers. Asking twice harms nothing: what follows is fenced.';

CREATE FUNCTION postrider.ask_store(
  p_ids uuid[], p_tokens bigint[], p_doubts integer[], p_nexts text[], p_delays bigint[], p_misses integer[], p_reasons text[], p_tries integer[])
RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_n integer;
BEGIN
  WITH input AS MATERIALIZED (
    -- R3: only while the question is the one that was taken: not asked again, and of no newer doubt.
    SELECT i.* FROM unnest(p_ids, p_tokens, p_doubts, p_nexts, p_delays, p_misses, p_reasons, p_tries)
                    AS i(id, token, doubts, next, delay_ms, misses, reason, tries)
      JOIN postrider.ask AS a ON a.message_id = i.id AND a.tries = i.tries
     ORDER BY i.id FOR UPDATE OF a
  ), later AS (
    UPDATE postrider.ask AS a
       SET ask_at = v_now + i.delay_ms * interval '1 millisecond', misses = i.misses
      FROM input AS i WHERE a.message_id = i.id AND i.next = 'again'
  ), gone AS (
    DELETE FROM postrider.ask AS a USING input AS i WHERE a.message_id = i.id AND i.next IN ('stop', 'resend')
  ), moved AS (
    -- R3: only while it is as it was read. Canceled while in doubt: never sent again.
    UPDATE postrider.message AS m
       SET state = CASE WHEN i.next = 'resend' AND m.reason IS DISTINCT FROM 'canceled' THEN 'pending' ELSE m.state END,
           due = CASE WHEN i.next = 'resend' AND m.reason IS DISTINCT FROM 'canceled' THEN v_now END,
           asked = m.asked OR i.next = 'resend' AND m.reason IS DISTINCT FROM 'canceled',
           reason = CASE WHEN m.reason = 'canceled' THEN m.reason ELSE coalesce(i.reason, m.reason) END,
           changed_at = CASE WHEN i.next = 'resend' AND m.reason IS DISTINCT FROM 'canceled' THEN v_now ELSE m.changed_at END
      FROM input AS i
     WHERE m.id = i.id AND m.token = i.token AND m.doubts = i.doubts AND m.state = 'unknown'
       AND (i.next = 'resend' OR i.reason IS NOT NULL)
    RETURNING m.kind, m.state
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, d.state, d.sign * v.n
      FROM (SELECT kind, count(*) AS n FROM moved WHERE state = 'pending' GROUP BY kind) AS v,
           (VALUES ('unknown'::postrider.state, -1), ('pending', 1)) AS d(state, sign)
  )
  SELECT count(*) INTO v_n FROM moved;
  RETURN v_n;
END
$$;
COMMENT ON FUNCTION postrider.ask_store IS
  'What follows a look-up that settled nothing: ask again after a delay, stop asking, or send again (pending, same vendor). Returns how many messages changed. A look-up that found the message is late news (late_write).';

CREATE FUNCTION postrider.own_id(p_message uuid, p_provider text, p_candidates text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_candidate text;
  v_owner uuid;
BEGIN
  FOREACH v_candidate IN ARRAY p_candidates LOOP
    INSERT INTO postrider.vendor_ref (provider, vendor_id, message_id, part, parts)
    VALUES (p_provider, v_candidate, p_message, 1, 1) ON CONFLICT DO NOTHING;
    SELECT r.message_id INTO v_owner FROM postrider.vendor_ref AS r WHERE r.provider = p_provider AND r.vendor_id = v_candidate;
    IF v_owner = p_message THEN
      RETURN v_candidate;
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION postrider.own_id IS
  'Of the vendor''s messages that look like this one, the first that is not another message of ours; it is its from now on. NULL: none is.';

REVOKE ALL ON FUNCTION postrider.ids_kept, postrider.claim, postrider.settle_sent, postrider.settle, postrider.ask_take,
  postrider.ask_store, postrider.own_id, postrider.own_ids FROM PUBLIC;

-- What each role may do is a table now: a migration that makes something new adds its rows.
CREATE TABLE postrider.role_grant (
  role text NOT NULL,
  privilege text NOT NULL,
  CONSTRAINT role_grant_pkey PRIMARY KEY (role, privilege)
);
COMMENT ON TABLE postrider.role_grant IS 'What grant_roles() gives: GRANT privilege TO role.';
REVOKE ALL ON postrider.role_grant FROM PUBLIC;
INSERT INTO postrider.role_grant (role, privilege) VALUES
  ('postrider_producer', 'USAGE ON SCHEMA postrider'),
  ('postrider_producer', 'EXECUTE ON FUNCTION postrider.send, postrider.send_many, postrider.cancel, postrider.inbox_accept, postrider.normalize_phone, postrider.segments'),
  -- The two above run as their caller, and so do their parts.
  ('postrider_producer', 'EXECUTE ON FUNCTION postrider.is_gsm7, postrider.mixed_parts, postrider.body_too_long, postrider.normalize_spelled_phone'),
  ('postrider_worker', 'USAGE ON SCHEMA postrider'),
  ('postrider_worker', 'EXECUTE ON ALL FUNCTIONS IN SCHEMA postrider'),
  ('postrider_worker', 'USAGE ON SEQUENCE postrider.claim_token'),
  ('postrider_worker', 'SELECT ON ALL TABLES IN SCHEMA postrider'),
  ('postrider_worker', 'INSERT, UPDATE ON postrider.attempt, postrider.counter, postrider.provider, postrider.worker, postrider.claim'),
  ('postrider_worker', 'UPDATE ON postrider.message'),
  ('postrider_worker', 'INSERT ON postrider.counter_delta'),
  ('postrider_worker', 'DELETE ON postrider.counter_delta, postrider.claim, postrider.worker'),
  ('postrider_ops', 'USAGE ON SCHEMA postrider'),
  ('postrider_ops', 'EXECUTE ON ALL FUNCTIONS IN SCHEMA postrider'),
  ('postrider_ops', 'SELECT ON ALL TABLES IN SCHEMA postrider'),
  ('postrider_ops', 'INSERT (id, due, expires_at, kind, recipient, body, sender, key, meta) ON postrider.message'),
  ('postrider_ops', 'INSERT, UPDATE, DELETE ON postrider.kind'),
  ('postrider_viewer', 'USAGE ON SCHEMA postrider'),
  ('postrider_viewer', 'EXECUTE ON FUNCTION postrider.uuid_time'), -- the view messages calls it as its reader
  ('postrider_viewer', 'SELECT ON postrider.attempts, postrider.counts, postrider.providers, postrider.workers, postrider.lanes, postrider.kind'),
  ('postrider_viewer', 'SELECT (id, created_at, kind, state, receipt, recipient, sender, attempts, calls, doubts, provider, vendor_id, reason, run_at, expires_at, changed_at, key) ON postrider.messages'),
  ('postrider_worker', 'INSERT, UPDATE, DELETE ON postrider.ask, postrider.ask_budget, postrider.vendor_ref');

CREATE OR REPLACE FUNCTION postrider.grant_roles() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role text;
  v_privilege text;
BEGIN
  FOR v_role, v_privilege IN SELECT g.role, g.privilege FROM postrider.role_grant AS g ORDER BY g.role, g.privilege LOOP
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
      EXECUTE format('GRANT %s TO %I', v_privilege, v_role);
    END IF;
  END LOOP;
END
$$;
SELECT postrider.grant_roles();
