-- Who may do what. Producers send, viewers see no text, workers work with their role alone, PUBLIC
-- gets nothing. Cases D13, Q-group (secrets).
SET client_min_messages = warning;
BEGIN;
SELECT set_config('search_path', 'public, pg_catalog', true);
SELECT plan(59);
GRANT ALL ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC; -- pgTAP itself; rolled back

SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
   WHERE p.pronamespace = 'postrider'::regnamespace AND a.grantee = 0$$, 'PUBLIC may call nothing');
SELECT is_empty($$
  SELECT c.oid::regclass FROM pg_class AS c, aclexplode(c.relacl) AS a
   WHERE c.relnamespace = 'postrider'::regnamespace AND a.grantee = 0$$, 'PUBLIC may read nothing');
SELECT is_empty($$SELECT 1 FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.nspname = 'postrider' AND a.grantee = 0$$,
  'PUBLIC may not look into the schema');
SELECT is_empty($$
  SELECT r.rolname FROM pg_roles AS r WHERE r.rolname LIKE 'postrider\_%' AND (r.rolsuper OR r.rolcanlogin OR r.rolcreaterole)$$,
  'the roles are bare');

-- Producer: these and no others.
SELECT bag_eq($$
  SELECT p.proname::text FROM pg_proc AS p
   WHERE p.pronamespace = 'postrider'::regnamespace AND has_function_privilege('postrider_producer', p.oid, 'EXECUTE')$$,
  ARRAY['send', 'send_many', 'cancel', 'inbox_accept', 'normalize_phone', 'segments', 'is_gsm7', 'mixed_parts', 'body_too_long', 'normalize_spelled_phone'],
  'a producer''s functions');
SELECT is_empty($$
  SELECT c.relname, p.privilege FROM pg_class AS c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS p(privilege)
   WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind IN ('r', 'p', 'v')
     AND has_table_privilege('postrider_producer', c.oid, p.privilege)$$, 'a producer''s tables: none');

CREATE FUNCTION pg_temp.as_role(role text, sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE sql;
  RESET ROLE;
  RETURN 'done';
EXCEPTION WHEN OTHERS THEN
  RESET ROLE;
  RETURN SQLSTATE;
END
$$;

SELECT is(pg_temp.as_role(role, sql), want, role || ': ' || sql) FROM (VALUES
  ('postrider_producer', 'SELECT postrider.send(''00998 (90) 123-45-67'', repeat(''[x'', 200))', 'done'),
  ('postrider_producer', 'SELECT postrider.send(''+998901234567'', ''x'', dedup_key => ''k'')', 'done'),
  ('postrider_producer', 'SELECT postrider.send_many(''{+998901234567}'', ''{x}'')', 'done'),
  ('postrider_producer', 'SELECT postrider.normalize_phone(''00 998 (90) 123-45-67'')', 'done'),
  ('postrider_producer', 'SELECT postrider.segments(repeat(''[x'', 200))', 'done'),
  ('postrider_producer', 'SELECT postrider.segments(repeat(U&''\+01F600'', 200))', 'done'),
  ('postrider_producer', 'SELECT postrider.inbox_accept(''k'')', 'done'),
  ('postrider_producer', 'SELECT postrider.cancel(''00000000-0000-7000-8000-000000000000'')', 'PR007'),
  ('postrider_producer', 'SELECT postrider.retry(''00000000-0000-7000-8000-000000000000'')', '42501'),
  ('postrider_producer', 'SELECT body FROM postrider.message', '42501'),
  ('postrider_producer', 'SELECT body FROM postrider.messages', '42501'),
  ('postrider_producer', 'SELECT * FROM postrider.dedup', '42501'),
  ('postrider_producer', 'SELECT postrider.adopt()', '42501'),
  ('postrider_producer', 'SELECT postrider.fold_counters()', '42501'),
  ('postrider_viewer', 'SELECT id, state, recipient, reason FROM postrider.messages', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.counts', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.attempts', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.lanes', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.workers', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.providers', 'done'),
  ('postrider_viewer', 'SELECT body FROM postrider.messages', '42501'),
  ('postrider_viewer', 'SELECT meta FROM postrider.messages', '42501'),
  ('postrider_viewer', 'SELECT * FROM postrider.messages', '42501'),
  ('postrider_viewer', 'SELECT body FROM postrider.message', '42501'),
  ('postrider_viewer', 'SELECT postrider.send(''+998901234567'', ''x'')', '42501'),
  ('postrider_worker', 'SELECT * FROM postrider.hello(''h'', 1, ''v'', ''{main}'', ''{http}'', ''{"{}"}'')', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.hello(''h'', 1, ''v'', ''{main}'', ''{http}'', ''{"{}"}'')', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.check_house()', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.tokens(100)', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.claim(1, 1, 1, ''{transactional}'', ''{main}'', ''{main}'', 1, 60000, NULL, NULL)', 'done'),
  ('postrider_worker', 'SELECT r.* FROM postrider.claim AS c, LATERAL postrider.settle(c.ids, ''{1}'', ''{pending}'', ''{0}'', ''{NULL}'', ''{1}'', ''{1}'', ''{1}'', ''{NULL}'', ''{r}'', ''{unknown}'', ''{lost}'', ''{NULL}'', ''{NULL}'', ''{1}'', ''{1}'') AS r', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.claim(2, 1, 2, ''{campaign}'', ''{main}'', ''{main}'', 9, 60000, NULL, NULL)', 'done'),
  ('postrider_worker', 'SELECT r.* FROM postrider.claim AS c, LATERAL postrider.settle_sent(c.ids, ''{2}'', ''{v}'', ''{2}'') AS r', 'done'),
  ('postrider_worker', 'SELECT postrider.claims_done(''{1}'')', 'done'),
  ('postrider_worker', 'SELECT postrider.release(3, 60000)', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.sweep_look()', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.sweep_rows(3)', 'done'),
  ('postrider_worker', 'SELECT r.* FROM (SELECT array_agg(id) AS i, array_agg(token) AS t FROM postrider.message) AS m, LATERAL postrider.late_read(m.i, m.t) AS r', 'done'),
  ('postrider_worker', 'SELECT postrider.late_write(message_id, token, ''pending'', 1, ''sent'', 0, 0, false, ''v'', NULL, token, ''accepted'', ''complete'', NULL, NULL) FROM postrider.attempt', 'done'),
  ('postrider_worker', 'SELECT postrider.withdraw(array_agg(id), ''r'') FROM postrider.message', 'done'),
  ('postrider_worker', 'SELECT postrider.ensure_partitions(8)', 'done'),
  ('postrider_worker', 'SELECT postrider.expire(1)', 'done'),
  ('postrider_worker', 'SELECT postrider.fold_counters()', 'done'),
  ('postrider_worker', 'SELECT postrider.beat(1, ''{}'', false)', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.kind', 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.lanes', 'done'),
  ('postrider_worker', 'DELETE FROM postrider.message', '42501'),
  ('postrider_worker', 'INSERT INTO postrider.message (recipient, body) VALUES (''+998901234567'', ''x'')', '42501'),
  ('postrider_worker', 'UPDATE postrider.kind SET lane = 0', '42501'),
  ('postrider_ops', 'INSERT INTO postrider.message (kind, recipient, body) VALUES (''campaign'', ''+998901234567'', ''x'')', 'done'),
  ('postrider_ops', 'INSERT INTO postrider.message (lane, recipient, body, state) VALUES (1, ''+998901234567'', ''x'', ''sent'')', '42501'),
  ('postrider_ops', 'UPDATE postrider.kind SET lane = 1 WHERE name = ''otp''', 'done'),
  ('postrider_ops', 'UPDATE postrider.message SET state = ''sent''', '42501')
) AS t(role, sql, want);

SELECT * FROM finish();
ROLLBACK;
