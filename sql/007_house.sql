-- House-keeping: expiry, counters, who works here, and whether this is the database to send from.
-- Plans are pinned as 004_claim.sql explains.

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
