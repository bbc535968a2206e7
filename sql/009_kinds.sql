-- A message keeps the lane its kind had when it was queued. So a kind that moves to another lane leaves
-- messages behind, some of them not committed yet or in the air; the old lanes stay on record,
-- and workers go on claiming and expiring there.

ALTER TABLE postrider.kind ADD COLUMN former_lanes smallint[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN postrider.kind.former_lanes IS 'Lanes the kind was in before; kept by a trigger. What was queued there is still sent.';

CREATE FUNCTION postrider.kind_moved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.former_lanes := ARRAY(
    SELECT DISTINCT l FROM unnest(NEW.former_lanes || OLD.lane) AS l WHERE l <> NEW.lane ORDER BY l);
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION postrider.kind_moved IS 'Trigger: a kind that changes its lane remembers the old one.';
CREATE TRIGGER kind_moved BEFORE UPDATE OF lane ON postrider.kind
  FOR EACH ROW EXECUTE FUNCTION postrider.kind_moved();
REVOKE ALL ON FUNCTION postrider.kind_moved FROM PUBLIC;

CREATE VIEW postrider.kind_lanes AS
  SELECT k.name, k.lane, false AS former FROM postrider.kind AS k
  UNION ALL
  SELECT k.name, f.lane, true FROM postrider.kind AS k, unnest(k.former_lanes) AS f(lane);
COMMENT ON VIEW postrider.kind_lanes IS 'In which lanes messages of a kind may wait.';

CREATE OR REPLACE VIEW postrider.lanes AS
  SELECT l.lane, l.kinds, (extract(epoch FROM clock_timestamp() - d.due) * 1000)::bigint AS oldest_due_ms
    FROM (SELECT k.lane, array_agg(k.name ORDER BY k.name) AS kinds FROM postrider.kind_lanes AS k GROUP BY k.lane) AS l
    LEFT JOIN LATERAL (
      SELECT m.due FROM postrider.message AS m
       WHERE m.due IS NOT NULL AND m.lane = l.lane AND m.due <= clock_timestamp()
       ORDER BY m.due, m.id LIMIT 1) AS d ON true;

-- A kind that is gone has no rules: nobody would claim or expire what still waits under it.
CREATE FUNCTION postrider.kind_kept() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n bigint := (SELECT coalesce(sum(c.count), 0) FROM postrider.counts AS c
                  WHERE c.kind = OLD.name AND c.state IN ('pending', 'sending'));
BEGIN
  IF v_n > 0 THEN
    RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('kind "%s" still has %s messages to send', OLD.name, v_n),
      HINT = 'Let them be sent, or cancel them: postrider cancel --kind ' || OLD.name || ' --all-pending --yes';
  END IF;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  RETURN NEW;
END
$$;
COMMENT ON FUNCTION postrider.kind_kept IS 'Trigger: a kind with messages to send cannot be deleted or renamed.';
CREATE TRIGGER kind_kept BEFORE DELETE ON postrider.kind FOR EACH ROW EXECUTE FUNCTION postrider.kind_kept();
CREATE TRIGGER kind_not_renamed BEFORE UPDATE OF name ON postrider.kind
  FOR EACH ROW WHEN (NEW.name IS DISTINCT FROM OLD.name) EXECUTE FUNCTION postrider.kind_kept();
REVOKE ALL ON FUNCTION postrider.kind_kept FROM PUBLIC;

SELECT postrider.grant_roles();
