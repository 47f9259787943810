-- The claim: raises a mark to a token that etcd has just confirmed, or says
-- why not. For the role that runs claims, never for applications.

-- Which PostgreSQL this is, and which lineage of etcd's (0 is none yet): a token
-- that was verified on one timeline is verified anew on another, for a failover
-- may have lost the mark.
CREATE OR REPLACE FUNCTION fence.whereabouts(OUT system_id text, OUT timeline text, OUT epoch integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT s.system_identifier::text INTO system_id FROM pg_control_system() AS s;
    IF pg_is_in_recovery() THEN
        timeline := 'standby';
    ELSE
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    END IF;
    SELECT coalesce(max(l.epoch), 0) INTO epoch FROM fence.lineage AS l;
END
$$;

-- The installed version, for a role that may claim and not read the tables.
CREATE OR REPLACE FUNCTION fence.version()
RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT m.version FROM fence.meta AS m);
END
$$;

-- What the proxies make up salts from, for a role that may claim and not read
-- the tables.
CREATE OR REPLACE FUNCTION fence.mock_key()
RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT m.mock_key FROM fence.meta AS m);
END
$$;

-- What is accepted for a key: no row where there is no mark would cost the
-- caller the whereabouts, so there is always one, with a null token then.
-- comparable says whether the mark is of the current lineage.
CREATE OR REPLACE FUNCTION fence.accepted(
    p_key text,
    OUT token bigint, OUT lock_key text, OUT claimed_at timestamptz, OUT comparable boolean,
    OUT system_id text, OUT timeline text, OUT epoch integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT w.system_id, w.timeline, w.epoch INTO system_id, timeline, epoch FROM fence.whereabouts() AS w;
    SELECT m.token, m.lock_key, m.claimed_at, m.lineage = epoch
        INTO token, lock_key, claimed_at, comparable FROM fence.mark AS m WHERE m.resource_key = p_key;
    comparable := coalesce(comparable, false);
END
$$;

-- outcome is one of
--   raised   the mark is p_token now, and was lower or missing
--   held     the mark was p_token already: nothing written, nobody waited for
--   stale    the mark is higher
--   behind   etcd was above p_revision already when the mark of some key was
--            raised, or when marks were removed: either etcd's history went
--            backwards, or that is younger than the verification. Which of the
--            two, a verification begun after this answer tells
--   foreign  p_cluster is not the etcd cluster that the marks came from
--   replaced p_epoch, which the proxy knew when it asked etcd, is not the
--            lineage any more: what it asked may have been the former etcd
-- with the mark as it is then, and how far etcd is known to have come.
--
-- The UPDATE waits for the share locks of running checked transactions. That
-- wait is the barrier: when this function's transaction has committed, none
-- with a lower token can commit any more. INSERT ... ON CONFLICT DO UPDATE would
-- lock the row, and so wait, where nothing is to be raised.
CREATE OR REPLACE FUNCTION fence.claim(
    p_key text, p_token bigint, p_lock_key text, p_cluster text, p_revision bigint, p_epoch integer, p_by text,
    OUT outcome text, OUT token bigint, OUT lock_key text, OUT claimed_at timestamptz, OUT highest bigint,
    OUT system_id text, OUT timeline text, OUT epoch integer)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_cluster text;
    v_lineage integer; -- of the mark
    v_first   boolean := false;
BEGIN
    IF p_token > p_revision THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('token %s is above the revision %s at which etcd was asked about it', p_token, p_revision);
    END IF;
    -- A mark that a crash or a failover can lose is none.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- fence.whereabouts, written out: a call of it would cost a third of all this.
    -- What reads a file is read once for each connection.
    system_id := current_setting('fence.system_id', true);
    IF coalesce(system_id, '') = '' THEN
        system_id := (SELECT s.system_identifier FROM pg_control_system() AS s);
        PERFORM set_config('fence.system_id', system_id, false);
    END IF;
    -- Not even "held" can be said here: the primary's mark may be higher.
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction', MESSAGE = 'a standby can''t accept a claim';
    END IF;
    timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    LOOP
        -- In one statement: where the mark was removed, the floor says so.
        SELECT l.epoch, l.cluster, m.token, m.lock_key, m.claimed_at, m.lineage,
                greatest(l.floor, (SELECT max(h.token) FROM fence.mark AS h WHERE h.lineage = l.epoch))
            INTO epoch, v_cluster, token, lock_key, claimed_at, v_lineage, highest
            FROM fence.lineage AS l LEFT JOIN fence.mark AS m ON m.resource_key = p_key
            ORDER BY l.epoch DESC LIMIT 1;
        IF NOT FOUND THEN
            INSERT INTO fence.lineage VALUES (1, p_cluster, clock_timestamp(), session_user) ON CONFLICT DO NOTHING;
            v_first := FOUND;
            CONTINUE;
        END IF;
        IF epoch <> p_epoch AND NOT v_first THEN
            outcome := 'replaced';
            RETURN;
        ELSIF v_cluster <> p_cluster THEN
            outcome := 'foreign';
            RETURN;
        ELSIF highest > p_revision THEN
            outcome := 'behind';
            RETURN;
        ELSIF token IS NULL THEN
            INSERT INTO fence.mark VALUES (p_key, p_token, p_lock_key, claim.epoch, clock_timestamp(), p_by)
                ON CONFLICT DO NOTHING;
        ELSIF v_lineage = epoch AND token > p_token THEN
            outcome := 'stale';
            RETURN;
        ELSIF v_lineage = epoch AND token = p_token THEN
            -- A commit whose wait for its standby was broken off is visible,
            -- and yet not replicated. What is written here has to wait for the
            -- standby itself, and so for all that was written before it.
            IF current_setting('synchronous_standby_names') <> '' THEN
                PERFORM pg_logical_emit_message(true, 'fence', '');
            END IF;
            outcome := 'held';
            RETURN;
        ELSE
            UPDATE fence.mark AS m
                SET token = p_token, lock_key = p_lock_key, lineage = claim.epoch,
                    claimed_at = clock_timestamp(), claimed_by = p_by
                WHERE m.resource_key = p_key
                  AND (m.lineage < claim.epoch OR m.lineage = claim.epoch AND m.token < p_token);
            IF NOT FOUND THEN
                -- Another claim was first. PostgreSQL has locked what that left, to see
                -- whether it is to be updated still, and keeps it locked to the end of
                -- the transaction, for which the caller's Sync may be late: the holder
                -- could not write until then. An error ends it here.
                RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'another claim was first';
            END IF;
        END IF;
        IF FOUND THEN
            outcome := 'raised';
            token := p_token;
            lock_key := p_lock_key;
            RETURN;
        END IF;
        -- Another claim was first: look again.
    END LOOP;
END
$$;
