-- What outlives single claims: which etcd the marks came from, and how marks
-- of locks that are gone are removed. For the role that runs claims.

-- The current lineage, and how far its etcd is known to have come. No row where
-- nothing was ever claimed.
CREATE OR REPLACE FUNCTION fence.current_lineage(
    OUT epoch integer, OUT cluster text, OUT highest bigint, OUT adopted_at timestamptz, OUT adopted_by text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        SELECT l.epoch, l.cluster,
               greatest(l.floor, (SELECT max(m.token) FROM fence.mark AS m WHERE m.lineage = l.epoch)),
               l.adopted_at, l.adopted_by
        FROM fence.lineage AS l ORDER BY l.epoch DESC LIMIT 1;
END
$$;

-- Of the p_most marks after p_after in the order of the keys, those that were
-- raised more than p_age ago; the last one is among them in any case, with a
-- null token if it is younger, so that the caller knows where to go on.
CREATE OR REPLACE FUNCTION fence.old_marks(p_age interval, p_after text, p_most integer)
RETURNS TABLE (resource_key text, token bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        SELECT page.resource_key, CASE WHEN page.old THEN page.token END
        FROM (SELECT m.resource_key, m.token, m.claimed_at < now() - p_age AS old,
                     lead(m.token) OVER (ORDER BY m.resource_key) IS NULL AS last
              FROM (SELECT k.* FROM fence.mark AS k WHERE k.resource_key > p_after COLLATE "C"
                    ORDER BY k.resource_key LIMIT p_most) AS m) AS page
        WHERE page.old OR page.last
        ORDER BY page.resource_key;
END
$$;

-- Removes the marks of p_keys whose tokens are still p_tokens, and returns how
-- many; none if p_epoch isn't the lineage any more. At p_revision of its etcd
-- nobody held or awaited the locks: so the tokens are no holder's any more, and
-- never will be. What a transaction that was checked holds, or a claim is about
-- to raise, is left for another time.
--
-- The floor is raised with it: a claim that was verified before p_revision, and
-- comes only now, has to be verified again. It also keeps what the highest
-- mark said of etcd's history.
CREATE OR REPLACE FUNCTION fence.forget(p_keys text[], p_tokens bigint[], p_epoch integer, p_revision bigint, p_age interval)
RETURNS integer
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_gone integer;
BEGIN
    -- Locked first, so that no lineage is adopted meanwhile.
    LOCK TABLE fence.lineage IN ROW EXCLUSIVE MODE;
    IF p_epoch <> (SELECT max(l.epoch) FROM fence.lineage AS l) THEN
        RETURN 0;
    END IF;
    DELETE FROM fence.mark AS m USING (
            SELECT k.resource_key FROM fence.mark AS k
            JOIN unnest(p_keys, p_tokens) AS u (key, token) ON k.resource_key = u.key COLLATE "C" AND k.token = u.token
            WHERE k.claimed_at < now() - p_age
            ORDER BY k.resource_key
            FOR UPDATE OF k SKIP LOCKED
        ) AS free
        WHERE m.resource_key = free.resource_key;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    IF v_gone > 0 THEN
        UPDATE fence.lineage AS l SET floor = p_revision WHERE l.epoch = p_epoch AND l.floor < p_revision;
    END IF;
    RETURN v_gone;
END
$$;
