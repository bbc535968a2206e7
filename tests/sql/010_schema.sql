-- Tables, types, ids and partitions: what every other part builds on. Cases J33, J35, J50.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(36);

-- Everything is explained where psql's \d+ shows it.
SELECT is_empty($$
  SELECT c.relname FROM pg_class AS c
   WHERE c.relnamespace = 'postrider'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
     AND NOT c.relispartition AND obj_description(c.oid, 'pg_class') IS NULL
     AND c.relname <> 'schema_version'$$, 'every table and view has a comment');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc AS p
   WHERE p.pronamespace = 'postrider'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL$$,
  'every function has a comment');
SELECT is_empty($$
  SELECT t.typname FROM pg_type AS t
   WHERE t.typnamespace = 'postrider'::regnamespace AND t.typtype = 'e' AND obj_description(t.oid, 'pg_type') IS NULL$$,
  'every enum has a comment');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc AS p
   WHERE p.pronamespace = 'postrider'::regnamespace AND p.prosecdef
     AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)$$,
  'no function with the owner''s rights follows the caller''s search_path');

-- The words; tests/e2e/test_sql_api.py compares them with the C enums.
SELECT enum_has_labels('postrider', 'state',
  ARRAY['pending', 'sending', 'unknown', 'sent', 'failed', 'expired', 'canceled', 'suppressed']);
SELECT enum_has_labels('postrider', 'outcome',
  ARRAY['accepted', 'rejected', 'throttled', 'held', 'unreached', 'refused', 'unknown']);
SELECT enum_has_labels('postrider', 'receipt', ARRAY['none', 'in_transit', 'delivered', 'undelivered', 'expired']);

-- Only what is due is indexed, so that a settle is a HOT update.
SELECT results_eq($$
  SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'postrider.message'::regclass ORDER BY 1$$,
  ARRAY['postrider.message_due_idx', 'postrider.message_pkey'], 'message has its key and one more index');
SELECT is(pg_get_expr(indpred, indrelid), '(due IS NOT NULL)', 'that one holds due rows only')
  FROM pg_index WHERE indexrelid = 'postrider.message_due_idx'::regclass;
SELECT is(pg_get_indexdef('postrider.message_due_idx'::regclass) ~ '\(lane, due, id\)', true, 'lane first, then due, then id');
SELECT is_empty($$
  SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
   WHERE i.inhparent = 'postrider.message'::regclass
     AND NOT coalesce(c.reloptions @> ARRAY['fillfactor=50', 'autovacuum_vacuum_scale_factor=0.05'], false)$$,
  'J33: every partition leaves room for HOT and has its own autovacuum limits');

SELECT throws_ok($$INSERT INTO postrider.message (lane, expires_at, recipient, body) VALUES (1, now(), '+998901234567', 'x')$$,
  '23514', NULL, 'a pending row needs a due time');
SELECT throws_ok($$INSERT INTO postrider.message (lane, expires_at, recipient, body, state, due)
                   VALUES (1, now(), '+998901234567', 'x', 'sent', now())$$,
  '23514', NULL, 'a row that is not pending has none');
SELECT throws_ok($$INSERT INTO postrider.message (lane, expires_at, recipient, body, due, attempts)
                   VALUES (1, now(), '+998901234567', 'x', now(), -1)$$, '23514', NULL, 'counts are not negative');

-- Kinds are data with bounds.
SELECT results_eq('SELECT name, lane::int, on_unknown FROM postrider.kind ORDER BY lane',
  $$VALUES ('otp', 0, 'resend'), ('transactional', 1, 'resend'), ('campaign', 2, 'hold')$$, 'the seeded kinds');
SELECT throws_ok(format('UPDATE postrider.kind SET %s WHERE name = ''otp''', bad), '23514', NULL, 'J78: refused: ' || bad)
  FROM unnest(ARRAY['lane = 10', 'reserved = 1', 'on_unknown = ''perhaps''', 'ttl = ''0''', 'attempts = 0',
                    'max_calls = 0', 'backoff_cap_ms = backoff_base_ms - 1', 'name = ''With Space''']) AS bad;

-- Ids --------------------------------------------------------------------------------------------

SELECT matches(postrider.uuid7()::text, '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$',
  'RFC 9562: version 7, variant 10');
SELECT matches(postrider.uuid7('2024-05-01 12:00:00.5005Z')::text, '^018f3406-9ff4-7800-[89ab]',
  'the first 48 bits are Unix milliseconds, the next 12 the millisecond''s fraction');
SELECT is(postrider.uuid_time(postrider.uuid7('2024-05-01 12:00:00.123Z')), '2024-05-01 12:00:00.123Z'::timestamptz,
  'and can be read back');
SELECT is(postrider.uuid_floor('2024-05-01Z'), '018f3173-7000-0000-0000-000000000000'::uuid, 'the first id of a day');
SELECT ok(bool_and(postrider.uuid7(t) >= postrider.uuid_floor(t)
                   AND postrider.uuid7(t) < postrider.uuid_floor(t + interval '1 millisecond')),
          'an id lies in its millisecond, at the edges of days too')
  FROM unnest(ARRAY['2026-01-01Z', '2026-01-01 23:59:59.999Z', '2027-03-28 00:59:59.9999Z'
                    , '2100-01-01Z']::timestamptz[]) AS t;
SELECT is(count(DISTINCT id)::int, 20000, 'twenty thousand ids differ')
  FROM (SELECT postrider.uuid7() AS id FROM generate_series(1, 20000)) AS i;

-- Partitions -------------------------------------------------------------------------------------

SELECT lives_ok('SELECT postrider.ensure_partitions(7)');
SELECT is(postrider.ensure_partitions(7), 0, 'nothing to make the second time');
SELECT is(postrider.ensure_partitions(9), 10, 'two more days, five tables');
SELECT is(postrider.ensure_partitions(9), 0, 'and no more');
SELECT is(postrider.ensure_partitions(NULL), 0, 'without a number: at least tomorrow');
SELECT is(count(*)::int, 11, 'yesterday to nine days from now')
  FROM pg_inherits WHERE inhparent = 'postrider.message'::regclass;
SELECT is_empty($$
  SELECT c.relname FROM pg_class AS c
   WHERE c.relispartition AND c.relnamespace = 'postrider'::regnamespace
     AND pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'$$, 'no default partition: it would be scanned at each attach');

SELECT * FROM finish();
ROLLBACK;
