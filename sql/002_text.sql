-- Text and numbers: what a body costs on the air, and one spelling for one number.
--
-- The same rules as worker/core/text.h and worker/core/phone.h; a test compares the two over
-- random texts. Bodies in RETURN form are parsed here and now, so no search_path can change
-- their meaning, and the planner inlines them: a bulk load calls them once a row. A function
-- built on CASE is not STRICT for that reason alone (a strict function is inlined only when
-- its expression is provably strict); NULL gives NULL all the same.
--
-- Patterns name characters by code point, and sizes are taken in octets of UTF-8: other
-- database encodings are refused. COLLATE "C" makes the answers the same under any collation.

DO $$
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'database encoding is %, must be UTF8', pg_catalog.getdatabaseencoding()
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Create the database with: CREATE DATABASE name ENCODING ''UTF8'' TEMPLATE template0.';
    END IF;
END
$$;

-- 3GPP TS 23.038: the default alphabet and its extension table, by code point. In ASCII that is
-- line feed, form feed, return, and space to ~ without the backtick.
CREATE FUNCTION postrider.is_gsm7(body text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN body COLLATE "C" !~
        '[^\n\f\r -_a-~\u00A1\u00A3-\u00A5\u00A7\u00BF\u00C4-\u00C7\u00C9\u00D1\u00D6\u00D8\u00DC\u00DF\u00E0\u00E4-\u00E6\u00E8\u00E9\u00EC\u00F1\u00F2\u00F6\u00F8\u00F9\u00FC\u0393\u0394\u0398\u039B\u039E\u03A0\u03A3\u03A6\u03A8\u03A9\u20AC]';

COMMENT ON FUNCTION postrider.is_gsm7(text) IS
    'True when every character is in GSM-7 (3GPP TS 23.038, default alphabet and extension table), so that the text travels in septets.';

-- A text in which some characters (`wide`, a bracket expression) take two units that may not be
-- parted. A part that is not the last may lose one unit to a pair that moved on, so it holds
-- room - 1 or room units; where both give the same count, that is it. Else parts are packed: a
-- filler behind each wide character stands for its second unit, a part is the longest run of
-- `room` characters that does not end between the two, and the next match begins where it ended.
CREATE FUNCTION postrider.mixed_parts(body text, wide text, single integer, room integer) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
    SET search_path = pg_catalog
AS $$
DECLARE
    units integer := char_length(body) + regexp_count(body COLLATE "C", '[' || wide || ']');
    fewest integer := (units + room - 1) / room;
BEGIN
    IF units <= single THEN
        RETURN 1;
    ELSIF fewest = (units + room - 2) / (room - 1) THEN
        RETURN fewest;
    END IF;
    RETURN regexp_count(
        regexp_replace(body COLLATE "C", '([' || wide || '])', '\1x', 'g'),
        '.{0,' || (room - 1) || '}[^' || wide || ']');
END
$$;

COMMENT ON FUNCTION postrider.mixed_parts(text, text, integer, integer) IS
    'Internal to segments(): parts of a text in which the characters of the bracket expression wide take two units; single units fit into one message, room into each part of several.';

-- The first branch answers for short texts without looking at them: n octets are at most n UCS-2
-- units (a character of two units has four octets) and at most 2n septets, and 70 units or
-- 140 septets fit into one message. The second is the default alphabet alone, one septet a
-- character; the fourth a text without surrogate pairs. The rest has characters of two units.
CREATE FUNCTION postrider.segments(body text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN octet_length(body) <= 70 THEN (octet_length(body) > 0)::integer
        WHEN body COLLATE "C" !~
            '[^\n\r -Z_a-z\u00A1\u00A3-\u00A5\u00A7\u00BF\u00C4-\u00C7\u00C9\u00D1\u00D6\u00D8\u00DC\u00DF\u00E0\u00E4-\u00E6\u00E8\u00E9\u00EC\u00F1\u00F2\u00F6\u00F8\u00F9\u00FC\u0393\u0394\u0398\u039B\u039E\u03A0\u03A3\u03A6\u03A8\u03A9]'
            THEN CASE WHEN char_length(body) <= 160 THEN 1 ELSE (char_length(body) + 152) / 153 END
        WHEN postrider.is_gsm7(body)
            THEN postrider.mixed_parts(body, '\f\[\\\]\^{|}~\u20AC', 160, 153)
        WHEN body COLLATE "C" !~ '[\U00010000-\U0010FFFF]'
            THEN CASE WHEN char_length(body) <= 70 THEN 1 ELSE (char_length(body) + 66) / 67 END
        ELSE postrider.mixed_parts(body, '\U00010000-\U0010FFFF', 70, 67)
    END;

COMMENT ON FUNCTION postrider.segments(text) IS
    'Parts a text is sent and billed in: 160 septets or 153 a part in GSM-7, 70 units or 67 a part in UCS-2; no escape pair and no surrogate pair is cut. 0 for an empty text.';

-- Two bounds settle nearly every text without a pattern:
--  - fits: a part that is not the last holds at least one unit less than its room (a pair that
--    did not fit moved on), so p parts hold at least 66p UCS-2 units or 152p septets. n octets
--    are at most n units and at most 2n septets; n <= 66p gives both n <= 66p and 2n <= 152p.
--  - does not fit: a part holds at most 153 characters, a single message 160.
CREATE FUNCTION postrider.body_too_long(body text, max_segments integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN octet_length(body) <= 66::bigint * max_segments THEN false
        WHEN char_length(body) > greatest(160, 153::bigint * max_segments) AND max_segments IS NOT NULL THEN true
        ELSE postrider.segments(body) > max_segments
    END;

COMMENT ON FUNCTION postrider.body_too_long(text, integer) IS
    'True when the text takes more than max_segments parts: segments(body) > max_segments, but cheap where lengths alone tell.';

-- White space of any script, zero width and direction marks, hyphens and dashes, ( ) . and /
-- are what people put between digits; the list is the one in worker/core/phone.c.
CREATE FUNCTION postrider.normalize_spelled_phone(phone text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
    SET search_path = pg_catalog
AS $$
DECLARE
    bare text := regexp_replace(phone COLLATE "C",
        '[\t-\r ()\-./\u0085\u00A0\u1680\u2000-\u2015\u2028-\u202F\u205F\u2060\u2066-\u2069\u2212\u3000\uFEFF]+', '', 'g');
BEGIN
    IF starts_with(bare, '00') THEN
        bare := '+' || substr(bare, 3);
    ELSIF length(bare) >= 8 AND NOT starts_with(bare, '+') THEN
        bare := '+' || bare;
    END IF;
    IF length(bare) BETWEEN 8 AND 16 AND bare COLLATE "C" ~ '^\+[1-9][0-9]+$' THEN
        RETURN bare;
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION postrider.normalize_spelled_phone(text) IS
    'Internal to normalize_phone(): the way for numbers with separators or a leading 00.';

-- Numbers already in E.164 or in bare digits, nearly all of a campaign, take the inlined way.
-- Lengths are checked apart: a counted repeat ({6,14}) makes the pattern four times as slow.
CREATE FUNCTION postrider.normalize_phone(phone text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN octet_length(phone) BETWEEN 8 AND 16 AND phone COLLATE "C" ~ '^\+[1-9][0-9]+$' THEN phone
        WHEN octet_length(phone) BETWEEN 8 AND 15 AND phone COLLATE "C" ~ '^[1-9][0-9]+$' THEN '+' || phone
        ELSE postrider.normalize_spelled_phone(phone)
    END;

COMMENT ON FUNCTION postrider.normalize_phone(text) IS
    'The number in E.164 (+ and 7 to 15 digits), or NULL when it is none: separators and spaces are taken off, a leading 00 means +, 8 to 15 bare digits not beginning with 0 are international. Other scripts'' digits, letters and a second plus are refused.';
