-- Asking: doubts get their row in the commit that made them, are taken within limits, and what follows
-- is fenced; ids are found again; a lifetime is frozen at the first claim. Cases U6, R2, R3, R5.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(49);

INSERT INTO postrider.provider (name, plugin, caps) VALUES
  ('main', 'p', '{"askable": true, "keeps_ids": true}'), ('mute', 'p', '{"askable": false, "keeps_ids": false}');

CREATE FUNCTION pg_temp.claim(token bigint, provider text DEFAULT 'main') RETURNS SETOF bigint LANGUAGE sql AS $$
  SELECT validity_ms FROM postrider.claim(token, 1, 2, '{campaign}', ARRAY[provider], ARRAY[provider], 100, 60000, NULL, NULL) WHERE kind IS NOT NULL
$$;
CREATE FUNCTION pg_temp.doubt(id uuid, token bigint, ask_ms bigint, attempts int DEFAULT 1, doubts int DEFAULT 1) RETURNS int LANGUAGE sql AS $$
  SELECT count(*)::int FROM postrider.settle(ARRAY[id], ARRAY[token], '{unknown}', '{0}', ARRAY[NULL::text], ARRAY[attempts], '{1}', ARRAY[doubts],
    ARRAY[NULL::text], '{asking the vendor}', '{unknown}', '{sent}', '{timeout}', '{d}', '{1000}', '{}', ARRAY[ask_ms], ARRAY[NULL::text])
$$;
CREATE FUNCTION pg_temp.take(room int DEFAULT 10, per_minute int DEFAULT 0) RETURNS TABLE (id uuid, attempt bigint, tries int, misses int) LANGUAGE sql AS $$
  SELECT id, attempt, tries, misses FROM postrider.ask_take('{main}', ARRAY[per_minute], ARRAY[room], 60000)
$$;
CREATE FUNCTION pg_temp.store(id uuid, token bigint, next text, misses int DEFAULT 0, reason text DEFAULT NULL, doubts int DEFAULT 1,
                              tries int DEFAULT NULL) RETURNS int LANGUAGE sql AS $$
  SELECT postrider.ask_store(ARRAY[id], ARRAY[token], ARRAY[doubts], ARRAY[next], '{0}', ARRAY[misses], ARRAY[reason],
    ARRAY[coalesce(tries, (SELECT a.tries FROM postrider.ask AS a WHERE a.message_id = id), 0)])
$$;
CREATE FUNCTION pg_temp.row(id uuid) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', m.state, 'd' || m.doubts, CASE WHEN m.asked THEN 'asked' END, m.vendor_id, m.reason) FROM postrider.message AS m WHERE m.id = $1
$$;
CREATE FUNCTION pg_temp.send(n int DEFAULT 1) RETURNS uuid LANGUAGE sql AS $$
  SELECT postrider.send('+99890123456' || n, 'text', kind => 'campaign')
$$;

-- a lifetime is frozen ----------------------------------------------------------------------------
SELECT pg_temp.send() AS m \gset
UPDATE postrider.message SET expires_at = clock_timestamp() + interval '100 seconds' WHERE id = :'m';
CREATE TEMP TABLE validity AS SELECT pg_temp.claim(201) AS first;
SELECT ok(first BETWEEN 95000 AND 100000, 'the first claim says what is left') FROM validity;
UPDATE postrider.message SET first_at = first_at - interval '50 seconds' WHERE id = :'m';
SELECT is(count(*)::int, 0, 'given back') FROM postrider.settle(ARRAY[:'m']::uuid[], '{201}', '{pending}', '{0}', ARRAY[now()::text], '{0}', '{0}', '{0}',
  ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], '{queue}', ARRAY[NULL::text], ARRAY[NULL::text], '{10}', '{201}');
CREATE TEMP TABLE again AS SELECT pg_temp.claim(202) AS second;
SELECT ok(second BETWEEN 145000 AND 150000, 'R2: the second claim says the same, not what is left now') FROM again;

-- a doubt gets its row ----------------------------------------------------------------------------
SELECT is(pg_temp.doubt(:'m', 202, 5000), 0, 'in doubt');
SELECT results_eq('SELECT provider, tries::int, misses::int, ask_at > clock_timestamp() + interval ''4 seconds'' FROM postrider.ask', $$VALUES ('main', 0, 0, true)$$, 'to be asked about, after the quiet time');
SELECT is_empty('SELECT * FROM pg_temp.take()', 'not before');
UPDATE postrider.ask SET ask_at = clock_timestamp();
SELECT is_empty($$SELECT * FROM postrider.ask_take('{mute}', '{0}', '{10}', 60000)$$, 'not by who has another provider');
SELECT results_eq('SELECT id, attempt, tries, misses FROM pg_temp.take()', format('VALUES (%L::uuid, 202::bigint, 1, 0)', :'m'), 'the attempt in doubt is named');
SELECT is_empty('SELECT * FROM pg_temp.take()', 'hidden from others meanwhile');
SELECT pg_temp.send(2) AS k \gset
SELECT is((SELECT count(*)::int FROM pg_temp.claim(203, 'mute')), 1, 'a message at a vendor that cannot be asked');
SELECT is(pg_temp.doubt(:'k', 203, -1), 0, 'in doubt');
SELECT is((SELECT count(*)::int FROM postrider.ask), 1, 'has no row');

-- what follows ------------------------------------------------------------------------------------
SELECT is(pg_temp.store(:'m', 202, 'again', 1), 0, 'ask again changes no message');
SELECT results_eq('SELECT misses::int, ask_at <= clock_timestamp() FROM postrider.ask', 'VALUES (1, true)', 'but its row');
SELECT is(pg_temp.store(:'m', 202, 'again', 2, 'not found'), 1, 'a label');
SELECT is(pg_temp.row(:'m'), 'unknown d1 not found', 'is only that');
SELECT is(pg_temp.store(:'m', 201, 'resend', 2, 'not found, sent again'), 0, 'R3: another token changes nothing');
INSERT INTO postrider.ask (message_id, provider, ask_at) VALUES (:'m', 'main', clock_timestamp()) ON CONFLICT DO NOTHING;
SELECT is(pg_temp.store(:'m', 202, 'resend', 2, 'not found, sent again', 7), 0, 'R3: nor do other doubts');
INSERT INTO postrider.ask (message_id, provider, ask_at) VALUES (:'m', 'main', clock_timestamp()) ON CONFLICT DO NOTHING;
SELECT is(pg_temp.store(:'m', 202, 'resend', 2, 'not found, sent again'), 1, 'asked, and not seen');
SELECT is(pg_temp.row(:'m'), 'pending d1 asked not found, sent again', 'it goes again, its doubt kept');
SELECT is_empty('SELECT 1 FROM postrider.ask', 'and no question is left');
SELECT is((SELECT count(*)::int FROM pg_temp.claim(204)), 1, 'claimed again');
SELECT is(pg_temp.doubt(:'m', 204, 0, 2, 2), 0, 'in doubt again');
SELECT is(pg_temp.row(:'m'), 'unknown d2 asking the vendor', 'the new doubt has not been asked about');
SELECT is(pg_temp.store(:'m', 204, 'resend', 2, 'not found, sent again', 2, 3), 0, 'R3: an answer to an older question sends nothing');
SELECT is(pg_temp.store(:'m', 204, 'again', 1, NULL, 2, 3), 0, 'nor is it a miss of the new one');
SELECT results_eq('SELECT tries::int, misses::int FROM postrider.ask', 'VALUES (0, 0)', 'whose row it leaves alone');
SELECT is((SELECT attempt FROM pg_temp.take()), 204::bigint, 'the newest attempt is asked about');

-- settled from elsewhere, canceled ----------------------------------------------------------------
UPDATE postrider.ask SET ask_at = clock_timestamp();
SELECT is(postrider.cancel(:'m'), 'unknown', 'cancel of a doubt');
SELECT is(pg_temp.store(:'m', 204, 'resend', 2, 'not found, sent again', 2), 1, 'a look-up under way would send it again');
SELECT is(pg_temp.row(:'m'), 'unknown d2 canceled', 'it does not');
INSERT INTO postrider.ask (message_id, provider, ask_at) VALUES (:'m', 'main', clock_timestamp());
SELECT ok(postrider.late_write(:'m', 204, 'unknown', 2, 'sent', 0, 1, false, 'v-1', NULL, 204, 'accepted', 'asked', NULL, NULL), 'the vendor has it after all');
SELECT is_empty('SELECT 1 FROM postrider.ask', 'nobody is asked about what is settled');

-- ids of late news --------------------------------------------------------------------------------
SELECT is((SELECT message_id FROM postrider.vendor_ref WHERE vendor_id = 'v-1'), :'m'::uuid, 'the id it was accepted under is its own');
SELECT is(postrider.own_id(:'k', 'main', '{v-1}'), NULL, 'R5: a look-up for another message with the same text cannot have it');
SELECT pg_temp.send(3) AS p \gset
SELECT is((SELECT count(*)::int FROM pg_temp.claim(205)), 1, 'a third message');
SELECT is(count(*)::int, 0, 'sent, with an id that a look-up gave to another') FROM postrider.settle_sent(ARRAY[:'p']::uuid[], '{205}', '{v-1}', '{205}');
SELECT is(pg_temp.row(:'m'), 'unknown d2 v-1 vendor id given twice', 'R5: the vendor''s own answer is stronger: the other is in doubt again');
SELECT is((SELECT message_id FROM postrider.vendor_ref WHERE vendor_id = 'v-1'), :'p'::uuid, 'and the id is where it belongs');
SELECT is((SELECT count(*)::int FROM postrider.ask WHERE message_id = :'m'), 1, 'and it is asked about');
DELETE FROM postrider.ask;

-- canceled while another try is planned -----------------------------------------------------------
SELECT pg_temp.send(4) AS c \gset
UPDATE postrider.message SET doubts = 1, provider = 'main' WHERE id = :'c';
SELECT is(postrider.cancel(:'c'), 'unknown', 'stopped, and in doubt');
SELECT is((SELECT count(*)::int FROM postrider.ask WHERE message_id = :'c'), 1, 'the vendor is asked all the same');
DELETE FROM postrider.ask;

-- limits ------------------------------------------------------------------------------------------
INSERT INTO postrider.ask (message_id, provider, ask_at) SELECT :'k', 'main', clock_timestamp();
SELECT is((SELECT count(*)::int FROM pg_temp.take(0)), 0, 'without room nothing is taken');
SELECT is((SELECT count(*)::int FROM pg_temp.take(10, 1)), 1, 'one a minute');
UPDATE postrider.ask SET ask_at = clock_timestamp();
SELECT ok((SELECT count(*) FROM pg_temp.take(10, 1)) = 0
          OR (SELECT minute > clock_timestamp() - interval '2 seconds' FROM postrider.ask_budget WHERE provider = 'main'),
  'not a second in the same minute');

-- whose id ----------------------------------------------------------------------------------------
SELECT is(postrider.own_id(:'k', 'main', '{v-9,v-8}'), 'v-9', 'the best candidate that is nobody else''s');
SELECT is(postrider.own_id(:'m', 'main', '{v-9,v-8}'), 'v-8', 'R5: what belongs to another message is not ours');
SELECT is(postrider.own_id(:'m', 'main', '{v-9}'), NULL, 'and if that is all, there is none');
SELECT is((SELECT count(*)::int FROM postrider.vendor_ref WHERE message_id = :'k'), 1, 'one id a message');

SELECT * FROM finish();
ROLLBACK;
