-- What people and dashboards read, and who may do what.

CREATE VIEW postrider.messages AS
  SELECT m.id, postrider.uuid_time(m.id) AS created_at, m.kind, m.state, m.receipt, m.recipient, m.sender,
         m.attempts, m.calls, m.doubts, m.provider, m.vendor_id, m.reason, m.due AS run_at, m.expires_at,
         m.changed_at, coalesce(m.key, m.id) AS key, m.meta, m.body
    FROM postrider.message AS m;
COMMENT ON VIEW postrider.messages IS 'Every message. State sent reads: handed to vendor.';

CREATE VIEW postrider.attempts AS
  SELECT a.message_id, a.token, a.outcome, a.provider, a.phase, a.code, a.detail, a.vendor_id, a.started_at, a.ended_at
    FROM postrider.attempt AS a;
COMMENT ON VIEW postrider.attempts IS 'Attempts of messages whose first attempt did not end cleanly.';

CREATE VIEW postrider.counts AS
  SELECT kind, state, sum(n)::bigint AS count
    FROM (SELECT kind, state, n FROM postrider.counter UNION ALL SELECT kind, state, n FROM postrider.counter_delta) AS c
   GROUP BY kind, state HAVING sum(n) <> 0;
COMMENT ON VIEW postrider.counts IS 'Messages per kind and state, exact in every transaction, from maintained counters.';

CREATE VIEW postrider.providers AS
  SELECT p.name, p.plugin, p.caps, p.seen_at FROM postrider.provider AS p;
COMMENT ON VIEW postrider.providers IS 'Providers as the workers declared them.';

CREATE VIEW postrider.workers AS
  SELECT w.id, w.host, w.pid, w.version, w.started_at, w.seen_at, w.stopped_at, w.stats,
         w.stopped_at IS NULL AND w.seen_at > clock_timestamp() - interval '15 seconds' AS alive
    FROM postrider.worker AS w;
COMMENT ON VIEW postrider.workers IS 'Worker processes of the last week.';

CREATE VIEW postrider.lanes AS
  SELECT l.lane, l.kinds, (extract(epoch FROM clock_timestamp() - d.due) * 1000)::bigint AS oldest_due_ms
    FROM (SELECT k.lane, array_agg(k.name ORDER BY k.name) AS kinds FROM postrider.kind AS k GROUP BY k.lane) AS l
    LEFT JOIN LATERAL (
      SELECT m.due FROM postrider.message AS m
       WHERE m.due IS NOT NULL AND m.lane = l.lane AND m.due <= clock_timestamp()
       ORDER BY m.due, m.id LIMIT 1) AS d ON true;
COMMENT ON VIEW postrider.lanes IS 'How long the oldest due message of each lane has waited.';

CREATE FUNCTION postrider.inbox_accept(key text, source text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  INSERT INTO postrider.inbox AS i (source, key) VALUES (source, key) ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
CREATE TABLE postrider.inbox (
  source text NOT NULL,
  key text NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT inbox_pkey PRIMARY KEY (source, key)
);
COMMENT ON TABLE postrider.inbox IS 'Keys a receiver has already handled.';
COMMENT ON FUNCTION postrider.inbox_accept IS
  'For receivers of at-least-once messages: true the first time a key comes from a source, false ever after. Call it in the transaction of the effect.';

-- Roles belong to the whole cluster: make them if we may, use them if they are there.
DO $$
DECLARE
  v_role text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY['postrider_producer', 'postrider_worker', 'postrider_ops', 'postrider_viewer'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
      EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migrate was faster
        WHEN insufficient_privilege THEN
          RAISE WARNING 'role % is missing and may not be created here', v_role
            USING HINT = 'Create the postrider roles as a superuser, then run postrider migrate with --grants.';
      END;
    END IF;
  END LOOP;
END
$$;

CREATE FUNCTION postrider.grant_roles() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role text;
  v_grant text;
BEGIN
  FOR v_role, v_grant IN
    VALUES
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
      ('postrider_viewer', 'SELECT (id, created_at, kind, state, receipt, recipient, sender, attempts, calls, doubts, provider, vendor_id, reason, run_at, expires_at, changed_at, key) ON postrider.messages')
  LOOP
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
      EXECUTE format('GRANT %s TO %I', v_grant, v_role);
    END IF;
  END LOOP;
END
$$;
COMMENT ON FUNCTION postrider.grant_roles IS 'Gives the postrider roles what each needs and no more; safe to repeat.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA postrider FROM PUBLIC;
SELECT postrider.grant_roles();
