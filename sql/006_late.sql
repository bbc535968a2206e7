-- What comes after the end: leases that are over, late news, evidence taken back. Plans are pinned as
-- 004_claim.sql explains.

CREATE FUNCTION postrider.sweep_look() RETURNS TABLE (
  token bigint, worker bigint, over_ms bigint, age_ms bigint, n integer)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.token, coalesce(c.worker, 0), (extract(epoch FROM clock_timestamp() - c.lease_until) * 1000)::bigint,
         (extract(epoch FROM clock_timestamp() - c.claimed_at) * 1000)::bigint, cardinality(c.ids)
    FROM postrider.claim AS c
  UNION ALL
  SELECT NULL, NULL, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, NULL, NULL
$$;
COMMENT ON FUNCTION postrider.sweep_look IS
  'Every lease and how long it is over (negative: still running). The row without a token is the database''s clock in ms.';

CREATE FUNCTION postrider.sweep_rows(p_token bigint) RETURNS TABLE (
  id uuid, kind text, provider text, attempts integer, calls integer, doubts integer,
  life_ms bigint, doubt_age_ms bigint, age_ms bigint)
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
  WITH gone AS (DELETE FROM postrider.claim AS c WHERE c.token = p_token AND c.ids = '{}')
  SELECT m.id, m.kind, m.provider, m.attempts::int, m.calls, m.doubts::int,
         (extract(epoch FROM m.expires_at - clock_timestamp()) * 1000)::bigint,
         (extract(epoch FROM clock_timestamp() - m.doubt_since) * 1000)::bigint,
         (extract(epoch FROM clock_timestamp() - m.changed_at) * 1000)::bigint
    FROM postrider.claim AS c CROSS JOIN unnest(c.ids) AS u(id) JOIN postrider.message AS m ON m.id = u.id
   WHERE c.token = p_token AND m.token = p_token AND m.state = 'sending'
   ORDER BY m.id
$$;
COMMENT ON FUNCTION postrider.sweep_rows IS
  'What is still sending under a claim whose lease is over. The sweeper judges it unknown and settles it like any other outcome; a late settle of the old worker and this one cannot both match.';

CREATE FUNCTION postrider.late_read(p_ids uuid[], p_tokens bigint[]) RETURNS TABLE (
  n integer, state text, token bigint, kind text, provider text, attempts integer, calls integer, doubts integer,
  vendor_id text, taken boolean, life_ms bigint, doubt_age_ms bigint, recorded text, other_vendor_id text,
  rejected boolean)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
  SELECT (i.n - 1)::int, m.state::text, m.token, m.kind, m.provider, m.attempts::int, m.calls, m.doubts::int, m.vendor_id, m.taken,
         (extract(epoch FROM m.expires_at - clock_timestamp()) * 1000)::bigint,
         (extract(epoch FROM clock_timestamp() - m.doubt_since) * 1000)::bigint,
         a.outcome::text, a.vendor_id,
         EXISTS (SELECT 1 FROM postrider.attempt AS o
                  WHERE o.message_id = i.id AND o.token <> i.token AND o.outcome = 'rejected')
    FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS i(id, token, n)
    JOIN postrider.message AS m ON m.id = i.id
    LEFT JOIN postrider.attempt AS a ON a.message_id = i.id AND a.token = i.token
$$;
COMMENT ON FUNCTION postrider.late_read IS 'Where messages stand, and what is on record for one of their attempts, when late news of it comes.';

-- R7: late news converges whatever its order; R3: fenced by all that was read.
CREATE FUNCTION postrider.late_write(
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
  RETURN true;
END
$$;
COMMENT ON FUNCTION postrider.late_write IS
  'Stores what late news of an attempt changed, if the message is still as it was read. A recorded outcome other than unknown never changes.';

-- R5: one vendor id on two messages proves neither.
CREATE FUNCTION postrider.withdraw(p_ids uuid[], p_reason text) RETURNS integer
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
COMMENT ON FUNCTION postrider.withdraw IS
  'Takes back the evidence of an acceptance (one vendor id came for two messages): sent becomes unknown.';
