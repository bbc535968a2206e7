-- How a worker takes messages and gives them back. What a worker calls stands in this file and
-- the next three; each function is one transaction of the way claim, dispatch, settle.
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
