-- What vendors report afterwards. A callback is stored as it came, together with what the plugin
-- read from it, before the vendor hears 200; what it means for a message is applied later, from
-- here, by any worker. A receipt proves that the vendor took the message.

-- Raw callbacks, and what was read from them ------------------------------------------------------

CREATE TABLE postrider.callback (
  id uuid NOT NULL DEFAULT postrider.uuid7(),
  provider text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  method text NOT NULL,
  query text NOT NULL,
  body bytea NOT NULL,
  CONSTRAINT callback_pkey PRIMARY KEY (id)
) PARTITION BY RANGE (id);
COMMENT ON TABLE postrider.callback IS
  'Calls of vendors as they came, signature checked. Raw: may hold numbers and texts of people.';

CREATE TABLE postrider.receipt_event (
  id uuid NOT NULL DEFAULT postrider.uuid7(),
  callback_id uuid NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due timestamptz,
  vendor_at timestamptz,
  ref uuid,
  message_id uuid,
  tries smallint NOT NULL DEFAULT 0,
  provider text NOT NULL,
  status text NOT NULL CONSTRAINT receipt_event_status
    CHECK (status IN ('in_transit', 'delivered', 'undelivered', 'expired', 'rejected')),
  vendor_id text,
  code text,
  detail text,
  result text,
  CONSTRAINT receipt_event_pkey PRIMARY KEY (id),
  CONSTRAINT receipt_event_names CHECK (ref IS NOT NULL OR vendor_id IS NOT NULL),
  CONSTRAINT receipt_event_open CHECK ((due IS NULL) = (result IS NOT NULL))
) PARTITION BY RANGE (id);
COMMENT ON TABLE postrider.receipt_event IS 'One report about one message or one part of it. Never changes a message twice.';
COMMENT ON COLUMN postrider.receipt_event.due IS 'When to try to apply it; NULL: done, see result.';
COMMENT ON COLUMN postrider.receipt_event.at IS 'When it came here; vendor_at is the vendor''s time, if it told one. Neither orders anything: a receipt''s rank does.';
COMMENT ON COLUMN postrider.receipt_event.ref IS 'The message id that the vendor echoed.';
COMMENT ON COLUMN postrider.receipt_event.message_id IS 'Whose it is, once that is known.';
COMMENT ON COLUMN postrider.receipt_event.result IS
  'applied: the message changed. no news: it said so already, or something final. other vendor: not the one that has the message now. confirmed: of a message known not to be taken. unmatched: nobody''s, for a day. given up: the message could not take it up for a day.';
CREATE INDEX receipt_event_due_idx ON postrider.receipt_event (due) WHERE due IS NOT NULL;
CREATE INDEX receipt_event_waits_idx ON postrider.receipt_event (ref) WHERE due IS NOT NULL;
CREATE INDEX receipt_event_message_idx ON postrider.receipt_event (message_id) WHERE message_id IS NOT NULL;

CREATE TABLE postrider.inbound (
  id uuid NOT NULL DEFAULT postrider.uuid7(),
  callback_id uuid NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  provider text NOT NULL,
  sender text NOT NULL,
  recipient text,
  body text NOT NULL,
  vendor_id text,
  word text,
  CONSTRAINT inbound_pkey PRIMARY KEY (id)
) PARTITION BY RANGE (id);
COMMENT ON TABLE postrider.inbound IS 'Messages that people sent to us.';
COMMENT ON COLUMN postrider.inbound.word IS 'What it was understood as: a class of stop_word.';
CREATE INDEX inbound_vendor_id_idx ON postrider.inbound (vendor_id, provider) WHERE vendor_id IS NOT NULL;

-- As in 001_schema.sql, with the tables of this file.
CREATE OR REPLACE FUNCTION postrider.ensure_partitions(ahead integer DEFAULT 7) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_day date;
  v_table text;
  v_name text;
  v_made integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('postrider.ensure_partitions'));
  FOREACH v_table IN ARRAY ARRAY['message', 'attempt', 'callback', 'receipt_event', 'inbound'] LOOP
    FOR i IN -1 .. least(greatest(ahead, 1), 60) LOOP
      v_day := (clock_timestamp() AT TIME ZONE 'UTC')::date + i;
      v_name := v_table || to_char(v_day, '_YYYYMMDD');
      CONTINUE WHEN to_regclass('postrider.' || v_name) IS NOT NULL;
      -- Made apart and attached: ATTACH lets reads and writes of the other partitions go on.
      EXECUTE format(
        'CREATE TABLE postrider.%I (LIKE postrider.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)'
        || ' WITH (%s autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,'
        || ' autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1)',
        v_name, v_table,
        -- Half-filled pages keep the settle's new version on the same page (HOT).
        CASE WHEN v_table = 'message' THEN 'fillfactor = 50,' ELSE '' END);
      EXECUTE format(
        'ALTER TABLE postrider.%I ATTACH PARTITION postrider.%I FOR VALUES FROM (%L) TO (%L)',
        v_table, v_name,
        postrider.uuid_floor(v_day::timestamp AT TIME ZONE 'UTC'),
        postrider.uuid_floor((v_day + 1)::timestamp AT TIME ZONE 'UTC'));
      v_made := v_made + 1;
    END LOOP;
  END LOOP;
  RETURN v_made;
END
$$;
SELECT postrider.ensure_partitions(7);

-- Who does not want to hear from us ---------------------------------------------------------------

CREATE FUNCTION postrider.word_key(word text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  -- Case folded without a language, so I, İ, ı and i must be made one here; so must apostrophes.
  SELECT regexp_replace(btrim(
           translate(lower(normalize(word, NFKC) COLLATE "und-x-icu"), U&'\02BB\02BC\2018\2019\0060\00B4\0131\0307', '''''''''''''i'),
           U&' \0009\000A\000D\00A0\200B\FEFF.,!?;:"()[]<>*-' || U&'''\00AB\00BB\201C\201D\201E\2026'), '[[:space:]]+', ' ', 'g')
$$;
COMMENT ON FUNCTION postrider.word_key IS
  'A word as it is compared: trimmed of blanks and punctuation, in one case and one Unicode form.';

CREATE TABLE postrider.stop_word (
  key text GENERATED ALWAYS AS (postrider.word_key(word)) STORED CONSTRAINT stop_word_pkey PRIMARY KEY,
  word text NOT NULL CONSTRAINT stop_word_word CHECK (postrider.word_key(word) <> ''),
  language text NOT NULL,
  class text NOT NULL CONSTRAINT stop_word_class CHECK (class IN ('marketing', 'all', 'start'))
);
COMMENT ON TABLE postrider.stop_word IS
  'Words by which people end or begin messages from us; only a message that is nothing else counts. Edit freely.';
COMMENT ON COLUMN postrider.stop_word.class IS 'marketing: no campaigns any more; all: nothing any more; start: lifts both.';
INSERT INTO postrider.stop_word (word, language, class) VALUES
  ('STOP', 'en', 'marketing'), ('UNSUBSCRIBE', 'en', 'marketing'), ('CANCEL', 'en', 'marketing'), ('END', 'en', 'marketing'),
  ('QUIT', 'en', 'marketing'), ('OPT OUT', 'en', 'marketing'), ('OPTOUT', 'en', 'marketing'), ('REVOKE', 'en', 'marketing'),
  ('REMOVE', 'en', 'marketing'), ('STOPALL', 'en', 'all'), ('STOP ALL', 'en', 'all'),
  ('START', 'en', 'start'), ('UNSTOP', 'en', 'start'), ('SUBSCRIBE', 'en', 'start'),
  ('ARRET', 'fr', 'marketing'), ('ARRÊT', 'fr', 'marketing'), ('ARRÊTER', 'fr', 'marketing'), ('DÉSABONNER', 'fr', 'marketing'),
  ('DESABONNER', 'fr', 'marketing'), ('COMMENCER', 'fr', 'start'),
  ('STOPP', 'de', 'marketing'), ('ABMELDEN', 'de', 'marketing'), ('ENDE', 'de', 'marketing'), ('AUS', 'de', 'marketing'), ('ANMELDEN', 'de', 'start'),
  ('BAJA', 'es', 'marketing'), ('ALTO', 'es', 'marketing'), ('PARAR', 'es', 'marketing'), ('CANCELAR', 'es', 'marketing'),
  ('ALTA', 'es', 'start'), ('INICIAR', 'es', 'start'),
  ('SAIR', 'pt', 'marketing'), ('PARE', 'pt', 'marketing'), ('DESCADASTRAR', 'pt', 'marketing'), ('VOLTAR', 'pt', 'start'),
  ('BASTA', 'it', 'marketing'), ('ANNULLA', 'it', 'marketing'), ('DISISCRIVI', 'it', 'marketing'), ('INIZIA', 'it', 'start'),
  ('СТОП', 'ru', 'marketing'), ('ОТПИСАТЬСЯ', 'ru', 'marketing'), ('ОТПИСКА', 'ru', 'marketing'), ('ОТМЕНА', 'ru', 'marketing'), ('СТАРТ', 'ru', 'start'),
  ('TO''XTAT', 'uz', 'marketing'), ('TO''XTATISH', 'uz', 'marketing'), ('BEKOR', 'uz', 'marketing'), ('BEKOR QILISH', 'uz', 'marketing'),
  ('ТЎХТАТ', 'uz', 'marketing'), ('ТЎХТАТИШ', 'uz', 'marketing'), ('БЕКОР', 'uz', 'marketing'), ('БЕКОР ҚИЛИШ', 'uz', 'marketing'),
  ('BOSHLASH', 'uz', 'start'), ('БОШЛАШ', 'uz', 'start'),
  ('RET', 'tr', 'marketing'), ('IPTAL', 'tr', 'marketing'), ('DUR', 'tr', 'marketing'), ('ÇIK', 'tr', 'marketing'), ('BAŞLAT', 'tr', 'start'),
  ('HUY', 'vi', 'marketing'), ('HỦY', 'vi', 'marketing'), ('HUỶ', 'vi', 'marketing'), ('TU CHOI', 'vi', 'marketing'), ('TỪ CHỐI', 'vi', 'marketing'),
  ('DUNG', 'vi', 'marketing'), ('DỪNG', 'vi', 'marketing'), ('BAT DAU', 'vi', 'start'), ('BẮT ĐẦU', 'vi', 'start'),
  ('BERHENTI', 'id', 'marketing'), ('MULAI', 'id', 'start'),
  ('WYPISZ', 'pl', 'marketing'), ('REZYGNUJĘ', 'pl', 'marketing'), ('REZYGNUJE', 'pl', 'marketing'),
  ('AFMELDEN', 'nl', 'marketing'), ('AANMELDEN', 'nl', 'start'),
  ('ТОҚТАТУ', 'kk', 'marketing'), ('СТОПП', 'ru', 'marketing'), ('الغاء', 'ar', 'marketing'), ('إلغاء', 'ar', 'marketing'), ('توقف', 'ar', 'marketing');

CREATE TABLE postrider.suppression (
  recipient text NOT NULL CONSTRAINT suppression_recipient CHECK (recipient ~ '^\+[0-9]{3,15}$'),
  class text NOT NULL CONSTRAINT suppression_class CHECK (class IN ('marketing', 'all')),
  source text NOT NULL,
  reason text,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT suppression_pkey PRIMARY KEY (recipient, class)
);
COMMENT ON TABLE postrider.suppression IS 'Numbers that are not to be sent to: marketing (no campaigns) or all (nothing).';
COMMENT ON COLUMN postrider.suppression.source IS 'inbound: a stop word; vendor: the vendor said so; anything else: put here by hand.';

CREATE FUNCTION postrider.suppress(p_recipient text, p_class text, p_source text, p_reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO postrider.suppression AS s (recipient, class, source, reason)
  VALUES ('+' || ltrim(p_recipient, '+'), p_class, p_source, p_reason) ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION postrider.suppress IS
  'Puts a number (E.164) on the list; false: it is there already, and its first reason stays.';

CREATE FUNCTION postrider.unsuppress(p_recipient text, p_class text DEFAULT NULL, p_sources text[] DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n integer;
BEGIN
  DELETE FROM postrider.suppression AS s
   WHERE s.recipient = '+' || ltrim(p_recipient, '+') AND (p_class IS NULL OR s.class = p_class)
     AND (p_sources IS NULL OR s.source = ANY (p_sources));
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN v_n;
END
$$;
COMMENT ON FUNCTION postrider.unsuppress IS 'Takes a number off the list: of one class or both, from these sources or any. Returns how many rows went.';

-- Storing -------------------------------------------------------------------------------------------

-- A start word lifts what a person or the vendor began, not what was put on the list by hand.
CREATE FUNCTION postrider.heard(p_sender text, p_class text, p_word text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF ltrim(p_sender, '+') !~ '^[0-9]{3,15}$' THEN
    RETURN; -- no number: nobody we could send to
  ELSIF p_class = 'start' THEN
    PERFORM postrider.unsuppress(p_sender, NULL, ARRAY['inbound', 'vendor']);
  ELSE
    PERFORM postrider.suppress(p_sender, p_class, 'inbound', p_word);
  END IF;
END
$$;
COMMENT ON FUNCTION postrider.heard IS 'What follows a stop or start word from this number.';

CREATE FUNCTION postrider.receipts_store(
  p_providers text[], p_methods text[], p_queries text[], p_bodies bytea[],
  p_callbacks integer[], p_refs text[], p_vendor_ids text[], p_statuses text[], p_codes text[], p_details text[], p_ats bigint[],
  p_in_callbacks integer[], p_senders text[], p_recipients text[], p_texts text[], p_ids text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_ids uuid[] := ARRAY(SELECT postrider.uuid7() FROM generate_series(1, cardinality(p_providers)));
  v_now timestamptz := clock_timestamp();
  v_heard record;
BEGIN
  INSERT INTO postrider.callback (id, provider, method, query, body)
  SELECT v_ids[c.n], c.provider, c.method, c.query, c.body
    FROM unnest(p_providers, p_methods, p_queries, p_bodies) WITH ORDINALITY AS c(provider, method, query, body, n);
  INSERT INTO postrider.receipt_event (callback_id, due, vendor_at, ref, provider, status, vendor_id, code, detail)
  SELECT v_ids[r.callback], v_now,
         CASE WHEN r.at BETWEEN 1 AND 32503680000000 THEN to_timestamp(r.at / 1000.0) END, -- to the year 3000
         r.ref::uuid, p_providers[r.callback], r.status, r.vendor_id, r.code, r.detail
    FROM unnest(p_callbacks, p_refs, p_vendor_ids, p_statuses, p_codes, p_details, p_ats) WITH ORDINALITY
      AS r(callback, ref, vendor_id, status, code, detail, at, n)
   ORDER BY r.n;
  IF cardinality(p_in_callbacks) > 0 THEN
    FOR v_heard IN
      WITH kept AS (
        INSERT INTO postrider.inbound AS k (callback_id, provider, sender, recipient, body, vendor_id, word)
        SELECT v_ids[i.callback], p_providers[i.callback], i.sender, i.recipient, i.body, i.vendor_id, w.class
          FROM unnest(p_in_callbacks, p_senders, p_recipients, p_texts, p_ids) WITH ORDINALITY
            AS i(callback, sender, recipient, body, vendor_id, n)
          LEFT JOIN postrider.stop_word AS w ON w.key = postrider.word_key(i.body)
         -- A repeat of an old STOP must not undo a START that came since.
         WHERE i.vendor_id IS NULL
            OR NOT EXISTS (SELECT 1 FROM postrider.inbound AS o WHERE o.vendor_id = i.vendor_id AND o.provider = p_providers[i.callback])
         ORDER BY i.n
        RETURNING k.id, k.sender, k.word, k.body
      )
      SELECT * FROM kept AS k WHERE k.word IS NOT NULL ORDER BY k.id
    LOOP
      PERFORM postrider.heard(v_heard.sender, v_heard.word, left(v_heard.body, 40));
    END LOOP;
  END IF;
  RETURN cardinality(p_callbacks);
END
$$;
COMMENT ON FUNCTION postrider.receipts_store IS
  'Keeps callbacks, the receipts and the inbound messages read from them (p_callbacks, p_in_callbacks: position of their callback, from 1), and follows stop words, in one commit.';

-- Applying ------------------------------------------------------------------------------------------

CREATE FUNCTION postrider.receipt_rank(receipt postrider.receipt) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE receipt WHEN 'none' THEN 0 WHEN 'in_transit' THEN 1 WHEN 'delivered' THEN 3 ELSE 2 END
$$;
COMMENT ON FUNCTION postrider.receipt_rank IS
  'A receipt only rises: none, in transit, not delivered, delivered. Delivered beats a negative end because a handset confirmed it, while the others say only that no confirmation came in time.';

CREATE FUNCTION postrider.status_receipt(status text) RETURNS postrider.receipt
LANGUAGE sql STABLE PARALLEL SAFE AS $$ -- as a cast to an enum is: only so it is inlined
  SELECT CASE status WHEN 'rejected' THEN 'undelivered' ELSE status END::postrider.receipt
$$;
COMMENT ON FUNCTION postrider.status_receipt IS 'What a vendor''s status means for the message: a later refusal is undelivered; its code stays in the event.';

CREATE FUNCTION postrider.receipt_pause(tries integer, most interval) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT least(most, interval '1 second' * power(2, least(greatest(tries, 0), 20)))
$$;
COMMENT ON FUNCTION postrider.receipt_pause IS 'Until a receipt that could not be applied is tried again: 1 s, 2 s, 4 s and so on.';

CREATE FUNCTION postrider.receipts_apply(p_limit integer)
RETURNS TABLE (
  what text, message_id uuid, token bigint, provider text, status text, vendor_id text, code text, detail text, n bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_events uuid[];
  v_messages uuid[];
  v_part smallint[];
  v_parts smallint[];
  v_first uuid;
  v_last uuid;
BEGIN
  SELECT array_agg(p.id ORDER BY p.id) INTO v_events
    FROM (SELECT e.id FROM postrider.receipt_event AS e
           WHERE e.due IS NOT NULL AND e.due <= v_now
           ORDER BY e.due LIMIT p_limit FOR UPDATE OF e SKIP LOCKED) AS p;
  IF v_events IS NULL THEN
    RETURN;
  END IF;

  -- Whose they are: by the id that was echoed, else by the vendor's id, also under another account
  -- with the same vendor (but not of the generic plugin, behind which vendors differ).
  WITH accounts AS MATERIALIZED (
    SELECT p.name, array_agg(q.name) AS names
      FROM postrider.provider AS p JOIN postrider.provider AS q ON q.name = p.name OR q.plugin = p.plugin AND p.plugin <> 'http'
     GROUP BY p.name
  ), found AS (
    SELECT e.id, coalesce(m.id, r.message_id) AS message_id, r.part, r.parts
      FROM unnest(v_events) AS u(id)
      JOIN postrider.receipt_event AS e ON e.id = u.id
      LEFT JOIN postrider.message AS m ON m.id = e.ref
      LEFT JOIN LATERAL (
        SELECT v.message_id, v.part, v.parts FROM postrider.vendor_ref AS v
         WHERE v.vendor_id = e.vendor_id AND (m.id IS NULL OR v.message_id = m.id)
           AND v.provider = ANY (coalesce((SELECT a.names FROM accounts AS a WHERE a.name = e.provider), ARRAY[e.provider]))
         ORDER BY v.provider <> e.provider LIMIT 1) AS r ON true
  )
  SELECT array_agg(f.message_id ORDER BY f.id), array_agg(f.part ORDER BY f.id), array_agg(f.parts ORDER BY f.id),
         min(f.message_id::text)::uuid, max(f.message_id::text)::uuid
    INTO v_messages, v_part, v_parts, v_first, v_last FROM found AS f;

  -- In the order of ids, as settle does: two writers never wait for each other in a circle.
  PERFORM 1 FROM postrider.message AS m
    WHERE m.id = ANY (v_messages) AND m.id BETWEEN v_first AND v_last ORDER BY m.id FOR UPDATE;

  IF EXISTS (SELECT 1 FROM unnest(v_parts) AS p(parts) WHERE p.parts > 1) THEN
    UPDATE postrider.vendor_ref AS v SET receipt = b.receipt
      FROM (SELECT DISTINCT ON (u.message_id, u.part) u.message_id, u.part, postrider.status_receipt(e.status) AS receipt
              FROM unnest(v_events, v_messages, v_part, v_parts) AS u(id, message_id, part, parts)
              JOIN postrider.receipt_event AS e ON e.id = u.id
             WHERE u.parts > 1
             ORDER BY u.message_id, u.part, postrider.receipt_rank(postrider.status_receipt(e.status)) DESC, e.id) AS b
     WHERE v.message_id = b.message_id AND v.part = b.part
       AND postrider.receipt_rank(b.receipt) > postrider.receipt_rank(v.receipt);
  END IF;

  RETURN QUERY
  WITH seen AS MATERIALIZED (
    SELECT e.id, e.at, e.tries, e.provider, e.status, e.vendor_id, e.code, e.detail, m.id AS message_id, m.token, u.parts,
           m.receipt AS was, postrider.status_receipt(e.status) AS receipt,
           CASE WHEN m.id IS NULL THEN 'unmatched'
                WHEN m.state = 'sent' AND (m.provider = e.provider OR e.status = 'delivered'
                                           OR (SELECT count(DISTINCT p.plugin) = 1 AND min(p.plugin) <> 'http' FROM postrider.provider AS p
                                                WHERE p.name IN (m.provider, e.provider))) THEN 'rank'
                WHEN m.state = 'sent' THEN 'other vendor'
                -- Before the answer: the attempt in the air will be judged soon.
                WHEN m.state = 'sending' AND (m.doubts = 0 OR m.taken) THEN 'early'
                WHEN m.doubts = 0 AND m.calls = 0 THEN 'foreign' -- never called: not ours
                WHEN m.doubts = 0 AND e.status IN ('undelivered', 'expired', 'rejected') THEN 'confirmed'
                ELSE 'news' END AS fate
      FROM unnest(v_events, v_messages, v_parts) AS u(id, message_id, parts)
      JOIN postrider.receipt_event AS e ON e.id = u.id
      LEFT JOIN postrider.message AS m ON m.id = u.message_id
  ), best AS (
    SELECT DISTINCT ON (s.message_id) s.message_id, s.id, s.provider, s.parts, s.was, s.receipt, s.vendor_id
      FROM seen AS s WHERE s.fate = 'rank'
     ORDER BY s.message_id, postrider.receipt_rank(s.receipt) DESC, s.vendor_id IS NULL, s.id
  ), want AS (
    SELECT b.message_id, b.id, b.provider, b.was, b.vendor_id, coalesce(p.receipt, b.receipt) AS receipt,
           CASE WHEN p.arrived < p.parts AND p.receipt <> 'in_transit' THEN format('%s of %s parts arrived', p.arrived, p.parts) END AS reason
      FROM best AS b
      LEFT JOIN LATERAL (
        -- Delivered when every part is; not delivered as soon as one part is lost.
        SELECT max(v.parts) AS parts, count(*) FILTER (WHERE v.receipt = 'delivered') AS arrived,
               CASE WHEN count(*) FILTER (WHERE v.receipt = 'delivered') = max(v.parts) THEN 'delivered'
                    WHEN bool_or(v.receipt = 'undelivered') THEN 'undelivered'
                    WHEN bool_or(v.receipt = 'expired') THEN 'expired'
                    ELSE 'in_transit' END::postrider.receipt AS receipt
          FROM postrider.vendor_ref AS v WHERE v.message_id = b.message_id) AS p ON b.parts > 1
  ), moved AS (
    UPDATE postrider.message AS m
       SET receipt = CASE WHEN postrider.receipt_rank(w.receipt) > postrider.receipt_rank(m.receipt) THEN w.receipt ELSE m.receipt END,
           vendor_id = coalesce(m.vendor_id, w.vendor_id),
           reason = CASE WHEN m.reason IS NULL OR m.reason LIKE '% parts arrived' THEN w.reason ELSE m.reason END
      FROM want AS w
     WHERE m.id = w.message_id AND m.id BETWEEN v_first AND v_last AND m.state = 'sent'
       AND (postrider.receipt_rank(w.receipt) > postrider.receipt_rank(m.receipt)
            OR m.vendor_id IS NULL AND w.vendor_id IS NOT NULL
            OR (m.reason IS NULL OR m.reason LIKE '% parts arrived') AND w.reason IS DISTINCT FROM m.reason AND w.reason IS NOT NULL)
    RETURNING w.id, w.provider, m.receipt, m.receipt <> w.was AS raised
  ), marked AS (
    UPDATE postrider.receipt_event AS e
       SET message_id = s.message_id, tries = least(e.tries + 1, 1000),
           due = CASE WHEN s.fate IN ('rank', 'other vendor', 'confirmed') OR s.at <= v_now - interval '24 hours' THEN NULL
                      WHEN s.fate IN ('early', 'news') THEN v_now + postrider.receipt_pause(s.tries, interval '5 minutes')
                      ELSE v_now + postrider.receipt_pause(s.tries, interval '6 hours') END,
           result = CASE WHEN s.fate = 'rank' THEN CASE WHEN s.id IN (SELECT v.id FROM moved AS v) THEN 'applied' ELSE 'no news' END
                         WHEN s.fate IN ('other vendor', 'confirmed') THEN s.fate
                         WHEN s.at > v_now - interval '24 hours' THEN NULL
                         WHEN s.fate = 'unmatched' THEN 'unmatched' ELSE 'given up' END
      FROM seen AS s
     WHERE e.id = s.id
    RETURNING e.provider, e.result, e.tries, s.fate
  ), news AS (
    -- Of several attempts in doubt the last is taken, at this vendor if there is one.
    SELECT DISTINCT ON (s.message_id) s.message_id,
           coalesce((SELECT a.token FROM postrider.attempt AS a
                      WHERE a.message_id = s.message_id AND a.message_id BETWEEN v_first AND v_last AND a.outcome = 'unknown'
                      ORDER BY a.provider IS DISTINCT FROM s.provider, a.token DESC LIMIT 1), s.token) AS token,
           s.provider, s.status, s.vendor_id, s.code, s.detail
      FROM seen AS s WHERE s.fate = 'news'
     ORDER BY s.message_id, s.vendor_id IS NULL, postrider.receipt_rank(s.receipt) DESC, s.id
  )
  SELECT 'news', w.message_id, w.token, w.provider, w.status, w.vendor_id, w.code, w.detail, 1::bigint FROM news AS w
  UNION ALL
  SELECT 'raised', NULL, NULL, v.provider, v.receipt::text, NULL, NULL, NULL, count(*)
    FROM moved AS v WHERE v.raised GROUP BY v.provider, v.receipt
  UNION ALL
  SELECT coalesce(k.result, 'parked'), NULL, NULL, k.provider, NULL, NULL, NULL, NULL, count(*)
    FROM marked AS k WHERE k.result IN ('unmatched', 'given up') OR k.result IS NULL AND k.tries = 1 AND k.fate <> 'news'
   GROUP BY k.provider, coalesce(k.result, 'parked')
  UNION ALL
  SELECT 'picked', NULL, NULL, NULL, NULL, NULL, NULL, NULL, cardinality(v_events);
END
$$;
COMMENT ON FUNCTION postrider.receipts_apply IS
  'Applies up to p_limit receipts that are due. Rows: news (a message is not sent as far as we know, but the vendor has it: late news under this token), raised (messages by new receipt), parked, unmatched, given up (receipts), picked (how many were looked at). Of two workers at once each takes others.';

CREATE FUNCTION postrider.receipts_hurry(p_ids uuid[]) RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
  UPDATE postrider.receipt_event AS e SET due = clock_timestamp()
    FROM unnest(p_ids) AS u(id) WHERE e.ref = u.id AND e.due IS NOT NULL
$$;
COMMENT ON FUNCTION postrider.receipts_hurry IS 'Receipts of these messages that wait are due now: there is a doubt they can settle.';

CREATE FUNCTION postrider.receipt_waits(p_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM postrider.receipt_event AS e
                  WHERE e.ref = p_id AND e.due IS NOT NULL AND e.at > clock_timestamp() - interval '1 minute');
END
$$;
COMMENT ON FUNCTION postrider.receipt_waits IS
  'A receipt of this message is stored and not applied yet: a resend would double what it reports on. Asked for doubted rows only, and for a minute: one that cannot be applied must not hold a message for ever.';

-- Looking -------------------------------------------------------------------------------------------

CREATE VIEW postrider.receipts AS
  SELECT e.message_id, e.at, e.vendor_at, e.provider, e.status, e.vendor_id,
         (SELECT format('%s of %s', v.part, v.parts) FROM postrider.vendor_ref AS v
           WHERE v.message_id = e.message_id AND v.vendor_id = e.vendor_id AND v.parts > 1 LIMIT 1) AS part,
         e.code, e.detail, e.result, e.due, e.tries, e.ref
    FROM postrider.receipt_event AS e;
COMMENT ON VIEW postrider.receipts IS 'What vendors reported. Without message_id: nobody''s so far.';

REVOKE ALL ON FUNCTION postrider.word_key, postrider.suppress, postrider.unsuppress, postrider.heard, postrider.receipts_store,
  postrider.receipt_rank, postrider.status_receipt, postrider.receipt_pause, postrider.receipts_apply,
  postrider.receipts_hurry, postrider.receipt_waits FROM PUBLIC;
INSERT INTO postrider.role_grant (role, privilege) VALUES
  ('postrider_worker', 'INSERT ON postrider.callback, postrider.inbound'),
  ('postrider_worker', 'INSERT, UPDATE ON postrider.receipt_event'),
  ('postrider_worker', 'INSERT, DELETE ON postrider.suppression'),
  ('postrider_ops', 'INSERT, UPDATE, DELETE ON postrider.stop_word'),
  ('postrider_ops', 'INSERT, DELETE ON postrider.suppression'),
  ('postrider_viewer', 'SELECT ON postrider.receipts');
SELECT postrider.grant_roles();
