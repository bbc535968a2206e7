-- What applications and operators call. Cases D16, D19, D21, D23, D24, J52, J53, L8.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(121);

CREATE FUNCTION pg_temp.wrong_counts() RETURNS TABLE (kind text, state postrider.state, counted bigint, is bigint)
LANGUAGE sql AS $$
  SELECT kind, state, c.count, m.count
    FROM postrider.counts AS c FULL JOIN (SELECT kind, state, count(*) FROM postrider.message GROUP BY kind, state) AS m
         USING (kind, state)
   WHERE c.count IS DISTINCT FROM m.count
$$;

-- Refusals: one SQLSTATE each, a hint always, and nothing left behind. ---------------------------

CREATE FUNCTION pg_temp.refused(name text, sql text, state text, message text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
  v_state text := 'none';
  v_message text;
  v_hint text;
BEGIN
  BEGIN
    EXECUTE sql;
  EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT, v_hint = PG_EXCEPTION_HINT;
  END;
  RETURN NEXT public.is(v_state, state, name);
  RETURN NEXT public.matches(v_message, message, name || ': the message names the fault');
  RETURN NEXT public.isnt(coalesce(v_hint, ''), '', name || ': the hint names the cure');
END
$$;

SELECT pg_temp.refused(name, sql, state, message) FROM (VALUES
  ('no number', $$SELECT postrider.send('hello', 'x')$$, 'PR001', 'recipient ''hello'' is not a phone number'),
  ('NULL for a number', $$SELECT postrider.send(NULL, 'x')$$, 'PR001', 'recipient NULL'),
  ('empty body', $$SELECT postrider.send('+998901234567', '')$$, 'PR002', 'body is empty'),
  ('NULL body', $$SELECT postrider.send('+998901234567', NULL)$$, 'PR002', 'body is empty'),
  ('too long', $$SELECT postrider.send('+998901234567', repeat('a', 1531))$$, 'PR003', 'needs 11 segments, kind "transactional" allows 10'),
  ('no such kind', $$SELECT postrider.send('+998901234567', 'x', kind => 'otpp')$$, 'PR004', 'unknown kind "otpp"'),
  ('NULL kind', $$SELECT postrider.send('+998901234567', 'x', kind => NULL)$$, 'PR004', 'unknown kind'),
  ('D19 dead on arrival', $$SELECT postrider.send('+998901234567', 'x', expires_at => now() - interval '1 s')$$, 'PR005', 'out of range'),
  ('D19 dead before it is due', $$SELECT postrider.send('+998901234567', 'x', run_at => now() + interval '2 h', expires_at => now() + interval '1 h')$$, 'PR005', 'out of range'),
  ('lives too long', $$SELECT postrider.send('+998901234567', 'x', expires_at => now() + interval '32 days')$$, 'PR005', 'out of range'),
  ('due in an unreal future', $$SELECT postrider.send('+998901234567', 'x', run_at => now() + interval '2 years')$$, 'PR005', 'out of range'),
  ('due never', $$SELECT postrider.send('+998901234567', 'x', run_at => 'infinity')$$, 'PR005', 'out of range'),
  ('not yet: order', $$SELECT postrider.send('+998901234567', 'x', ordering_key => 'a')$$, '0A000', 'ordering_key is not supported'),
  ('not yet: superseding', $$SELECT postrider.send('+998901234567', 'x', supersede_key => 'a')$$, '0A000', 'supersede_key is not supported'),
  ('many: one bad number of three', $$SELECT postrider.send_many(ARRAY['+998901234567', 'bad', '+998901234568'], ARRAY['x'])$$, 'PR001', '^element 2: recipient ''bad'''),
  ('many: an empty body', $$SELECT postrider.send_many(ARRAY['+998901234567', '+998901234568'], ARRAY['x', ''])$$, 'PR002', '^element 2: body'),
  ('many: one body, empty', $$SELECT postrider.send_many(ARRAY['+998901234567', '+998901234568'], ARRAY[''])$$, 'PR002', 'body is empty'),
  ('many: a long body', $$SELECT postrider.send_many(ARRAY['+998901234567', '+998901234568'], ARRAY['x', repeat('a', 1531)])$$, 'PR003', '^element 2: body'),
  ('many: kind', $$SELECT postrider.send_many(ARRAY['+998901234567'], ARRAY['x'], kind => 'x y')$$, 'PR004', 'unknown kind'),
  ('many: time', $$SELECT postrider.send_many(ARRAY['+998901234567'], ARRAY['x'], expires_at => now())$$, 'PR005', 'out of range'),
  ('many: lengths', $$SELECT postrider.send_many(ARRAY['+998901234567', '+998901234568', '+998901234569'], ARRAY['x', 'y'])$$, 'PR006', '3 recipients but 2 bodies'),
  ('cancel of nothing', $$SELECT postrider.cancel('00000000-0000-7000-8000-000000000000')$$, 'PR007', 'no message'),
  ('retry of nothing', $$SELECT postrider.retry('00000000-0000-7000-8000-000000000000')$$, 'PR007', 'no message')
) AS t(name, sql, state, message);
SELECT is_empty('SELECT 1 FROM postrider.message', 'refusals leave no message');
SELECT is_empty('SELECT 1 FROM postrider.counter_delta', 'and no count');
SELECT is_empty('SELECT 1 FROM postrider.dedup', 'and no key');

-- send ------------------------------------------------------------------------------------------

SELECT postrider.send('00 998 (90) 123-45-67', 'code 1', kind => 'otp', sender => 'Shop', meta => '{"a": 1}') AS id \gset
SELECT results_eq(
  format($$SELECT kind, lane::int, state::text, recipient, body, sender, meta->>'a', attempts::int, calls, token,
                  expires_at - due FROM postrider.message WHERE id = %L$$, :'id'),
  $$VALUES ('otp', 0, 'pending', '+998901234567', 'code 1', 'Shop', '1', 0, 0, 0::bigint, interval '5 minutes')$$,
  'a message as it waits: number spelled one way, lane and life of its kind');
SELECT ok(due <= clock_timestamp(), 'due at once') FROM postrider.message WHERE id = :'id';

SELECT postrider.send('+998901234567', 'first', dedup_key => 'k-17') AS first \gset
SELECT is(postrider.send('+998901234567', 'first', dedup_key => 'k-17'), :'first', 'D16, D23: a key seen before returns the first id');
SELECT is(postrider.send('+998901234568', 'other', dedup_key => 'k-17'), :'first', 'also with another text (and a warning)');
SELECT is(count(*)::int, 1, 'one row for the key') FROM postrider.message WHERE body IN ('first', 'other');

-- Two keys of one call belong to one message.
SELECT postrider.send('+998901234567', 'by key', key => '11111111-1111-4111-8111-111111111111') AS by_key \gset
SELECT is(postrider.send('+998901234567', 'by key', key => '11111111-1111-4111-8111-111111111111', dedup_key => 'k-18'),
          :'by_key', 'a key seen before, beside a new dedup_key');
SELECT is(postrider.send('+998901234567', 'by key', dedup_key => 'k-18'), :'by_key',
          'D24: the new dedup_key leads to a message that exists');
SELECT is_empty($$SELECT d.key FROM postrider.dedup AS d LEFT JOIN postrider.message AS m ON m.id = d.message_id
                   WHERE m.id IS NULL$$, 'no key leads nowhere');

-- send_many -------------------------------------------------------------------------------------

SELECT is(postrider.send_many('{}', '{}'), 0::bigint, 'nobody');
SELECT is(postrider.send_many(NULL, NULL), 0::bigint, 'nobody, NULL');
SELECT is(postrider.send_many(ARRAY['+998 90 123 45 67', '00998901234568'], ARRAY['to all']), 2::bigint, 'one body for all');
SELECT is(postrider.send_many(ARRAY['+998901234567', '+998901234568'], ARRAY['to one', 'to two'], kind => 'transactional'), 2::bigint, 'a body each');
SELECT results_eq($$SELECT recipient, body, kind, lane::int FROM postrider.message WHERE body LIKE 'to %' ORDER BY body, recipient$$,
  $$VALUES ('+998901234567', 'to all', 'campaign', 2), ('+998901234568', 'to all', 'campaign', 2),
           ('+998901234567', 'to one', 'transactional', 1), ('+998901234568', 'to two', 'transactional', 1)$$,
  'each recipient gets its own text');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- Rolling back leaves nothing.
SAVEPOINT before;
SELECT postrider.send('+998901234567', 'gone', dedup_key => 'k-19'), postrider.send_many(ARRAY['+998901234567'], ARRAY['gone']);
ROLLBACK TO before;
SELECT is_empty($$SELECT 1 FROM postrider.message WHERE body = 'gone' UNION ALL SELECT 1 FROM postrider.dedup WHERE key = 'app:k-19'$$,
  'L8: rolled back means never sent');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts rolled back too');

-- Plain INSERT and COPY -------------------------------------------------------------------------

INSERT INTO postrider.message (kind, recipient, body)
SELECT 'campaign', '+99890000' || to_char(i, 'FM0000'), 'plain' FROM generate_series(1, 100) AS i;
SELECT is(count(*)::int, 100, 'rows made by a query are completed: lane, due, life')
  FROM postrider.message WHERE body = 'plain' AND lane = 2 AND state = 'pending' AND expires_at - due = interval '1 day';
COPY postrider.message (kind, recipient, body) FROM stdin;
otp	998 90 111 22 33	copied
otp	+998901112234	copied
\.
SELECT is(count(*)::int, 2, 'COPY is a plain INSERT') FROM postrider.message WHERE body = 'copied' AND lane = 0 AND recipient LIKE '+99890%';
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after both');
SELECT pg_temp.refused(name, sql, state, message) FROM (VALUES
  ('plain: number', $$INSERT INTO postrider.message (recipient, body) VALUES ('bad', 'x')$$, 'PR001', 'not a phone number'),
  ('plain: kind', $$INSERT INTO postrider.message (recipient, body, kind) VALUES ('+998901234567', 'x', 'zzz')$$, 'PR004', 'unknown kind')
) AS t(name, sql, state, message);

-- cancel and retry ------------------------------------------------------------------------------

CREATE FUNCTION pg_temp.put(id uuid, state postrider.state, doubts int DEFAULT 0) RETURNS uuid LANGUAGE sql AS $$
  WITH old AS (SELECT m.kind, m.state FROM postrider.message AS m WHERE m.id = $1),
       counted AS (INSERT INTO postrider.counter_delta SELECT kind, state, -1 FROM old UNION ALL SELECT kind, $2, 1 FROM old)
  UPDATE postrider.message AS m SET state = $2, due = CASE WHEN $2 = 'pending' THEN now() END, doubts = $3 WHERE m.id = $1 RETURNING m.id
$$;

SELECT is(postrider.cancel(:'id'), 'canceled', 'a waiting message is canceled');
SELECT is(postrider.cancel(:'id'), 'canceled', 'twice is once');
SELECT is(postrider.retry(:'id'), 'pending', 'and may be queued again');
SELECT is(postrider.retry(:'id'), 'not needed: pending', 'once');
SELECT results_eq(format($$SELECT postrider.cancel(pg_temp.put(%L, s)) FROM unnest(ARRAY['sending', 'sent', 'failed', 'expired', 'unknown']::postrider.state[]) AS s$$, :'id'),
  ARRAY['too late', 'too late', 'too late', 'too late', 'unknown'], 'what has left or ended stays as it is');
SELECT is(postrider.cancel(pg_temp.put(:'id', 'pending', 1)), 'unknown', 'what may have been taken is stopped, not called canceled');
SELECT pg_temp.refused('D21: an unknown one', format('SELECT postrider.retry(%L)', :'id'), 'PR008', 'needs a reason');
SELECT pg_temp.refused('D21: an empty reason', format('SELECT postrider.retry(%L, '''')', :'id'), 'PR008', 'needs a reason');
SELECT is(postrider.retry(:'id', 'vendor log has nothing'), 'pending', 'with a reason it goes');
SELECT results_eq(format('SELECT attempts::int, doubts::int, reason FROM postrider.message WHERE id = %L', :'id'),
  $$VALUES (0, 1, 'retried by hand')$$, 'its doubt is kept');
SELECT results_eq(format('SELECT action, reason FROM postrider.operator_log WHERE message_id = %L ORDER BY at DESC LIMIT 1', :'id'),
  $$VALUES ('retry', 'vendor log has nothing')$$, 'who, what and why is kept');
UPDATE postrider.message SET expires_at = now() - interval '1 h' WHERE id = :'id';
SELECT is(postrider.retry(pg_temp.put(:'id', 'expired')), 'pending', 'an expired one gets a fresh life');
SELECT ok(expires_at > clock_timestamp() + interval '4 minutes', 'of its kind') FROM postrider.message WHERE id = :'id';
SELECT is(postrider.retry(pg_temp.put(:'id', 'sent')), 'not needed: sent', 'sent is final');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after all that');

SELECT is(postrider.inbox_accept('m1', 's'), true, 'a receiver sees a key');
SELECT is(postrider.inbox_accept('m1', 's'), false, 'once');
SELECT is(postrider.inbox_accept('m1'), true, 'a source');

-- meta travels with every claim, so it is bounded.
SELECT throws_ok($$SELECT postrider.send('+998901234567', 'x', meta => jsonb_build_object('a', repeat('x', 20000)))$$, '23514', NULL, 'meta of 20 kB is refused');
SELECT lives_ok($$SELECT postrider.send('+998901234567', 'x', meta => jsonb_build_object('a', repeat('x', 10000)))$$, 'meta of 10 kB is taken');

SELECT * FROM finish();
ROLLBACK;
