-- Receipts, stored and applied; messages of people, stop words and the suppression list.
-- Cases R1, R3, R4, R6, R7, R9, U6, D3, D4, D5, D6.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT no_plan();

INSERT INTO postrider.provider (name, plugin, caps) VALUES
  ('main', 'twilio', '{"keeps_ids": true}'), ('second', 'twilio', '{"keeps_ids": true}'), ('other', 'vonage', '{"keeps_ids": true}'),
  ('generic', 'http', '{"keeps_ids": true}'), ('generic2', 'http', '{"keeps_ids": true}');
UPDATE postrider.kind SET ttl = '1 hour';

-- A message claimed under token t; settled so, unless the state is 'sending' or 'pending'.
CREATE FUNCTION pg_temp.message(t bigint, state text, doubts int DEFAULT 0, outcome text DEFAULT 'accepted',
  vendor_id text DEFAULT NULL, parts text DEFAULT NULL, provider text DEFAULT 'main') RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  v uuid := postrider.send('+998901234567', 'x' || t);
BEGIN
  IF state = 'pending' AND outcome = 'accepted' THEN
    RETURN v;
  END IF;
  PERFORM postrider.claim(t, 1, 1, '{transactional}', ARRAY[provider], ARRAY[provider], 10, 60000, NULL, NULL);
  IF state <> 'sending' THEN
    PERFORM postrider.settle(ARRAY[v], ARRAY[t], ARRAY[state], '{3600000}', ARRAY[NULL::text], '{1}', '{1}', ARRAY[doubts], ARRAY[vendor_id],
      CASE WHEN state <> 'sent' THEN '{why}'::text[] ELSE '{NULL}' END, ARRAY[outcome], '{complete}', '{c}', '{d}', '{1000}', ARRAY[t], NULL, ARRAY[parts]);
  END IF;
  RETURN v;
END
$$;
-- One callback with one receipt in it.
CREATE FUNCTION pg_temp.receipt(ref uuid, status text, vendor_id text DEFAULT NULL, provider text DEFAULT 'main', code text DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
  SELECT postrider.receipts_store(ARRAY[provider], '{POST}', '{a=b}', ARRAY['\x00ff'::bytea], '{1}', ARRAY[ref::text], ARRAY[vendor_id],
    ARRAY[status], ARRAY[code], '{NULL}', '{0}', '{}', '{}', '{}', '{}', '{}')
$$;
-- Applies what is due; returns what the worker is told, without the count of looks.
CREATE FUNCTION pg_temp.apply() RETURNS SETOF text LANGUAGE sql AS $$
  SELECT concat_ws(' ', what, token, provider, status, vendor_id, code, 'x' || n) FROM postrider.receipts_apply(500)
   WHERE what <> 'picked' ORDER BY 1
$$;
CREATE FUNCTION pg_temp.row(id uuid) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', m.state, m.receipt, m.vendor_id, m.reason) FROM postrider.message AS m WHERE m.id = $1
$$;
CREATE FUNCTION pg_temp.results(id uuid) RETURNS text[] LANGUAGE sql AS $$
  SELECT array_agg(coalesce(r.result, 'waits ' || r.tries) ORDER BY r.id) FROM postrider.receipt_event AS r WHERE r.message_id = $1
$$;
CREATE FUNCTION pg_temp.later() RETURNS void LANGUAGE sql AS $$
  UPDATE postrider.receipt_event SET due = clock_timestamp() WHERE due IS NOT NULL
$$;

-- The common case -----------------------------------------------------------------------------------

SELECT pg_temp.message(1, 'sent', vendor_id => 'SM1') AS m \gset
SELECT pg_temp.receipt(:'m', 'in_transit', 'SM1');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main in_transit x1'], 'a first receipt raises the message');
SELECT is(pg_temp.row(:'m'), 'sent in_transit SM1', 'and the state stays: handed to the vendor');
SELECT pg_temp.receipt(:'m', 'delivered', 'SM1', code => '000');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'delivered');
SELECT pg_temp.receipt(:'m', 'in_transit', 'SM1');
SELECT pg_temp.receipt(:'m', 'undelivered', 'SM1', code => '9');
SELECT is_empty('SELECT pg_temp.apply()', 'R6, D4: what comes after it changes nothing');
SELECT is(pg_temp.row(:'m'), 'sent delivered SM1', 'R6: delivered does not go back');
SELECT is(pg_temp.results(:'m'), '{applied,applied,no news,no news}', 'R7: all four are kept');
SELECT is((SELECT count(*)::int FROM postrider.callback), 4, 'and so are the calls');
SELECT is((SELECT DISTINCT (provider, method, query, body)::text FROM postrider.callback), '(main,POST,a=b,"\\x00ff")', 'as they came');

SELECT pg_temp.message(2, 'sent') AS m \gset
SELECT pg_temp.receipt(:'m', 'undelivered', 'SM2', code => '30003');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main undelivered x1'], 'undelivered');
SELECT is(pg_temp.row(:'m'), 'sent undelivered SM2', 'the vendor''s id of a receipt fills one that is missing');
SELECT pg_temp.receipt(:'m', 'expired', 'SMx');
SELECT is_empty('SELECT pg_temp.apply()', 'a final one is not changed by another');
SELECT is(pg_temp.row(:'m'), 'sent undelivered SM2', 'nor is the id');
SELECT pg_temp.receipt(:'m', 'delivered', 'SM2');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'except by delivered: a handset confirmed it');
SELECT pg_temp.message(3, 'sent', vendor_id => 'SM3') AS m \gset
SELECT pg_temp.receipt(:'m', 'rejected', code => '30007');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main undelivered x1'], 'a later refusal is undelivered');
SELECT results_eq(format('SELECT status, code, result FROM postrider.receipts WHERE message_id = %L', :'m'), $$VALUES ('rejected', '30007', 'applied')$$,
  'its code stays');

-- Several in one call, of one message too, out of order.
SELECT pg_temp.message(4, 'sent', vendor_id => 'SM4') AS m \gset
SELECT pg_temp.message(5, 'sent', vendor_id => 'SM5') AS n \gset
SELECT postrider.receipts_store('{main,main}', '{POST,GET}', ARRAY['', ''], ARRAY['', '']::bytea[],
  '{1,1,2,2}', ARRAY[:'m', :'n', :'m', :'n'], '{NULL,NULL,NULL,NULL}', '{delivered,in_transit,in_transit,expired}', '{NULL,NULL,NULL,NULL}', '{NULL,NULL,NULL,NULL}',
  '{1767323045123,0,-5,99999999999999999}', '{}', '{}', '{}', '{}', '{}');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1', 'raised main expired x1'], 'each message takes the best of its own');
SELECT is(pg_temp.results(:'m'), '{applied,no news}', 'the other one was late');
SELECT is(pg_temp.results(:'n'), '{no news,applied}', 'or early');
SELECT results_eq(format('SELECT vendor_at FROM postrider.receipts WHERE message_id = %L ORDER BY at, status', :'m'),
  ARRAY['2026-01-02 03:04:05.123Z'::timestamptz, NULL], 'R7: the vendor''s own time is kept where it makes sense');
SELECT pg_temp.message(6, 'sent', vendor_id => 'SM6') AS m \gset
SELECT count(pg_temp.receipt(:'m', 'delivered', 'SM6')) FROM generate_series(1, 100);
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'R9, D3: a hundred of the same are one change');

-- Found by the vendor's id ----------------------------------------------------------------------------

SELECT pg_temp.message(10, 'sent', vendor_id => 'SM10') AS m \gset
SELECT pg_temp.receipt(NULL, 'delivered', 'SM10');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'by the vendor''s id alone');
SELECT pg_temp.message(11, 'sent', vendor_id => 'SM11') AS m \gset
SELECT pg_temp.receipt(NULL, 'delivered', 'SM11', 'second');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised second delivered x1'], 'R1: through another account with the same vendor');
SELECT pg_temp.message(12, 'sent', vendor_id => 'SM12') AS m \gset
SELECT pg_temp.receipt(NULL, 'delivered', 'SM12', 'other');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['parked other x1'], 'but another vendor''s id is another id');
SELECT pg_temp.message(13, 'sent', vendor_id => '13', provider => 'generic') AS m \gset
SELECT pg_temp.receipt(NULL, 'delivered', '13', 'generic2');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['parked generic2 x1'], 'the generic plugin tells nothing about who is behind it');
SELECT pg_temp.receipt('00000000-0000-7000-8000-00000000dead', 'delivered', '13', 'generic');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised generic delivered x1'], 'an echo that is nobody''s falls back to the vendor''s id');

-- Parts (R4) --------------------------------------------------------------------------------------------

SELECT pg_temp.message(20, 'sent', vendor_id => 'a', parts => E'a\nb\nc') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered', 'a');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main in_transit x1'], 'one of three: on its way');
SELECT pg_temp.receipt(:'m', 'delivered', 'a');
SELECT pg_temp.receipt(:'m', 'delivered', 'b');
SELECT is_empty('SELECT pg_temp.apply()', 'a repeat is not another part; two of three: still on its way');
SELECT is(pg_temp.row(:'m'), 'sent in_transit a', 'R4: D, D, none');
SELECT pg_temp.receipt(NULL, 'undelivered', 'c', code => '30008');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main undelivered x1'], 'R4: D, D, F');
SELECT is(pg_temp.row(:'m'), 'sent undelivered a 2 of 3 parts arrived', 'R4: undelivered, 2 of 3 parts arrived');
SELECT set_eq(format('SELECT part, status, code FROM postrider.receipts WHERE message_id = %L', :'m'),
  $$VALUES ('1 of 3', 'delivered', NULL), ('2 of 3', 'delivered', NULL), ('3 of 3', 'undelivered', '30008')$$, 'each part by name');
SELECT pg_temp.receipt(:'m', 'delivered', 'c');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'the lost part arrived after all');
SELECT is(pg_temp.row(:'m'), 'sent delivered a', 'and nothing is missing any more');
SELECT pg_temp.message(21, 'sent', vendor_id => 'a1', parts => E'a1\nb1\nc1') AS m \gset
SELECT pg_temp.receipt(:'m', 'expired', 'b1');
SELECT pg_temp.apply();
SELECT is(pg_temp.row(:'m'), 'sent expired a1 0 of 3 parts arrived', 'one part lost is enough');
SELECT pg_temp.receipt(:'m', 'delivered', 'a1');
SELECT pg_temp.receipt(:'m', 'delivered', 'c1');
SELECT pg_temp.apply();
SELECT is(pg_temp.row(:'m'), 'sent expired a1 2 of 3 parts arrived', 'R4: F first, D and D later: the count goes on');
SELECT pg_temp.message(22, 'sent', vendor_id => 'a2', parts => E'a2\nb2') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered', 'b2');
SELECT pg_temp.receipt(:'m', 'delivered', 'a2');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'all parts in one look');
SELECT pg_temp.message(23, 'sent', vendor_id => 'a3', parts => E'a3\nb3') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'one that names no part speaks of the whole');

-- Before the answer (R3, D1) -------------------------------------------------------------------------------

SELECT pg_temp.message(30, 'sending') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered', 'SM30');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['parked main x1'], 'R3: an early one waits');
SELECT is(pg_temp.row(:'m'), 'sending none', 'and changes nothing');
SELECT ok(due BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 second', 'for a second') FROM postrider.receipt_event WHERE message_id = :'m';
SELECT is_empty('SELECT * FROM postrider.receipts_apply(10)', 'nobody else sees it meanwhile');
SELECT pg_temp.later();
SELECT is_empty('SELECT pg_temp.apply()', 'it goes on waiting, and is counted once');
SELECT is(pg_temp.results(:'m'), '{"waits 2"}', 'a little longer each time');
SELECT postrider.settle_sent(ARRAY[:'m']::uuid[], '{30}', '{SM30}', '{30}');
SELECT pg_temp.later();
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main delivered x1'], 'R3: applied when the answer is stored');
SELECT is(postrider.receipt_pause(0, '5 min'), '1 second'::interval, 'first pause');
SELECT is(postrider.receipt_pause(3, '5 min'), '8 seconds'::interval, 'doubled');
SELECT is(postrider.receipt_pause(1000, '5 min'), '5 minutes'::interval, 'to its cap');

-- A newer attempt is in the air, an older one is in doubt: the receipt speaks for that one.
SELECT pg_temp.message(31, 'pending', 1, 'unknown') AS m \gset
UPDATE postrider.message SET due = clock_timestamp() WHERE id = :'m';
SELECT postrider.claim(32, 1, 1, '{transactional}', '{main}', '{main}', 10, 60000, NULL, NULL);
SELECT pg_temp.receipt(:'m', 'in_transit', 'SM31');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['news 31 main in_transit SM31 x1'], 'news for the attempt in doubt, not for the one in the air');
SELECT postrider.late_write(:'m', 32, 'sending', 1, 'sending', 0, 0, true, 'SM31', 'accepted late', 31, 'accepted', 'receipt', NULL, NULL);
SELECT pg_temp.later();
SELECT is_empty('SELECT pg_temp.apply()', 'once it is taken up, it waits for the one in the air');

-- What we do not know, the vendor does (U6, D6) ------------------------------------------------------------

SELECT pg_temp.message(40, 'unknown', 1, 'unknown') AS m \gset
SELECT pg_temp.receipt(:'m', 'in_transit', code => '0');
SELECT pg_temp.receipt(:'m', 'undelivered', 'SM40', code => '1');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['news 40 main undelivered SM40 1 x1'], 'U6: news, once a message, with the vendor''s id');
SELECT is(pg_temp.results(:'m'), '{"waits 1","waits 1"}', 'both wait until the message is sent');
SELECT postrider.late_write(:'m', 40, 'unknown', 1, 'sent', 0, 0, false, 'SM40', NULL, 40, 'accepted', 'receipt', '1', NULL);
SELECT pg_temp.later();
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised main undelivered x1'], 'then its rank counts');
SELECT pg_temp.message(41, 'pending', 1, 'unknown') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['news 41 main delivered x1'], 'a planned resend');
DELETE FROM postrider.receipt_event WHERE due IS NOT NULL;
SELECT pg_temp.message(42, 'failed', 0, 'rejected') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['news 42 main delivered x1'], 'D6: delivered beats what the answer said');
SELECT pg_temp.receipt(:'m', 'rejected');
DELETE FROM postrider.receipt_event WHERE status = 'delivered' AND message_id = :'m';
SELECT is_empty('SELECT pg_temp.apply()', 'a refusal of what was refused');
SELECT is(pg_temp.results(:'m'), '{confirmed}', 'confirms it');
SELECT pg_temp.message(43, 'pending') AS m \gset
SELECT pg_temp.receipt(:'m', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['parked main x1'], 'a message that was never called is not the vendor''s');
SELECT is(pg_temp.row(:'m'), 'pending none', 'nothing changed');
UPDATE postrider.receipt_event SET at = at - interval '25 hours', due = clock_timestamp() WHERE message_id = :'m';
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['given up main x1'], 'and after a day nobody waits any more');
-- Two doubts at two vendors: each vendor speaks of its own.
SELECT pg_temp.message(44, 'unknown', 1, 'unknown') AS m \gset
INSERT INTO postrider.attempt (message_id, token, outcome, provider, phase, started_at, ended_at)
VALUES (:'m', 45, 'unknown', 'other', 'sent', now(), now());
SELECT pg_temp.receipt(:'m', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['news 44 main delivered x1'], 'the attempt at the vendor that reports');
DELETE FROM postrider.receipt_event WHERE due IS NOT NULL;

-- Another vendor than the one that has the message now.
SELECT pg_temp.message(46, 'sent', vendor_id => 'SM46') AS m \gset
SELECT pg_temp.receipt(:'m', 'undelivered', 'v', 'other');
SELECT is_empty('SELECT pg_temp.apply()', 'another vendor''s failure is not this one''s');
SELECT is(pg_temp.results(:'m'), '{other vendor}', 'and is kept');
SELECT pg_temp.receipt(:'m', 'delivered', 'v', 'other');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['raised other delivered x1'], 'but delivered is delivered');

-- Nobody's (D5, R9) -------------------------------------------------------------------------------------------

SELECT pg_temp.receipt('00000000-0000-7000-8000-000000000001', 'delivered');
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['parked main x1'], 'D5: kept');
UPDATE postrider.receipt_event SET tries = 12, due = clock_timestamp() WHERE ref = '00000000-0000-7000-8000-000000000001';
SELECT is_empty('SELECT pg_temp.apply()', 'for a day');
SELECT ok(due > clock_timestamp() + interval '1 hour', 'looked at ever more rarely') FROM postrider.receipt_event WHERE ref = '00000000-0000-7000-8000-000000000001';
UPDATE postrider.receipt_event SET at = at - interval '25 hours', due = clock_timestamp() WHERE ref = '00000000-0000-7000-8000-000000000001';
SELECT results_eq('SELECT pg_temp.apply()', ARRAY['unmatched main x1'], 'D5: then counted');
SELECT is_empty('SELECT * FROM postrider.receipts_apply(10)', 'and nothing is due');

-- Limits of a look.
SELECT pg_temp.message(50 + i, 'sent') FROM generate_series(0, 4) AS i;
SELECT pg_temp.receipt(id, 'delivered') FROM postrider.message WHERE token BETWEEN 50 AND 54;
SELECT results_eq('SELECT what, n FROM postrider.receipts_apply(3)', $$VALUES ('raised', 3::bigint), ('picked', 3)$$, 'three at a time');
SELECT results_eq('SELECT what, n FROM postrider.receipts_apply(3)', $$VALUES ('raised', 2::bigint), ('picked', 2)$$, 'and the rest');
SELECT is(receipt, 'delivered') FROM postrider.messages WHERE id IN (SELECT id FROM postrider.message WHERE token = 54);

-- People ---------------------------------------------------------------------------------------------------

SELECT is(postrider.word_key(said), word, format('"%s" is heard as "%s"', said, word)) FROM (VALUES
  ('STOP', 'stop'), (E' Stop.\r\n', 'stop'), ('"stop"', 'stop'), (U&'\00A0stop\FEFF', 'stop'), ('ＳＴＯＰ', 'stop'), ('stop  all', 'stop all'),
  ('СТОП', 'стоп'), ('İPTAL', 'iptal'), ('IPTAL', 'iptal'), ('ıptal', 'iptal'), ('Toʻxtat', 'to''xtat'), ('to`xtat', 'to''xtat'), ('TO’XTAT!', 'to''xtat'),
  ('ТЎХТАТ', 'тўхтат'), ('ТЎХТАТ', 'тўхтат'), ('HỦY', 'hủy'), (U&'HU\0309Y', 'hủy'), ('ARRÊT', 'arrêt'), ('don''t stop', 'don''t stop'), ('‘Stop’', 'stop')) AS t(said, word);
SELECT ok(count(*) > 60 AND bool_and(key = postrider.word_key(word)), 'words of many languages') FROM postrider.stop_word;

CREATE FUNCTION pg_temp.says(sender text, said text, id text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT postrider.receipts_store('{main}', '{POST}', ARRAY[''], ARRAY[''::bytea], '{}', '{}', '{}', '{}', '{}', '{}', '{}',
    '{1}', ARRAY[sender], '{1234}', ARRAY[said], ARRAY[id])
$$;
CREATE FUNCTION pg_temp.listed(number text) RETURNS text[] LANGUAGE sql AS $$
  SELECT coalesce(array_agg(concat_ws(' ', s.class, s.source, s.reason) ORDER BY s.class), '{}') FROM postrider.suppression AS s WHERE s.recipient = $1
$$;
SELECT pg_temp.says('998901112233', said) FROM unnest(ARRAY['please stop', 'Stop it', 'hello', '', 'stopp']) AS t(said) WHERE said <> 'stopp';
SELECT is(pg_temp.listed('+998901112233'), '{}', 'a word within a message is no wish');
SELECT pg_temp.says('998901112233', ' тўхтат! ');
SELECT is(pg_temp.listed('+998901112233'), '{"marketing inbound  тўхтат! "}', 'alone it is');
SELECT pg_temp.says('+998901112233', 'STOPALL');
SELECT is(cardinality(pg_temp.listed('+998901112233')), 2, 'all is more than marketing');
SELECT pg_temp.says('+998901112233', 'start');
SELECT is(pg_temp.listed('+998901112233'), '{}', 'START lifts both');
SELECT is(postrider.suppress('+998901112233', 'all', 'operator', 'asked by letter'), true, 'by hand');
SELECT is(postrider.suppress('998901112233', 'all', 'vendor', '30005'), false, 'the first reason stays');
SELECT pg_temp.says('+998901112233', 'START');
SELECT is(pg_temp.listed('+998901112233'), '{all operator asked by letter}', 'what was put there by hand is not lifted by a word');
SELECT is(postrider.unsuppress('+998901112233'), 1, 'but by hand');
SELECT pg_temp.says('+998901112244', 'Stop', 'in-1');
SELECT pg_temp.says('+998901112244', 'Start', 'in-2');
SELECT pg_temp.says('+998901112244', 'Stop', 'in-1');
SELECT is(pg_temp.listed('+998901112244'), '{}', 'a repeated call is not said again');
SELECT lives_ok($$SELECT pg_temp.says('INFO', 'STOP')$$, 'nobody who could be sent to');
SELECT results_eq($$SELECT sender, recipient, body, word FROM postrider.inbound WHERE vendor_id IS NOT NULL ORDER BY id$$,
  $$VALUES ('+998901112244', '1234', 'Stop', 'marketing'), ('+998901112244', '1234', 'Start', 'start')$$, 'what people sent is kept');
INSERT INTO postrider.stop_word (word, language, class) VALUES ('Yetar', 'uz', 'all');
SELECT pg_temp.says('+998901112255', 'YETAR');
SELECT is(pg_temp.listed('+998901112255'), '{all inbound YETAR}', 'words are the operator''s');

-- Who may do what ------------------------------------------------------------------------------------------

GRANT ALL ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC; -- pgTAP itself; rolled back
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
SELECT pg_temp.message(90, 'sent', vendor_id => 'p1', parts => E'p1\np2');
SELECT is(pg_temp.as_role(role, sql), want, role || ': ' || left(sql, 60)) FROM (VALUES
  ('postrider_worker', $$SELECT postrider.receipts_store('{main}', '{POST}', ARRAY['k=v'], ARRAY[''::bytea], '{1}', '{NULL}', '{p2}', '{delivered}', '{NULL}', '{NULL}', '{0}',
     '{1,1}', '{998901112266,998901112266}', '{NULL,NULL}', '{STOP,START}', '{NULL,NULL}')$$, 'done'),
  ('postrider_worker', 'SELECT * FROM postrider.receipts_apply(500)', 'done'),
  ('postrider_worker', 'SELECT postrider.suppress(''+998901112277'', ''all'', ''vendor'', ''main'')', 'done'),
  ('postrider_worker', 'DELETE FROM postrider.receipt_event', '42501'),
  ('postrider_worker', 'UPDATE postrider.callback SET body = ''x''', '42501'),
  ('postrider_worker', 'UPDATE postrider.stop_word SET class = ''all''', '42501'),
  ('postrider_ops', 'UPDATE postrider.stop_word SET class = ''all'' WHERE word = ''STOP''', 'done'),
  ('postrider_ops', 'SELECT postrider.unsuppress(''+998901112277'')', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.receipts', 'done'),
  ('postrider_viewer', 'SELECT * FROM postrider.receipt_event', '42501'),
  ('postrider_viewer', 'SELECT * FROM postrider.callback', '42501'),
  ('postrider_viewer', 'SELECT * FROM postrider.inbound', '42501'),
  ('postrider_viewer', 'SELECT * FROM postrider.suppression', '42501'),
  ('postrider_producer', 'SELECT * FROM postrider.receipts', '42501'),
  ('postrider_producer', 'SELECT postrider.suppress(''+998901112277'', ''all'', ''x'')', '42501')
) AS t(role, sql, want);
SELECT is((SELECT v.receipt::text FROM postrider.vendor_ref AS v WHERE v.vendor_id = 'p2'), 'delivered', 'the worker''s role was enough to apply it');
SELECT is(pg_temp.listed('+998901112266'), '{}', 'and to follow words');

-- Nothing of this may break the counts.
SELECT is_empty($$
  SELECT kind, state, c.count, m.count
    FROM postrider.counts AS c FULL JOIN (SELECT kind, state, count(*) FROM postrider.message GROUP BY kind, state) AS m
         USING (kind, state)
   WHERE c.count IS DISTINCT FROM m.count$$, 'counts are exact');
SELECT * FROM finish();
ROLLBACK;
