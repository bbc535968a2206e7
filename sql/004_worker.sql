-- What a worker calls. Each function is one transaction of the way claim, dispatch, settle.
--
-- Plans must not depend on statistics: a table may be empty when a session first plans and hold
-- five million rows a minute later. So the functions that touch many messages pin the plan
-- (index only, nested loop); a test reads the plan back.

CREATE FUNCTION postrider.expired_reason(expires_at timestamptz, seen timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT format('expired at %s, seen at %s', to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                to_char(seen AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
$$;
COMMENT ON FUNCTION postrider.expired_reason IS 'Both times, so that nobody has to guess why a message was too late.';

CREATE FUNCTION postrider.roams(kind text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  RETURN coalesce((SELECT k.cross_vendor_resend AND k.on_unknown <> 'hold' FROM postrider.kind AS k WHERE k.name = kind), false);
END
$$;
COMMENT ON FUNCTION postrider.roams IS
  'May a message of this kind go to another vendor while an attempt is in doubt? Asked for doubted rows only.';

-- R1: rows leave `pending` here, in one commit, before any network use. R2: a doubted row waits for its
-- vendor. R9: this database's clock says what is due, over and leased.
CREATE FUNCTION postrider.claim(
  p_token bigint, p_worker bigint, p_lane integer, p_kinds text[], p_providers text[], p_open text[],
  p_limit integer, p_lease_ms bigint, p_after_due text, p_after_id text)
RETURNS TABLE (
  id uuid, kind text, recipient text, body text, sender text, key uuid, meta jsonb, provider text,
  attempts integer, calls integer, doubts integer, life_ms bigint, doubt_age_ms bigint,
  expires_ms bigint, due text)
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
             AND (m.doubts = 0 OR m.provider = ANY (p_open) OR postrider.roams(m.kind))
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
             due = NULL, token = p_token, changed_at = v_now
        FROM unnest(v_ids, v_dues) AS p(id, due)
       WHERE m.id = p.id AND m.id BETWEEN v_low AND v_high
      RETURNING m.id, m.kind, m.recipient, m.body, m.sender, m.key, m.meta, m.provider, m.attempts,
                m.calls, m.doubts, m.expires_at, m.doubt_since, m.state, p.due
    ), lease AS (
      INSERT INTO postrider.claim (token, worker, lane, claimed_at, lease_until, ids)
      SELECT p_token, p_worker, p_lane, v_now, v_now + p_lease_ms * interval '1 millisecond', array_agg(v.id ORDER BY v.id)
        FROM moved AS v WHERE v.state = 'sending' HAVING count(*) > 0
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
           v.due::text
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

CREATE FUNCTION postrider.expire(p_lane integer, p_look integer DEFAULT 5000) RETURNS integer
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
    RETURNING m.kind, m.state
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
COMMENT ON FUNCTION postrider.expire IS
  'Closes what outlived its usefulness among the oldest due messages of a lane, also while no provider is open. Looks at p_look rows only: the oldest are the first to expire.';

CREATE FUNCTION postrider.tokens(n integer) RETURNS SETOF bigint
LANGUAGE sql VOLATILE AS $$ SELECT nextval('postrider.claim_token') FROM generate_series(1, n) $$;
COMMENT ON FUNCTION postrider.tokens IS
  'Claim tokens ahead of need: a worker must know its token even when the claim''s answer is lost.';

CREATE FUNCTION postrider.claims_done(p_done bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_token bigint;
  v_ids uuid[];
  v_low uuid;
  v_high uuid;
BEGIN
  FOR v_token, v_ids IN SELECT c.token, c.ids FROM postrider.claim AS c WHERE c.token = ANY (p_done) ORDER BY c.token LOOP
    -- A claim is forgotten only when none of its messages is still sending under it.
    v_low := v_ids[1];
    v_high := v_ids[cardinality(v_ids)];
    IF v_low IS NULL OR NOT EXISTS (
      SELECT 1 FROM unnest(v_ids) AS u(id) JOIN postrider.message AS m ON m.id = u.id
       WHERE m.token = v_token AND m.state = 'sending' AND m.id BETWEEN v_low AND v_high) THEN
      DELETE FROM postrider.claim AS c WHERE c.token = v_token;
    END IF;
  END LOOP;
END
$$;
COMMENT ON FUNCTION postrider.claims_done IS 'Deletes the leases of claims whose messages are all settled.';

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

-- R11: a claim whose COMMIT answer was lost is not the worker's.
CREATE FUNCTION postrider.release(p_token bigint, p_lease_ms bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s' -- while the lost claim still hangs in the server: tried again, see hang_up
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_ids uuid[];
  v_now timestamptz := clock_timestamp();
  v_n integer;
BEGIN
  -- The claim's COMMIT may still be under way on a dead connection. Its lease row and this one meet
  -- on the primary key: either it is committed and we see its ids, or this tombstone makes it fail.
  INSERT INTO postrider.claim AS c (token, lane, claimed_at, lease_until, ids)
  VALUES (p_token, 0, v_now, v_now + p_lease_ms * interval '1 millisecond', '{}')
  ON CONFLICT (token) DO UPDATE SET lane = c.lane RETURNING c.ids INTO v_ids;
  WITH moved AS (
    UPDATE postrider.message AS m
       SET state = CASE WHEN m.taken THEN 'sent' ELSE 'pending' END::postrider.state,
           due = CASE WHEN m.taken THEN NULL ELSE m.changed_at END,
           reason = CASE WHEN m.taken THEN 'accepted late' ELSE m.reason END,
           attempts = m.attempts - 1, taken = false, changed_at = v_now
      FROM (SELECT u.id FROM unnest(v_ids) AS u(id) ORDER BY u.id) AS i
     WHERE m.id = i.id AND m.token = p_token AND m.state = 'sending'
    RETURNING m.kind, m.state
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT v.kind, v.state, count(*) FROM moved AS v GROUP BY v.kind, v.state
    UNION ALL
    SELECT v.kind, 'sending', -count(*) FROM moved AS v GROUP BY v.kind
  )
  SELECT count(*) INTO v_n FROM moved;
  IF v_ids <> '{}' THEN
    PERFORM postrider.claims_done(ARRAY[p_token]);
  END IF;
  RETURN v_n;
END
$$;
COMMENT ON FUNCTION postrider.release IS
  'Gives back a claim whose COMMIT answer was lost, unsent and with its attempt; if it never committed, leaves a tombstone so that it cannot commit later.';

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

-- House-keeping ----------------------------------------------------------------------------------

CREATE FUNCTION postrider.hang_up() RETURNS integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  -- A worker sends a statement and its Sync at once. A backend that has waited for the rest of it
  -- this long lost its client without being told (a dead host, a cut network) and would keep its
  -- rows locked until TCP gives up, by default after two hours.
  SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid))::int
    FROM pg_stat_activity AS a
   WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
     AND a.application_name LIKE 'postrider/%' AND a.state = 'active' AND a.wait_event = 'ClientRead'
     AND a.query LIKE '%postrider.%' AND a.state_change < clock_timestamp() - interval '5 seconds'
$$;
COMMENT ON FUNCTION postrider.hang_up IS
  'Ends sessions of workers that hang in the midst of a statement because their client is gone; what they began is rolled back.';

CREATE FUNCTION postrider.fold_counters() RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n integer;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('postrider.fold_counters')) THEN
    RETURN 0; -- another worker is at it
  END IF;
  WITH gone AS (
    DELETE FROM postrider.counter_delta RETURNING kind, state, n
  ), summed AS (
    SELECT kind, state, sum(n) AS n, count(*) AS rows FROM gone GROUP BY kind, state
  ), folded AS (
    INSERT INTO postrider.counter AS c (kind, state, n) SELECT kind, state, n FROM summed
    ON CONFLICT (kind, state) DO UPDATE SET n = c.n + excluded.n
  )
  SELECT coalesce(sum(rows), 0) INTO v_n FROM summed;
  RETURN v_n;
END
$$;
COMMENT ON FUNCTION postrider.fold_counters IS 'Adds the appended changes to the counters. Every worker calls it; one at a time does it.';

CREATE FUNCTION postrider.hello(p_host text, p_pid integer, p_version text, p_providers text[], p_plugins text[], p_caps text[])
RETURNS TABLE (worker bigint, identity text, adopted text, durable boolean, clock_ms bigint, schema_version integer)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_worker bigint;
BEGIN
  INSERT INTO postrider.provider AS p (name, plugin, caps)
  SELECT u.name, u.plugin, u.caps::jsonb FROM unnest(p_providers, p_plugins, p_caps) AS u(name, plugin, caps) ORDER BY u.name
  ON CONFLICT (name) DO UPDATE SET plugin = excluded.plugin, caps = excluded.caps, seen_at = clock_timestamp();
  INSERT INTO postrider.worker (host, pid, version) VALUES (p_host, p_pid, p_version) RETURNING id INTO v_worker;
  DELETE FROM postrider.worker AS w WHERE w.seen_at < clock_timestamp() - interval '7 days';
  RETURN QUERY
  SELECT v_worker, postrider.identity(), (SELECT i.identity FROM postrider.installation AS i),
         current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean
         AND current_setting('synchronous_commit') <> 'off',
         (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
         (SELECT max(v.version) FROM postrider.schema_version AS v);
END
$$;
COMMENT ON FUNCTION postrider.hello IS
  'A worker introduces itself and learns which database it is on, whether that is the adopted one and whether commits are durable.';

CREATE FUNCTION postrider.check_house() RETURNS TABLE (identity text, adopted text, durable boolean, schema_version integer)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT postrider.identity(), (SELECT i.identity FROM postrider.installation AS i),
         current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean
         AND current_setting('synchronous_commit') <> 'off',
         (SELECT max(v.version) FROM postrider.schema_version AS v)
$$;
COMMENT ON FUNCTION postrider.check_house IS 'After a reconnect: is this still the same, adopted, durable database?';

CREATE FUNCTION postrider.beat(p_worker bigint, p_stats text, p_stopped boolean) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  UPDATE postrider.worker AS w
     SET seen_at = clock_timestamp(), stats = p_stats::jsonb, stopped_at = CASE WHEN p_stopped THEN clock_timestamp() END
   WHERE w.id = p_worker
$$;
COMMENT ON FUNCTION postrider.beat IS 'A sign of life, with figures for the dashboard.';

CREATE FUNCTION postrider.adopt() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH logged AS (
    INSERT INTO postrider.operator_log (action, reason) VALUES ('adopt', postrider.identity())
  )
  INSERT INTO postrider.installation AS i (identity) VALUES (postrider.identity())
  ON CONFLICT (one) DO UPDATE SET identity = excluded.identity, adopted_at = clock_timestamp(), adopted_by = session_user
  RETURNING i.identity
$$;
COMMENT ON FUNCTION postrider.adopt IS
  'Declares this database the one to send from. Needed once after a restore, a copy or a promotion; migrate does it for a new one.';

SELECT postrider.adopt();
