-- Locks without a client of etcd. A proxy takes, renews or gives back the lock in
-- etcd before a call of one of these reaches PostgreSQL, and says so in the setting
-- fence.grant, which lasts for the transaction. The functions only make that
-- visible: whoever sets fence.grant by hand gets a tag, which the check refuses
-- unless it was claimed, as one that was set by hand.
--
-- The defaults are those of the proxy, which reads the arguments in the statement.

-- Takes the lock of a key for this session and tags the session with it. The lock
-- outlives its last renewal by ttl, and the session waits for it no longer than
-- wait. Both are times such as 30s, 2 min or 1h30m.
CREATE OR REPLACE FUNCTION fence.acquire(key text, ttl text DEFAULT '30s', wait text DEFAULT '0s')
RETURNS TABLE (resource_key text, token bigint, expires_at timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_grant json := fence.take_grant('acquire', acquire.key);
BEGIN
    PERFORM set_config('fence.tokens', v_grant ->> 'tokens', false);
    resource_key := acquire.key;
    token := v_grant ->> 'token';
    expires_at := clock_timestamp() + (v_grant ->> 'left_ms')::bigint * interval '1 ms';
    RETURN NEXT;
END
$$;

-- Moves the end of a lock that fence.acquire took to its ttl from now.
CREATE OR REPLACE FUNCTION fence.renew(key text)
RETURNS TABLE (resource_key text, token bigint, expires_at timestamptz)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_grant json := fence.take_grant('renew', renew.key);
BEGIN
    resource_key := renew.key;
    token := v_grant ->> 'token';
    expires_at := clock_timestamp() + (v_grant ->> 'left_ms')::bigint * interval '1 ms';
    RETURN NEXT;
END
$$;

-- Takes a lock out of the session's tag and gives it back. False: the session had
-- none of this key, or its lease had run out.
CREATE OR REPLACE FUNCTION fence.release(key text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_grant json := fence.take_grant('release', release.key);
BEGIN
    IF v_grant ->> 'tokens' IS NOT NULL THEN
        PERFORM set_config('fence.tokens', v_grant ->> 'tokens', false);
    END IF;
    RETURN v_grant ->> 'held';
END
$$;

-- Returns what the proxy did for a call, once, or refuses a call that the proxy
-- can't have seen.
CREATE OR REPLACE FUNCTION fence.take_grant(p_do text, p_key text)
RETURNS json
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_grant text := nullif(current_setting('fence.grant', true), '');
BEGIN
    IF v_grant::json ->> 'do' = p_do AND v_grant::json ->> 'key' = p_key THEN
        PERFORM set_config('fence.grant', '', true);
        RETURN v_grant;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'LF007',
        MESSAGE = format('not_fenceable: fence.%s was not called by a statement of its own through fenceproxy', p_do),
        DETAIL = 'The lock is taken and given back by the proxy, which reads the statement. It sees no call on a direct connection, '
            'in a function, DO, EXECUTE, a cursor or a larger query, nor beside other statements in one text.',
        HINT = format('Connect through fenceproxy and send SELECT * FROM fence.%s(...) alone, with constants or parameters of type text.', p_do);
END
$$;
