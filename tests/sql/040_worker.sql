-- The way of a message: claim, settle, release, sweep, expire. Every fence is tried with the wrong
-- token, a second time, and on a row that moved. Cases D22, D28, J2, J3, J4, J19, J24, J75, B19, R11.
SET client_min_messages = warning;
BEGIN;
SET LOCAL search_path = public, pg_catalog;
SELECT plan(111);

CREATE FUNCTION pg_temp.wrong_counts() RETURNS TABLE (kind text, state postrider.state, counted bigint, is bigint)
LANGUAGE sql AS $$
  SELECT kind, state, c.count, m.count
    FROM postrider.counts AS c FULL JOIN (SELECT kind, state, count(*) FROM postrider.message GROUP BY kind, state) AS m
         USING (kind, state)
   WHERE c.count IS DISTINCT FROM m.count
$$;
-- Claims up to n of the lane for one provider, "main"; how many are to be sent.
CREATE FUNCTION pg_temp.claim(token bigint, n int DEFAULT 100, lane int DEFAULT 2, kinds text[] DEFAULT '{campaign}',
                              open text[] DEFAULT '{main}') RETURNS int LANGUAGE sql AS $$
  SELECT count(*)::int FROM postrider.claim(token, 1, lane, kinds, array_fill('main'::text, ARRAY[cardinality(kinds)]), open, n, 60000, NULL, NULL)
   WHERE kind IS NOT NULL
$$;
-- Settles one row; the number of positions that no longer matched.
CREATE FUNCTION pg_temp.settle(id uuid, token bigint, state text, attempts int, doubts int, outcome text,
    called int DEFAULT 1, delay bigint DEFAULT 0, vendor_id text DEFAULT NULL, age bigint DEFAULT 1000, done bigint[] DEFAULT '{}',
    reason text DEFAULT NULL, due text DEFAULT NULL)
RETURNS int LANGUAGE sql AS $$
  SELECT count(*)::int FROM postrider.settle(ARRAY[id], ARRAY[token], ARRAY[state], ARRAY[delay], ARRAY[due], ARRAY[attempts], ARRAY[called],
    ARRAY[doubts], ARRAY[vendor_id], ARRAY[reason], ARRAY[outcome], ARRAY['complete'], ARRAY['c'], ARRAY['d'], ARRAY[age], done)
$$;
CREATE FUNCTION pg_temp.row(id uuid) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', m.state, 't' || m.token, 'a' || m.attempts, 'c' || m.calls, 'd' || m.doubts, m.vendor_id, m.reason) FROM postrider.message AS m WHERE m.id = $1
$$;
CREATE FUNCTION pg_temp.at(i int) RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT m.id FROM postrider.message AS m WHERE m.recipient = '+99890000000' || i
$$;

SELECT results_eq('SELECT count(DISTINCT t)::int, count(*)::int FROM postrider.tokens(50) AS t', $$VALUES (50, 50)$$, 'tokens are new');
SELECT cmp_ok((SELECT min(t) FROM postrider.tokens(1) AS t), '>', 50::bigint, 'and never come again');

-- claim -----------------------------------------------------------------------------------------

INSERT INTO postrider.message (kind, recipient, body, due)
SELECT 'campaign', '+99890000000' || i, 'b' || i, now() - make_interval(secs => 100 - i) FROM generate_series(0, 9) AS i;
SELECT is(pg_temp.claim(101, 0), 0, 'nothing is wanted, nothing is taken');
SELECT is(pg_temp.claim(101, 4), 4, 'four are wanted');
SELECT results_eq($$SELECT recipient FROM postrider.message WHERE token = 101 ORDER BY 1$$,
  $$SELECT '+99890000000' || i FROM generate_series(0, 3) AS i$$, 'the longest due first');
SELECT is(pg_temp.row(pg_temp.at(0)), 'sending t101 a1 c0 d0', 'J19: sending, counted in the claim itself');
SELECT results_eq('SELECT worker, lane::int, cardinality(ids), lease_until - claimed_at FROM postrider.claim WHERE token = 101',
  $$VALUES (1::bigint, 2, 4, interval '60 s')$$, 'one lease for the batch');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after a claim');
SELECT is(pg_temp.claim(102, 100, 1), 0, 'another lane has nothing');
SELECT is_empty('SELECT 1 FROM postrider.claim WHERE token = 102', 'and an empty claim leaves no lease');
SELECT is(pg_temp.claim(103, 100, 2, '{otp}'), 0, 'another kind is not taken');
SELECT results_eq($$SELECT kind, attempts, id = pg_temp.at(9) FROM postrider.claim(104, 1, 2, '{campaign}', '{main}', '{main}', 100, 60000, NULL, NULL) WHERE kind IS NULL$$,
  $$VALUES (NULL::text, 6, true)$$, 'the last row tells how many were picked and where to go on');
SELECT is(pg_temp.claim(105), 0, 'D17: nothing twice');

-- settle_sent -----------------------------------------------------------------------------------

SELECT results_eq($$SELECT n FROM postrider.settle_sent(ARRAY[pg_temp.at(0), pg_temp.at(1), pg_temp.at(4)], ARRAY[101, 999, 104]::bigint[], ARRAY['v0', 'v1', 'v4'], '{}')$$,
  ARRAY[1], 'J24: a wrong token changes nothing and is named by its position');
SELECT is(pg_temp.row(pg_temp.at(0)), 'sent t101 a1 c1 d0 v0', 'sent with the vendor''s id');
SELECT is(pg_temp.row(pg_temp.at(1)), 'sending t101 a1 c0 d0', 'the row of another claim is untouched');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after sent');
SELECT results_eq($$SELECT n FROM postrider.settle_sent(ARRAY[pg_temp.at(0), pg_temp.at(4)], ARRAY[101, 104]::bigint[], ARRAY['other', 'other'], '{}')$$,
  ARRAY[0, 1], 'J4: a replay matches nothing');
SELECT is(pg_temp.row(pg_temp.at(0)), 'sent t101 a1 c1 d0 v0', 'and changes nothing');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after the replay');

-- settle ----------------------------------------------------------------------------------------

SELECT is(pg_temp.settle(pg_temp.at(1), 101, 'failed', 1, 0, 'rejected', reason => 'rejected'), 0, 'rejected');
SELECT is(pg_temp.row(pg_temp.at(1)), 'failed t101 a1 c1 d0 rejected', 'failed, with a reason');
SELECT results_eq($$SELECT outcome::text, provider, phase, code, detail, ended_at - started_at FROM postrider.attempt WHERE message_id = pg_temp.at(1)$$,
  $$VALUES ('rejected', 'main', 'complete', 'c', 'd', interval '1 s')$$, 'L9: the attempt is on record');
SELECT is(pg_temp.settle(pg_temp.at(1), 101, 'pending', 0, 0, 'throttled'), 1, 'a replay, even another one, matches nothing');
SELECT is(pg_temp.settle(pg_temp.at(2), 7, 'failed', 1, 0, 'rejected'), 1, 'a wrong token matches nothing');
SELECT is(pg_temp.row(pg_temp.at(2)), 'sending t101 a1 c0 d0', 'and changes nothing');
SELECT is(pg_temp.settle(pg_temp.at(2), 101, 'pending', 0, 0, 'throttled', delay => 5000), 0, 'throttled');
SELECT results_eq($$SELECT pg_temp.row(pg_temp.at(2)), due - changed_at FROM postrider.message WHERE id = pg_temp.at(2)$$,
  $$VALUES ('pending t101 a0 c1 d0', interval '5 s')$$, 'R8: the attempt comes back, the request stays counted');
SELECT is(pg_temp.settle(pg_temp.at(3), 101, 'pending', 0, 0, NULL, called => 0, due => '2026-01-02 03:04:05Z'), 0, 'never tried');
SELECT results_eq($$SELECT pg_temp.row(id), due FROM postrider.message WHERE id = pg_temp.at(3)$$,
  $$VALUES ('pending t101 a0 c0 d0', '2026-01-02 03:04:05Z'::timestamptz)$$, 'J75: attempt and due time are restored');
SELECT is_empty($$SELECT 1 FROM postrider.attempt WHERE message_id = pg_temp.at(3)$$, 'and nothing is on record');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after those');

-- Doubts.
SELECT is(pg_temp.settle(pg_temp.at(5), 104, 'pending', 1, 1, 'unknown', age => 30000), 0, 'unknown, to be sent again');
SELECT results_eq($$SELECT doubts::int, changed_at - doubt_since FROM postrider.message WHERE id = pg_temp.at(5)$$,
  $$VALUES (1, interval '30 s')$$, 'the doubt counts from the start of its attempt');
SELECT doubt_since AS first_doubt FROM postrider.message WHERE id = pg_temp.at(5) \gset
UPDATE postrider.message SET due = now() WHERE id = pg_temp.at(2);
SELECT is(pg_temp.claim(110, 100, 2, '{campaign}', '{backup}'), 2, 'a doubtful row waits while its vendor is not open (and two others go)');
SELECT is(pg_temp.row(pg_temp.at(5)), 'pending t104 a1 c1 d1', 'P: pinned');
SELECT results_eq($$SELECT provider, attempts, calls, doubts, doubt_age_ms >= 30000, life_ms > 0
    FROM postrider.claim(111, 1, 2, '{campaign}', '{backup}', '{main}', 100, 60000, NULL, NULL) WHERE kind IS NOT NULL$$,
  $$VALUES ('main', 2, 1, 1, true, true)$$, 'and goes to its own vendor, whatever the route says now');
SELECT is(pg_temp.settle(pg_temp.at(5), 111, 'unknown', 2, 2, 'unknown', age => 10), 0, 'unknown again');
SELECT is(doubt_since, :'first_doubt'::timestamptz, 'the key window still counts from the first doubt')
  FROM postrider.message WHERE id = pg_temp.at(5);
SELECT is(pg_temp.settle(pg_temp.at(6), 104, 'sent', 1, 0, 'accepted', vendor_id => 'v6'), 0, 'an end without doubt');
SELECT is(doubt_since, NULL::timestamptz, 'has no doubt''s time') FROM postrider.message WHERE id = pg_temp.at(6);
SELECT is(count(*)::int, 2, 'one record an attempt') FROM postrider.attempt WHERE message_id = pg_temp.at(5);

-- Leases ----------------------------------------------------------------------------------------

SELECT is(pg_temp.settle(pg_temp.at(7), 104, 'unknown', 1, 1, 'unknown', done => '{104}'), 0, 'the worker believes its claim is done');
SELECT is(count(*)::int, 1, 'but rows are still sending under it: the lease stays') FROM postrider.claim WHERE token = 104;
SELECT is((SELECT n FROM postrider.sweep_look() WHERE token = 104), 6, 'the sweeper sees it');
SELECT results_eq($$SELECT id, attempts, doubts FROM postrider.sweep_rows(104)$$,
  $$VALUES (pg_temp.at(8), 1, 0), (pg_temp.at(9), 1, 0)$$, 'and what is left under it');
SELECT is(count(*)::int, 1, 'and leaves the lease to the last settle') FROM postrider.claim WHERE token = 104;
-- B19: sweeper and old worker both judge the last rows; whoever comes first wins.
SELECT is(pg_temp.settle(pg_temp.at(8), 104, 'unknown', 1, 1, 'unknown', called => 0), 0, 'B19: the sweeper first');
SELECT results_eq($$SELECT n FROM postrider.settle_sent(ARRAY[pg_temp.at(8)], '{104}', '{v8}', '{}')$$, ARRAY[0], 'the old worker''s answer is late news');
SELECT is(pg_temp.row(pg_temp.at(8)), 'unknown t104 a1 c0 d1', 'and did not overwrite');
SELECT is_empty($$SELECT n FROM postrider.settle_sent(ARRAY[pg_temp.at(9)], '{104}', '{v9}', '{104}')$$, 'B19: the old worker first');
SELECT is(pg_temp.settle(pg_temp.at(9), 104, 'unknown', 1, 1, 'unknown', called => 0), 1, 'J3: the sweeper''s judgement matches nothing');
SELECT is(pg_temp.row(pg_temp.at(9)), 'sent t104 a1 c1 d0 v9', 'sent stays sent');
SELECT is_empty($$SELECT 1 FROM postrider.claim WHERE token = 104$$, 'the lease went with the last settle');
SELECT is_empty($$SELECT * FROM postrider.sweep_rows(104)$$, 'nothing to sweep');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- release (R11) ---------------------------------------------------------------------------------

SELECT is(postrider.release(110, 60000), 2, 'a claim whose answer was lost comes back');
SELECT results_eq($$SELECT pg_temp.row(pg_temp.at(2)), pg_temp.row(pg_temp.at(3))$$,
  $$VALUES ('pending t110 a0 c1 d0', 'pending t110 a0 c0 d0')$$, 'with its attempts');
SELECT is(postrider.release(110, 60000), 0, 'a second time changes nothing');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after a release');
SELECT is(postrider.release(120, 60000), 0, 'R11: a claim that did not commit: nothing to give back');
SELECT throws_ok('SELECT pg_temp.claim(120)', '23505', NULL, 'and it can never commit: its tombstone is in the way');
SELECT is(pg_temp.row(pg_temp.at(2)), 'pending t110 a0 c1 d0', 'the messages wait untouched');
SELECT is_empty('SELECT * FROM postrider.sweep_rows(120)', 'a sweep of the tombstone finds no message');
SELECT is_empty('SELECT 1 FROM postrider.claim WHERE token = 120', 'and takes it away');

-- Late news while a newer attempt is in the air meets what that attempt's worker stores. --------

SELECT is(pg_temp.claim(130, 1), 1, 'one message is claimed');
SELECT id AS m FROM postrider.message WHERE token = 130 \gset
SELECT is(pg_temp.settle(:'m', 130, 'pending', 1, 1, 'unknown'), 0, 'its first attempt is in doubt');
SELECT is(pg_temp.claim(131, 1, 2, '{campaign}'), 1, 'the other one goes first');
SELECT postrider.release(131, 0);
UPDATE postrider.message SET due = now() - interval '1 day' WHERE id = :'m';
SELECT is(pg_temp.claim(132, 1), 1, 'a second attempt starts');
SELECT is(postrider.late_write(:'m', 132, 'sending', 1, 'sending', 0, 0, false, NULL, 'doubt cleared', 130, 'refused', 'complete', NULL, NULL), true,
  'the first turns out not taken');
SELECT is(pg_temp.settle(:'m', 132, 'unknown', 2, 1, 'rejected', reason => 'rejected'), 0, 'the second is rejected; its worker still counts the doubt');
SELECT is(pg_temp.row(:'m'), 'failed t132 a2 c' || calls || ' d0 rejected', 'R7: no doubt is left, so it failed') FROM postrider.message WHERE id = :'m';

SELECT is(pg_temp.claim(140, 1), 1, 'another message');
SELECT id AS m FROM postrider.message WHERE token = 140 \gset
SELECT is(pg_temp.settle(:'m', 140, 'pending', 1, 1, 'unknown'), 0, 'in doubt');
SELECT is(pg_temp.claim(141, 1), 1, 'claimed again, but the answer is lost');
SELECT is(postrider.late_write(:'m', 141, 'sending', 1, 'sending', 0, 0, true, 'v1', 'accepted late', 140, 'accepted', 'complete', NULL, NULL), true,
  'the first attempt was accepted after all');
SELECT is(postrider.release(141, 0), 1, 'the lost claim is released');
SELECT is(pg_temp.row(:'m'), 'sent t141 a1 c1 d0 v1 accepted late', 'R7: what was accepted is not queued again');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- expire ----------------------------------------------------------------------------------------

INSERT INTO postrider.message (kind, recipient, body) SELECT 'otp', '+99891000000' || i, 'o' FROM generate_series(0, 3) AS i;
UPDATE postrider.message SET expires_at = clock_timestamp() - interval '1 s' WHERE recipient IN ('+998910000000', '+998910000001');
UPDATE postrider.message SET doubts = 1, provider = 'main' WHERE recipient = '+998910000001';
SELECT is(pg_temp.claim(150, 100, 0, '{otp}'), 2, 'J2, D22: what outlived its use is not sent');
SELECT results_eq($$SELECT state::text, count(*)::int FROM postrider.message WHERE kind = 'otp' GROUP BY state ORDER BY 1$$,
  $$VALUES ('expired', 1), ('sending', 2), ('unknown', 1)$$, 'expired, or unknown where an attempt is in doubt');
SELECT matches(reason, '^expired at 2.*Z, seen at 2.*Z$', 'both times are kept') FROM postrider.message WHERE recipient = '+998910000000';
SELECT postrider.release(150, 0);
UPDATE postrider.message SET expires_at = clock_timestamp() - interval '1 s' WHERE recipient = '+998910000002';
SELECT is(postrider.expire(0), 1, 'expire closes it while no provider is open');
SELECT is(postrider.expire(0), 0, 'once');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact after expiry');

-- A claim's rows that have moved on -------------------------------------------------------------

SELECT postrider.send('+998920000001', 'one', run_at => now()) AS one, postrider.send('+998920000002', 'two') AS two,
       postrider.send('+998920000003', 'three') AS three \gset
SELECT is(pg_temp.claim(160, 100, 1, '{transactional}'), 3, 'three under one claim');
SELECT is(pg_temp.settle(:'one', 160, 'sent', 1, 0, 'accepted', vendor_id => 'v'), 0, 'one is sent');
SELECT is(pg_temp.settle(:'two', 160, 'pending', 0, 0, 'throttled'), 0, 'one comes back');
SELECT is(pg_temp.claim(161, 100, 1, '{transactional}'), 1, 'and is claimed by another');
SELECT results_eq('SELECT id FROM postrider.sweep_rows(160)', ARRAY[:'three'::uuid], 'a sweep of the first claim sees the third only');
SELECT is(postrider.release(160, 60000), 1, 'a release gives back the third only');
SELECT results_eq(format('SELECT pg_temp.row(i) FROM unnest(ARRAY[%L, %L, %L]::uuid[]) AS i', :'one', :'two', :'three'),
  ARRAY['sent t160 a1 c1 d0 v', 'sending t161 a1 c1 d0', 'pending t160 a0 c0 d0'], 'the others stay as they are');

-- Accepted after all, while the next attempt is in the air.
SELECT is(pg_temp.settle(:'two', 161, 'pending', 1, 1, 'unknown'), 0, 'its outcome is not known');
SELECT is(pg_temp.claim(162, 100, 1, '{transactional}'), 2, 'it is sent again');
SELECT is(postrider.late_write(:'two', 162, 'sending', 1, 'sending', 0, 0, true, 'v1', 'accepted late', 161, 'accepted', 'complete', NULL, NULL), true, 'the first was accepted');
SELECT is(pg_temp.settle(:'two', 162, 'pending', 2, 1, 'refused', delay => 1000, reason => 'refused for now'), 0, 'the second refused');
SELECT is(pg_temp.row(:'two'), 'sent t162 a2 c3 d0 v1 accepted late', 'R7: any accepted means sent');
SELECT is(pg_temp.settle(:'three', 162, 'pending', 1, 1, 'unknown'), 0, 'the third''s outcome is not known');
SELECT is(pg_temp.claim(163, 100, 1, '{transactional}'), 1, 'it is sent again');
SELECT is(postrider.late_write(:'three', 163, 'sending', 1, 'sending', 0, 0, true, 'v1', 'accepted late', 162, 'accepted', 'complete', NULL, NULL), true, 'the first was accepted');
SELECT is(pg_temp.settle(:'three', 163, 'sent', 2, 1, 'accepted', vendor_id => 'v2'), 0, 'and so is the second');
SELECT is(pg_temp.row(:'three'), 'sent t163 a2 c2 d0 v1 accepted twice', 'D25: two acceptances are shown');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are exact');

-- fold_counters ---------------------------------------------------------------------------------

SELECT cmp_ok(postrider.fold_counters(), '>', 0, 'changes are added up');
SELECT is_empty('SELECT * FROM pg_temp.wrong_counts()', 'counts are the same');
SELECT is(postrider.fold_counters(), 0, 'nothing is left to add');

-- Cross-vendor resend is opt-in, and never under hold ----------------------------------------------

SELECT postrider.send('+998930000001', 'roam', kind => 'otp') AS m \gset
UPDATE postrider.message SET doubts = 1, provider = 'other' WHERE id = :'m';
SELECT pg_temp.claim(170, 100, 0, '{otp}');
SELECT is(token, 0::bigint, 'D3: a doubted message waits for its own vendor') FROM postrider.message WHERE id = :'m';
UPDATE postrider.kind SET cross_vendor_resend = true WHERE name = 'otp';
SELECT is(pg_temp.claim(171, 100, 0, '{otp}'), 1, 'unless its kind says that late is worse than double');
SELECT is(provider, 'main', 'then it goes to the vendor that is open') FROM postrider.message WHERE id = :'m';
SELECT is(postrider.release(171, 0), 1, 'given back');
UPDATE postrider.message SET provider = 'other' WHERE id = :'m';
UPDATE postrider.kind SET on_unknown = 'hold' WHERE name = 'otp';
SELECT is(pg_temp.claim(172, 100, 0, '{otp}'), 0, 'hold never roams');

SELECT * FROM finish();
ROLLBACK;
