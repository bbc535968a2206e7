-- What an operator may do about a doubt: ask, or assume. Case U3.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(15);

INSERT INTO postrider.provider (name, plugin, caps) VALUES
  ('asks', 'p', '{"askable": true}'), ('by-id', 'p', '{"askable": false, "askable_by_id": true}'), ('mute', 'p', '{}');
CREATE FUNCTION pg_temp.doubt(provider text, vendor_id text DEFAULT NULL) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE v uuid := postrider.send('+998901234567', 'x');
BEGIN
  UPDATE postrider.message AS m SET state = 'unknown', due = NULL, doubts = 1, provider = $1, vendor_id = $2 WHERE m.id = v;
  INSERT INTO postrider.counter_delta (kind, state, n) VALUES ('transactional', 'pending', -1), ('transactional', 'unknown', 1);
  RETURN v;
END
$$;

SELECT pg_temp.doubt('asks') AS m \gset
INSERT INTO postrider.ask (message_id, provider, ask_at, tries, misses) VALUES (:'m', 'asks', now() + interval '1 hour', 7, 3);
SELECT is(postrider.ask_now(:'m'), 'asking', 'asked now');
SELECT results_eq('SELECT tries::int, misses::int, ask_at <= clock_timestamp() FROM postrider.ask', 'VALUES (0, 0, true)', 'and from the beginning');
SELECT is(postrider.ask_now(pg_temp.doubt('mute')), 'cannot be asked', 'a vendor without a look-up');
SELECT is(postrider.ask_now(pg_temp.doubt('by-id')), 'cannot be asked', 'a look-up by an id that nobody has');
SELECT is(postrider.ask_now(pg_temp.doubt('by-id', 'v1')), 'asking', 'and by one that is there');
SELECT is(postrider.ask_now(postrider.send('+998901234567', 'y')), 'not needed: pending', 'only doubts are asked about');
SELECT throws_ok($$SELECT postrider.ask_now('00000000-0000-7000-8000-000000000000')$$, 'PR007', NULL, 'no such message');

SELECT throws_ok(format('SELECT postrider.assume_sent(%L, '''')', :'m'), 'PR008', NULL, 'D21: a reason is wanted');
SELECT is(postrider.assume_sent(:'m', 'seen in the vendor''s log'), 'sent', 'assumed');
SELECT results_eq(format('SELECT state::text, doubts::int, reason FROM postrider.message WHERE id = %L', :'m'),
  $$VALUES ('sent', 1, 'assumed sent by hand')$$, 'its doubt stays on record');
SELECT is(postrider.assume_sent(:'m', 'again'), 'not needed: sent', 'once');
SELECT results_eq(format('SELECT action, reason FROM postrider.operator_log WHERE message_id = %L ORDER BY at', :'m'),
  $$VALUES ('ask', NULL), ('assume sent', 'seen in the vendor''s log')$$, 'U3: who, when and why are kept');
SELECT throws_ok($$SELECT postrider.assume_sent('00000000-0000-7000-8000-000000000000', 'r')$$, 'PR007', NULL, 'no such message');
SELECT results_eq($$SELECT count FROM postrider.counts WHERE kind = 'transactional' AND state = 'unknown'$$, ARRAY[3::bigint], 'counted');
SELECT results_eq($$SELECT count FROM postrider.counts WHERE kind = 'transactional' AND state = 'sent'$$, ARRAY[1::bigint], 'on both sides');

SELECT * FROM finish();
ROLLBACK;
