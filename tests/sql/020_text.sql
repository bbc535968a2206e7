-- Segments and numbers in SQL: cases E1 to E14, N1, D12. Expected values are those of cases worked
-- out by hand; agreement with the C core over random texts is tests/e2e/test_text_differential.py.
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
SET LOCAL search_path = public, pg_catalog;

CREATE TEMPORARY TABLE body (name text, body text, segments integer, gsm7 boolean);
INSERT INTO body VALUES
    ('empty', '', 0, true),
    ('E1 an escape pair is not cut', repeat(']', 153), 3, true),
    ('E1 eighty escapes fill one message', repeat(']', 80), 1, true),
    ('E1 eighty-one do not', repeat(']', 81), 2, true),
    ('E2 a brace is one unit in UCS-2', repeat('{', 68) || U&'\+01F600', 1, false),
    ('E2 the euro takes two septets', repeat('a', 159) || U&'\20AC', 2, true),
    ('E2 one less fits', repeat('a', 158) || U&'\20AC', 1, true),
    ('E3 a surrogate pair is not cut', repeat(U&'\0436', 66) || U&'\+01F600' || repeat(U&'\0436', 20), 2, false),
    ('E3 pairs alone', repeat(U&'\+01F600', 36), 2, false),
    ('E3 pairs fill only 66 of 67', repeat(U&'\+01F600', 67), 3, false),
    ('E4 seventy fit', repeat(U&'\0436', 70), 1, false),
    ('E4 seventy-one are two parts', repeat(U&'\0436', 71), 2, false),
    ('E4 135 are three', repeat(U&'\0436', 135), 3, false),
    ('E6 curly apostrophe', U&'Voici votre code de v\00E9rification : 482913. Il expire dans 5 minutes. N\2019y r\00E9pondez pas.', 2, false),
    ('E6 straight apostrophe', U&'Voici votre code de v\00E9rification : 482913. Il expire dans 5 minutes. N''y r\00E9pondez pas.', 1, true),
    ('E8 Uzbek with ''', 'Tasdiqlash kodi: 482913. Uni hech kimga bermang, bu faqat siz uchun mo''ljallangan.', 1, true),
    ('E8 Uzbek with U+02BB', U&'Tasdiqlash kodi: 482913. Uni hech kimga bermang, bu faqat siz uchun mo\02BBljallangan.', 2, false),
    ('E8 Uzbek with a backtick', 'Tasdiqlash kodi: 482913. Uni hech kimga bermang, bu faqat siz uchun mo`ljallangan.', 2, false),
    ('E14 no-break space', repeat('a', 100) || U&'\00A0', 2, false),
    ('E14 em dash', repeat('a', 100) || U&'\2014', 2, false),
    ('E14 bullet', repeat('a', 100) || U&'\2022', 2, false),
    ('E14 small c cedilla', repeat('a', 100) || U&'\00E7', 2, false),
    ('E14 small delta', repeat('a', 100) || U&'\03B4', 2, false),
    ('E14 n tilde stays', repeat('a', 100) || U&'\00F1', 1, true),
    ('E14 capital C cedilla stays', repeat('a', 100) || U&'\00C7', 1, true),
    ('E14 capital delta stays', repeat('a', 100) || U&'\0394', 1, true),
    ('160 fit', repeat('a', 160), 1, true),
    ('161 are two parts', repeat('a', 161), 2, true),
    ('306 are two parts', repeat('a', 306), 2, true),
    ('307 are three', repeat('a', 307), 3, true),
    ('an escape at the border moves on', repeat('a', 152) || '[' || repeat('a', 152), 3, true),
    ('an escape before the border does not', repeat('a', 151) || '[' || repeat('a', 153), 2, true),
    ('70 octets of emoji are one', repeat(U&'\+01F600', 17), 1, false);

CREATE TEMPORARY TABLE number (name text, given text, want text);
INSERT INTO number VALUES
    ('N1 with spaces', '+998 00 000 00 01', '+998000000001'),
    ('N1 with hyphens', '998-00-000-00-01', '+998000000001'),
    ('N1 with brackets', '(998) 000000001', '+998000000001'),
    ('N1 bare, blank and no-break space', U&'998000000001 \00A0', '+998000000001'),
    ('already right', '+447700900001', '+447700900001'),
    ('00 is a plus', '00447700900001', '+447700900001'),
    ('a line end', E'+447700900001\n', '+447700900001'),
    ('other spaces', U&'+44\202F7700\3000900001', '+447700900001'),
    ('direction marks', U&'\202A+447700900001\202C', '+447700900001'),
    ('shortest', '+2901234', '+2901234'),
    ('shortest bare', '29012345', '+29012345'),
    ('longest', '+123456789012345', '+123456789012345'),
    ('longest bare', '123456789012345', '+123456789012345'),
    ('nothing', '', NULL),
    ('a plus alone', '+', NULL),
    ('D12 letters', '+44 7700 CALLME', NULL),
    ('D12 64 digits', repeat('1', 64), NULL),
    ('D12 full-width digits', U&'+\FF19\FF19\FF18901234567', NULL),
    ('D12 full-width plus', U&'\FF0B998901234567', NULL),
    ('Arabic digits', U&'+\0669\0669\0668901234567', NULL),
    ('two plus signs', '++998901234567', NULL),
    ('two plus signs apart', '+998+901234567', NULL),
    ('a plus behind 00', '00+998901234567', NULL),
    ('national form', '0901234567', NULL),
    ('plus and 00', '+00998901234567', NULL),
    ('seven bare digits', '9012345', NULL),
    ('six digits with a plus', '+123456', NULL),
    ('sixteen digits', '+1234567890123456', NULL),
    ('sixteen bare digits', '1234567890123456', NULL),
    ('two lines', E'+447700900001\n+447700900002', NULL),
    ('header injection', E'+447700900001\r\nX-Evil: 1', NULL);

SELECT plan((SELECT 3 * count(*)::integer FROM body) + (SELECT count(*)::integer FROM number) + 15);

SELECT is(postrider.segments(body), segments, name) FROM body;
SELECT is(postrider.is_gsm7(body), gsm7, name || ': alphabet') FROM body;
SELECT is(
    ARRAY(SELECT postrider.body_too_long(body, m) FROM generate_series(-1, 5) m ORDER BY m),
    ARRAY(SELECT segments > m FROM generate_series(-1, 5) m ORDER BY m),
    name || ': too long for -1 to 5 segments') FROM body;
SELECT is(postrider.normalize_phone(given), want, 'number: ' || name) FROM number;

SELECT is(count(DISTINCT postrider.normalize_phone(given)), 1::bigint, 'N1 four spellings are one number')
    FROM number WHERE name LIKE 'N1 %';
SELECT is(postrider.segments(NULL), NULL, 'segments of NULL');
SELECT is(postrider.is_gsm7(NULL), NULL, 'alphabet of NULL');
SELECT is(postrider.normalize_phone(NULL), NULL, 'number from NULL');
SELECT is(postrider.body_too_long(NULL, 3), NULL, 'limit on NULL');
SELECT is(postrider.body_too_long(repeat('a', 999), NULL), NULL, 'limit NULL');

-- A megabyte is answered, and refused by its length alone.
SELECT is(postrider.segments(repeat('a', 1000000)), 6536, 'a megabyte of septets');
SELECT is(postrider.segments(repeat(U&'\0436', 500000)), 7463, 'a megabyte of UCS-2');
SELECT ok(postrider.body_too_long(repeat('a[', 500000), 10), 'a megabyte is too long');
SELECT ok(NOT postrider.body_too_long('a', 2147483647), 'the largest limit does not overflow');

-- The answer must not hang on the caller's collation or search_path.
CREATE COLLATION pg_temp.loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE FUNCTION pg_temp.octet_length(text) RETURNS integer LANGUAGE sql IMMUTABLE RETURN 7;
CREATE FUNCTION pg_temp.starts_with(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
SET LOCAL search_path = pg_temp, public, pg_catalog;
SELECT is(postrider.segments(repeat(']', 153) COLLATE pg_temp.loose), 3, 'segments under a loose collation');
SELECT is(postrider.normalize_phone('(998) 000000001' COLLATE pg_temp.loose) COLLATE "C", '+998000000001', 'number under a loose collation');
SELECT is(postrider.normalize_phone('0901234567'), NULL, 'number under a foreign search_path');
SET LOCAL search_path = public, pg_catalog;

-- Bulk loads rely on these: inlined where one row costs microseconds, and usable in an index.
SELECT is_empty($$
    SELECT proname FROM pg_proc
    WHERE pronamespace = 'postrider'::regnamespace
      AND proname IN ('is_gsm7', 'mixed_parts', 'segments', 'body_too_long', 'normalize_spelled_phone', 'normalize_phone')
      AND (provolatile <> 'i' OR proparallel <> 's' OR obj_description(oid, 'pg_proc') IS NULL)
$$, 'immutable, parallel safe, described');
CREATE FUNCTION pg_temp.plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    plan text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
        plan := plan || line;
    END LOOP;
    RETURN plan;
END
$$;
SELECT doesnt_match(
    pg_temp.plan_of('SELECT postrider.segments(body), postrider.is_gsm7(body), postrider.body_too_long(body, 3), postrider.normalize_phone(body) FROM body'),
    'postrider\.(segments|is_gsm7|body_too_long|normalize_phone)\(', 'inlined into the query that calls them');

SELECT * FROM finish();
ROLLBACK;
