-- The end of a call: what the vendor said becomes the message's state. Plans are pinned as
-- 004_claim.sql explains.

-- R3, here and in settle: id, token and `sending` must all match; ids come sorted.
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
    RETURNING i.n, m.kind
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, d.state, d.sign * v.n
      FROM (SELECT kind, count(*) AS n FROM moved GROUP BY kind) AS v,
           (VALUES ('sending'::postrider.state, -1), ('sent', 1)) AS d(state, sign)
  )
  SELECT (i.n - 1)::int FROM input AS i WHERE i.n NOT IN (SELECT v.n FROM moved AS v);
  IF cardinality(p_done) > 0 THEN
    PERFORM postrider.claims_done(p_done);
  END IF;
END
$$;
COMMENT ON FUNCTION postrider.settle_sent IS
  'The common end: first attempt, accepted, no doubt. Returns the positions (from 0) that no longer matched id, token and sending: late news. Ids come sorted.';

CREATE FUNCTION postrider.settled_state(state text, outcome text, doubts integer, taken boolean, over boolean)
RETURNS postrider.state LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN taken THEN 'sent'
              WHEN state <> 'unknown' OR doubts > 0 THEN state
              WHEN over THEN 'expired'
              WHEN outcome IS NULL THEN 'pending'
              ELSE 'failed' END::postrider.state
$$;
COMMENT ON FUNCTION postrider.settled_state IS
  'What decide said, in the light of late news it could not know: an earlier attempt was accepted (taken), or the last doubt was cleared, so that nothing is unknown any more.';

CREATE FUNCTION postrider.settle(
  p_ids uuid[], p_tokens bigint[], p_states text[], p_delays bigint[], p_dues text[], p_attempts integer[],
  p_calls integer[], p_doubts integer[], p_vendor_ids text[], p_reasons text[], p_outcomes text[],
  p_phases text[], p_codes text[], p_details text[], p_ages bigint[], p_done bigint[])
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
BEGIN
  RETURN QUERY
  WITH input AS MATERIALIZED (
    SELECT i.*, (i.outcome IS NOT DISTINCT FROM 'unknown')::int AS doubt
      FROM unnest(p_ids, p_tokens, p_states, p_delays, p_dues, p_attempts, p_calls, p_doubts, p_vendor_ids,
                  p_reasons, p_outcomes, p_phases, p_codes, p_details, p_ages) WITH ORDINALITY
        AS i(id, token, state, delay_ms, due, attempts, calls, doubts, vendor_id,
             reason, outcome, phase, code, detail, age_ms, n)
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
           taken = false, changed_at = v_now
      FROM input AS i
     WHERE m.id = i.id AND m.token = i.token AND m.state = 'sending' AND m.id BETWEEN v_low AND v_high
    RETURNING i.n, m.kind, m.state, m.provider
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
  IF cardinality(p_done) > 0 THEN
    PERFORM postrider.claims_done(p_done);
  END IF;
END
$$;
COMMENT ON FUNCTION postrider.settle IS
  'Every other end: what decide said, and the attempt''s record. A row without outcome was never sent: its attempt and its due time come back. Returns the positions that no longer matched.';
