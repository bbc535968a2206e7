-- What an application calls: send, send_many, cancel; and what an operator calls: retry.
--
-- SQLSTATEs: PR001 recipient, PR002 body, PR003 body too long, PR004 kind, PR005 time,
-- PR006 arrays of different length, PR007 no such message, PR008 reason needed.

CREATE FUNCTION postrider.inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_wake boolean;
BEGIN
  WITH per_kind AS (
    SELECT n.kind, count(*) AS n FROM new_rows AS n GROUP BY n.kind
  ), counted AS (
    INSERT INTO postrider.counter_delta (kind, state, n)
    SELECT p.kind, 'pending', p.n FROM per_kind AS p
  )
  SELECT bool_or(k.wake) INTO v_wake FROM per_kind AS p JOIN postrider.kind AS k ON k.name = p.kind;
  IF v_wake THEN
    PERFORM pg_notify('postrider', 'due'); -- the same payload: at most one a transaction
  END IF;
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION postrider.inserted IS 'Counts what a statement inserted and wakes the workers at commit.';

CREATE TRIGGER message_inserted AFTER INSERT ON postrider.message
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postrider.inserted();

CREATE FUNCTION postrider.refuse_kind(kind text) RETURNS postrider.kind
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'PR004', MESSAGE = format('unknown kind "%s"', kind),
    HINT = 'Known kinds: ' || (SELECT string_agg(k.name, ', ' ORDER BY k.lane, k.name) FROM postrider.kind AS k) || '.';
END
$$;
COMMENT ON FUNCTION postrider.refuse_kind IS 'Raises PR004 for a kind that does not exist.';

CREATE FUNCTION postrider.checked(
  recipient text, body text, rule postrider.kind, run_at timestamptz, expires_at timestamptz,
  place text DEFAULT '') RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_number text := postrider.normalize_phone(recipient);
BEGIN
  IF v_number IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'PR001',
      MESSAGE = format('%srecipient %s is not a phone number', place, coalesce(quote_literal(left(recipient, 40)), 'NULL')),
      HINT = 'Give an international number such as +998901234567: a country code and 7 to 15 digits in all.';
  END IF;
  IF coalesce(body, '') = '' THEN
    RAISE EXCEPTION USING ERRCODE = 'PR002', MESSAGE = format('%sbody is empty', place),
      HINT = 'Give the text of the message.';
  END IF;
  IF postrider.body_too_long(body, rule.max_segments) THEN
    RAISE EXCEPTION USING ERRCODE = 'PR003',
      MESSAGE = format('%sbody needs %s segments, kind "%s" allows %s', place, postrider.segments(body), rule.name, rule.max_segments),
      HINT = 'Shorten the text, or raise max_segments of the kind in postrider.kind.';
  END IF;
  IF expires_at <= greatest(run_at, clock_timestamp()) OR expires_at > run_at + interval '31 days'
     OR run_at > clock_timestamp() + interval '1 year' THEN
    RAISE EXCEPTION USING ERRCODE = 'PR005',
      MESSAGE = format('%sexpires_at %s is out of range for run_at %s', place, expires_at, run_at),
      HINT = 'expires_at must lie in the future, after run_at and within 31 days of it; run_at within a year.';
  END IF;
  RETURN v_number;
END
$$;
COMMENT ON FUNCTION postrider.checked IS 'The one check of a message: its normalised number, or an error that names the fault and the cure.';

CREATE FUNCTION postrider.not_yet(feature text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('%s is not supported by this version', feature),
    HINT = 'Leave it out. It is refused rather than accepted and ignored.';
END
$$;
COMMENT ON FUNCTION postrider.not_yet IS 'Refuses a feature whose place is kept.';

CREATE FUNCTION postrider.send(
  recipient text, body text, kind text DEFAULT 'transactional', key uuid DEFAULT NULL,
  dedup_key text DEFAULT NULL, run_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
  ordering_key text DEFAULT NULL, supersede_key text DEFAULT NULL, sender text DEFAULT NULL,
  meta jsonb DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_rule postrider.kind;
  v_number text;
  v_id uuid := postrider.uuid7();
  v_first uuid;
  v_run_at timestamptz := greatest(run_at, clock_timestamp());
  v_expires_at timestamptz;
BEGIN
  SELECT * INTO v_rule FROM postrider.kind AS k WHERE k.name = kind;
  IF NOT FOUND THEN
    v_rule := postrider.refuse_kind(kind);
  END IF;
  IF ordering_key IS NOT NULL THEN PERFORM postrider.not_yet('ordering_key'); END IF;
  IF supersede_key IS NOT NULL THEN PERFORM postrider.not_yet('supersede_key'); END IF;
  v_expires_at := coalesce(expires_at, v_run_at + v_rule.ttl);
  v_number := postrider.checked(recipient, body, v_rule, v_run_at, v_expires_at);
  IF dedup_key IS NOT NULL OR key IS NOT NULL THEN
    v_first := postrider.first_of(v_id, dedup_key, key, v_number, body);
    IF v_first <> v_id THEN
      RETURN v_first;
    END IF;
  END IF;
  INSERT INTO postrider.message (id, due, expires_at, lane, kind, recipient, body, sender, key, meta)
  VALUES (v_id, v_run_at, v_expires_at, v_rule.lane, kind, v_number, body, sender, key, meta);
  RETURN v_id;
END
$$;
COMMENT ON FUNCTION postrider.send IS
  'Queues one message in the caller''s transaction and returns its id. A dedup_key (or key) seen before returns the first message''s id and queues nothing.';

CREATE FUNCTION postrider.first_of(
  id uuid, dedup_key text, key uuid, recipient text, body text) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_key text;
  v_first uuid;
  v_same boolean;
BEGIN
  -- Two senders of one key meet on the primary key: the second waits for the first's commit.
  FOREACH v_key IN ARRAY array_remove(ARRAY['app:' || dedup_key, 'key:' || key], NULL) LOOP
    INSERT INTO postrider.dedup AS d (key, message_id) VALUES (v_key, id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      SELECT d.message_id INTO STRICT v_first FROM postrider.dedup AS d WHERE d.key = v_key;
      SELECT m.recipient = recipient AND m.body = body INTO v_same
        FROM postrider.message AS m WHERE m.id = v_first;
      IF NOT v_same THEN
        RAISE WARNING USING MESSAGE = format('dedup_key "%s" was used for message %s with another text or recipient; nothing new is sent', coalesce(dedup_key, key::text), v_first),
          HINT = 'Use a new key for a new message.';
      END IF;
      -- Both keys now name that message: a key that named the one never queued would lose a text.
      UPDATE postrider.dedup AS d SET message_id = v_first
       WHERE d.key = 'app:' || dedup_key AND d.message_id = id;
      RETURN v_first;
    END IF;
  END LOOP;
  RETURN id;
END
$$;
COMMENT ON FUNCTION postrider.first_of IS 'The message that already holds one of these keys, or the given id after taking them.';

CREATE FUNCTION postrider.send_many(
  recipients text[], bodies text[], kind text DEFAULT 'campaign', run_at timestamptz DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL, sender text DEFAULT NULL, meta jsonb DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_rule postrider.kind;
  v_run_at timestamptz := greatest(run_at, clock_timestamp());
  v_expires_at timestamptz;
  v_n bigint := coalesce(cardinality(recipients), 0);
  v_one boolean := coalesce(cardinality(bodies), 0) = 1;
  v_bad record;
BEGIN
  SELECT * INTO v_rule FROM postrider.kind AS k WHERE k.name = kind;
  IF NOT FOUND THEN
    v_rule := postrider.refuse_kind(kind);
  END IF;
  IF v_n = 0 THEN
    RETURN 0;
  END IF;
  IF NOT v_one AND coalesce(cardinality(bodies), 0) <> v_n THEN
    RAISE EXCEPTION USING ERRCODE = 'PR006',
      MESSAGE = format('%s recipients but %s bodies', v_n, coalesce(cardinality(bodies), 0)),
      HINT = 'Give one body for all, or one for each recipient.';
  END IF;
  v_expires_at := coalesce(expires_at, v_run_at + v_rule.ttl);
  -- What is the same for all is checked once, with a number that is surely right.
  PERFORM postrider.checked('+10000000', CASE WHEN v_one THEN bodies[1] ELSE 'x' END, v_rule, v_run_at, v_expires_at);
  IF v_one THEN
    SELECT r.n, r.recipient, bodies[1] AS body INTO v_bad
      FROM unnest(recipients) WITH ORDINALITY AS r(recipient, n)
     WHERE postrider.normalize_phone(r.recipient) IS NULL ORDER BY r.n LIMIT 1;
  ELSE
    SELECT r.n, r.recipient, r.body INTO v_bad
      FROM unnest(recipients, bodies) WITH ORDINALITY AS r(recipient, body, n)
     WHERE postrider.normalize_phone(r.recipient) IS NULL OR coalesce(r.body, '') = ''
        OR postrider.body_too_long(r.body, v_rule.max_segments) ORDER BY r.n LIMIT 1;
  END IF;
  IF FOUND THEN
    PERFORM postrider.checked(v_bad.recipient, v_bad.body, v_rule, v_run_at, v_expires_at, format('element %s: ', v_bad.n));
  END IF;
  INSERT INTO postrider.message (due, expires_at, lane, kind, recipient, body, sender, meta)
  SELECT v_run_at, v_expires_at, v_rule.lane, kind, postrider.normalize_phone(r.recipient),
         CASE WHEN v_one THEN bodies[1] ELSE bodies[r.n] END, sender, meta
    FROM unnest(recipients) WITH ORDINALITY AS r(recipient, n);
  RETURN v_n;
END
$$;
COMMENT ON FUNCTION postrider.send_many IS
  'Queues one message a recipient, all or none, and returns how many. One body serves all, or there is one for each.';

CREATE FUNCTION postrider.completed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_rule postrider.kind;
BEGIN
  SELECT * INTO v_rule FROM postrider.kind AS k WHERE k.name = NEW.kind;
  IF NOT FOUND THEN
    v_rule := postrider.refuse_kind(NEW.kind);
  END IF;
  IF NEW.ordering_key IS NOT NULL THEN PERFORM postrider.not_yet('ordering_key'); END IF;
  IF NEW.supersede_key IS NOT NULL THEN PERFORM postrider.not_yet('supersede_key'); END IF;
  NEW.lane := v_rule.lane;
  NEW.state := 'pending';
  NEW.token := 0;
  NEW.attempts := 0;
  NEW.calls := 0;
  NEW.doubts := 0;
  NEW.due := greatest(NEW.due, clock_timestamp());
  NEW.expires_at := coalesce(NEW.expires_at, NEW.due + v_rule.ttl);
  NEW.recipient := postrider.checked(NEW.recipient, NEW.body, v_rule, NEW.due, NEW.expires_at);
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION postrider.completed IS 'Checks and completes a row of a plain INSERT, which names no lane.';

CREATE TRIGGER message_completed BEFORE INSERT ON postrider.message
  FOR EACH ROW WHEN (NEW.lane IS NULL) EXECUTE FUNCTION postrider.completed();

CREATE FUNCTION postrider.cancel(id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_row record;
  v_state postrider.state;
BEGIN
  SELECT m.kind, m.state, m.doubts INTO v_row FROM postrider.message AS m WHERE m.id = id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = format('no message %s', id),
      HINT = 'It may have been removed by retention.';
  END IF;
  IF v_row.state = 'sending' THEN
    RETURN 'too late'; -- a request may be on its way; its outcome stands
  ELSIF v_row.state <> 'pending' THEN
    RETURN CASE WHEN v_row.state IN ('canceled', 'unknown') THEN v_row.state::text ELSE 'too late' END;
  END IF;
  -- What may already have been taken is not called canceled: it stays in doubt, and stops.
  v_state := CASE WHEN v_row.doubts > 0 THEN 'unknown' ELSE 'canceled' END;
  UPDATE postrider.message AS m
     SET state = v_state, due = NULL, reason = 'canceled', changed_at = clock_timestamp()
   WHERE m.id = id;
  INSERT INTO postrider.counter_delta (kind, state, n) VALUES (v_row.kind, 'pending', -1), (v_row.kind, v_state, 1);
  INSERT INTO postrider.operator_log (action, message_id) VALUES ('cancel', id);
  RETURN v_state::text;
END
$$;
COMMENT ON FUNCTION postrider.cancel IS
  'Stops a message that has not left: canceled; too late when it has; unknown when an earlier attempt is in doubt (no further one is made).';

CREATE FUNCTION postrider.retry(id uuid, reason text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_row record;
  v_now timestamptz := clock_timestamp();
BEGIN
  SELECT m.kind, m.state, m.doubts, k.ttl, k.wake INTO v_row
    FROM postrider.message AS m JOIN postrider.kind AS k ON k.name = m.kind
   WHERE m.id = id FOR UPDATE OF m;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = format('no message %s', id),
      HINT = 'It may have been removed by retention.';
  END IF;
  IF v_row.state NOT IN ('unknown', 'failed', 'expired', 'canceled') THEN
    RETURN 'not needed: ' || v_row.state;
  END IF;
  IF v_row.state = 'unknown' AND coalesce(reason, '') = '' THEN
    RAISE EXCEPTION USING ERRCODE = 'PR008',
      MESSAGE = format('message %s may already have been sent; sending it again needs a reason', id),
      HINT = 'Check the vendor''s log first; then give the reason, which is kept.';
  END IF;
  UPDATE postrider.message AS m
     SET state = 'pending', due = v_now, attempts = 0, reason = 'retried by hand',
         expires_at = greatest(m.expires_at, v_now + v_row.ttl), changed_at = v_now
   WHERE m.id = id;
  INSERT INTO postrider.counter_delta (kind, state, n) VALUES (v_row.kind, v_row.state, -1), (v_row.kind, 'pending', 1);
  INSERT INTO postrider.operator_log (action, message_id, reason) VALUES ('retry', id, reason);
  IF v_row.wake THEN
    PERFORM pg_notify('postrider', 'due');
  END IF;
  RETURN 'pending';
END
$$;
COMMENT ON FUNCTION postrider.retry IS
  'Queues a failed, expired, canceled or unknown message again, with a fresh life. For an unknown one a reason is required and kept.';
