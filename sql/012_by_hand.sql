-- What an operator may do about a doubt besides sending again (retry): ask the vendor now, or take it for
-- sent. Both are put on record.

CREATE FUNCTION postrider.ask_now(id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_row record;
BEGIN
  SELECT m.state, m.doubts, m.provider, m.vendor_id, p.caps INTO v_row
    FROM postrider.message AS m LEFT JOIN postrider.provider AS p ON p.name = m.provider
   WHERE m.id = id FOR UPDATE OF m;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = format('no message %s', id),
      HINT = 'It may have been removed by retention.';
  END IF;
  IF v_row.state <> 'unknown' OR v_row.doubts = 0 THEN
    RETURN 'not needed: ' || v_row.state;
  END IF;
  IF NOT coalesce(v_row.caps @> '{"askable": true}' OR v_row.caps @> '{"askable_by_id": true}' AND v_row.vendor_id IS NOT NULL, false) THEN
    RETURN 'cannot be asked';
  END IF;
  INSERT INTO postrider.ask AS a (message_id, provider, ask_at) VALUES (id, v_row.provider, clock_timestamp())
  ON CONFLICT (message_id) DO UPDATE SET ask_at = excluded.ask_at, tries = 0, misses = 0;
  INSERT INTO postrider.operator_log (action, message_id) VALUES ('ask', id);
  RETURN 'asking';
END
$$;
COMMENT ON FUNCTION postrider.ask_now IS
  'Has the vendor asked about a message in doubt, now and from the beginning: `asking`, `cannot be asked`, or `not needed: STATE`.';

CREATE FUNCTION postrider.assume_sent(id uuid, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_row record;
BEGIN
  SELECT m.kind, m.state INTO v_row FROM postrider.message AS m WHERE m.id = id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = format('no message %s', id),
      HINT = 'It may have been removed by retention.';
  END IF;
  IF v_row.state <> 'unknown' THEN
    RETURN 'not needed: ' || v_row.state;
  END IF;
  IF coalesce(reason, '') = '' THEN
    RAISE EXCEPTION USING ERRCODE = 'PR008', MESSAGE = format('taking message %s for sent needs a reason', id),
      HINT = 'Say where it was seen: the vendor''s log, or the person who has it.';
  END IF;
  UPDATE postrider.message AS m
     SET state = 'sent', reason = 'assumed sent by hand', changed_at = clock_timestamp()
   WHERE m.id = id;
  INSERT INTO postrider.counter_delta (kind, state, n) VALUES (v_row.kind, 'unknown', -1), (v_row.kind, 'sent', 1);
  INSERT INTO postrider.operator_log (action, message_id, reason) VALUES ('assume sent', id, reason);
  RETURN 'sent';
END
$$;
COMMENT ON FUNCTION postrider.assume_sent IS
  'Settles a doubt by a person''s word; nothing proved it, so its doubts stay on record. The reason is kept.';

REVOKE ALL ON FUNCTION postrider.ask_now, postrider.assume_sent FROM PUBLIC;
SELECT postrider.grant_roles();
