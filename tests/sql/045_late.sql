-- Late news, withdrawn evidence and their fences. Cases D10, U6, J4, J24; R5, R7.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(33);

CREATE FUNCTION pg_temp.wrong_counts() RETURNS TABLE (kind text, state postrider.state, counted bigint, is bigint)
LANGUAGE sql AS $$
  SELECT kind, state, c.count, m.count
    FROM postrider.counts AS c FULL JOIN (SELECT kind, state, count(*) FROM postrider.message GROUP BY kind, state) AS m
         USING (kind, state)
   WHERE c.count IS DISTINCT FROM m.count
$$;
-- A message with one attempt under token t, settled so.
CREATE FUNCTION pg_temp.settled(t bigint, state text, doubts int, outcome text, vendor_id text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  v uuid := postrider.send('+998901234567', 'x' || t);
BEGIN
  PERFORM postrider.claim(t, 1, 1, '{transactional}', '{main}', '{main}', 10, 60000, NULL, NULL);
  PERFORM postrider.settle(ARRAY[v], ARRAY[t], ARRAY[state], '{3600000}', ARRAY[NULL::text], '{1}', '{1}', ARRAY[doubts], ARRAY[vendor_id],
    '{"why"}', ARRAY[outcome], '{lost}', '{c}', '{d}', '{1000}', ARRAY[t]);
  RETURN v;
END
$$;
CREATE FUNCTION pg_temp.late(id uuid, seen_token bigint, seen text, seen_doubts int, state text, doubts int, token bigint, outcome text,
  reason text DEFAULT NULL, vendor_id text DEFAULT NULL) RETURNS boolean LANGUAGE sql AS $$
  SELECT postrider.late_write(id, seen_token, seen, seen_doubts, state, 0, doubts, false, vendor_id, reason, token, outcome, 'complete', 'lc', 'ld')
$$;
CREATE FUNCTION pg_temp.row(id uuid) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', m.state, 'd' || m.doubts, m.vendor_id, m.reason, CASE WHEN m.doubt_since IS NULL THEN 'sure' END, CASE WHEN m.due IS NOT NULL THEN 'due' END)
    FROM postrider.message AS m WHERE m.id = $1
$$;

SELECT pg_temp.settled(1, 'unknown', 1, 'unknown') AS m \gset
SELECT results_eq(format($$SELECT n, state, token, kind, provider, attempts, calls, doubts, vendor_id, taken, recorded, rejected, life_ms > 0, doubt_age_ms >= 1000
    FROM postrider.late_read(ARRAY[%L, '00000000-0000-7000-8000-000000000000']::uuid[], '{1, 1}')$$, :'m'),
  $$VALUES (0, 'unknown', 1::bigint, 'transactional', 'main', 1, 1, 1, NULL::text, false, 'unknown', false, true, true)$$,
  'late_read tells where a message stands; of one that is gone, nothing');

-- Each part of the fence.
SELECT is(pg_temp.late(:'m', 2, 'unknown', 1, 'sent', 0, 1, 'accepted'), false, 'another token: it was claimed meanwhile');
SELECT is(pg_temp.late(:'m', 1, 'pending', 1, 'sent', 0, 1, 'accepted'), false, 'another state');
SELECT is(pg_temp.late(:'m', 1, 'unknown', 2, 'sent', 0, 1, 'accepted'), false, 'other doubts');
SELECT is(pg_temp.row(:'m'), 'unknown d1 why', 'none of them changed anything');
SELECT results_eq(format('SELECT outcome::text FROM postrider.attempt WHERE message_id = %L', :'m'), ARRAY['unknown'], 'nor the record');
SELECT is(pg_temp.late(:'m', 1, 'unknown', 1, 'sent', 0, 1, 'accepted', vendor_id => 'v1'), true, 'as it was read: stored');
SELECT is(pg_temp.row(:'m'), 'sent d0 v1 sure', 'U6: sent, with the vendor''s id, no doubt left');
SELECT results_eq(format('SELECT outcome::text, phase, code, detail, vendor_id FROM postrider.attempt WHERE message_id = %L', :'m'),
  $$VALUES ('accepted', 'complete', 'lc', 'ld', 'v1')$$, 'and the attempt''s record says so');
SELECT is(pg_temp.late(:'m', 1, 'unknown', 1, 'sent', 0, 1, 'accepted'), false, 'a replay matches nothing');
SELECT is(pg_temp.late(:'m', 1, 'sent', 0, 'sent', 0, 1, 'rejected'), true, 'a contradiction later on');
SELECT results_eq(format('SELECT outcome::text FROM postrider.attempt WHERE message_id = %L', :'m'), ARRAY['accepted'],
  'does not change what was proven');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- A doubt cleared.
SELECT pg_temp.settled(2, 'unknown', 1, 'unknown') AS m \gset
SELECT is(pg_temp.late(:'m', 2, 'unknown', 1, 'pending', 0, 2, 'unreached', 'doubt cleared'), true, 'surely not sent');
SELECT is(pg_temp.row(:'m'), 'pending d0 doubt cleared sure due', 'waits again');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- A planned retry keeps its time.
SELECT pg_temp.settled(3, 'pending', 1, 'unknown') AS m \gset
SELECT due AS planned FROM postrider.message WHERE id = :'m' \gset
SELECT is(pg_temp.late(:'m', 3, 'pending', 1, 'pending', 0, 3, 'refused', 'doubt cleared'), true, 'a planned retry, its doubt cleared');
SELECT is(due, :'planned'::timestamptz, 'comes when it was planned') FROM postrider.message WHERE id = :'m';
SELECT is(reason, 'why', 'for its old reason') FROM postrider.message WHERE id = :'m';

-- Canceled while in doubt.
SELECT pg_temp.settled(4, 'pending', 1, 'unknown') AS m \gset
SELECT is(postrider.cancel(:'m'), 'unknown', 'canceled while in doubt');
SELECT is(pg_temp.late(:'m', 4, 'unknown', 1, 'pending', 0, 4, 'refused', 'doubt cleared'), true, 'it was not taken');
SELECT is(pg_temp.row(:'m'), 'canceled d0 canceled sure', 'canceled means not sent again');
SELECT pg_temp.settled(5, 'pending', 1, 'unknown') AS m \gset
SELECT postrider.cancel(:'m');
SELECT is(pg_temp.late(:'m', 5, 'unknown', 1, 'sent', 0, 5, 'accepted'), true, 'or it was');
SELECT is(pg_temp.row(:'m'), 'sent d0 sure', 'then it is sent: that is the truth');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- News while a newer attempt is in the air leaves its time alone: the next doubt counts from it.
SELECT pg_temp.settled(6, 'pending', 1, 'unknown') AS m \gset
UPDATE postrider.message SET due = now() WHERE id = :'m';
SELECT count(*) FROM postrider.claim(7, 1, 1, '{transactional}', '{main}', '{main}', 10, 60000, NULL, NULL);
SELECT changed_at AS claimed FROM postrider.message WHERE id = :'m' \gset
SELECT is(pg_temp.late(:'m', 7, 'sending', 1, 'sending', 0, 6, 'refused', 'doubt cleared'), true, 'news of the first while the second is in the air');
SELECT is(changed_at, :'claimed'::timestamptz, 'its age is still that of its claim') FROM postrider.message WHERE id = :'m';
SELECT results_eq(format('SELECT rejected FROM postrider.late_read(ARRAY[%L]::uuid[], ''{7}'')', :'m'), ARRAY[false], 'nobody rejected it');
UPDATE postrider.attempt SET outcome = 'rejected' WHERE message_id = :'m' AND token = 6;
SELECT results_eq(format('SELECT token = %L, rejected FROM (SELECT 6 AS token, rejected FROM postrider.late_read(ARRAY[%L]::uuid[], ''{6}'')) AS r', 6, :'m'),
  $$VALUES (true, false)$$, 'its own rejection is not another''s');
SELECT results_eq(format('SELECT rejected FROM postrider.late_read(ARRAY[%L]::uuid[], ''{7}'')', :'m'), ARRAY[true], 'somebody did');

-- withdraw --------------------------------------------------------------------------------------

SELECT pg_temp.settled(8, 'sent', 0, 'accepted', 'v8') AS a, pg_temp.settled(9, 'failed', 0, 'rejected') AS b \gset
SELECT is(postrider.withdraw(ARRAY[:'a', :'b']::uuid[], 'one id for two messages'), 1, 'R5: evidence is taken back from what was sent, no more');
SELECT is(postrider.withdraw(ARRAY[:'a', :'b']::uuid[], 'one id for two messages'), 0, 'once');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

SELECT * FROM finish();
ROLLBACK;
