-- The check that every fenced transaction runs before it commits. It reads the
-- session's tag from the settings fence.key, fence.token and fence.tokens, and
-- raises class LF where a pair of it is not the accepted one.
--
-- Functions, relations and operators are looked for in pg_catalog only: the
-- pinned search_path holds nothing else that may have any but pg_temp, which
-- PostgreSQL never searches for functions and operators. Relations of this
-- schema are written with it.

-- The common case, as cheap as it can be made: one pair, in a transaction that
-- may lock and whose every statement sees the latest commits. All else, and
-- every refusal, is fence.check_tag's, but for a session without any tag. The
-- accepted token is compared as text, so that nothing is parsed here.
CREATE OR REPLACE FUNCTION fence.check(required boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_key      text := current_setting('fence.key', true);
    v_accepted text;
BEGIN
    IF v_key <> ''
        AND coalesce(current_setting('fence.tokens', true), '') = ''
        AND current_setting('transaction_isolation') = 'read committed'
        AND current_setting('transaction_read_only') = 'off'
    THEN
        SELECT m.token INTO v_accepted FROM fence.mark AS m WHERE m.resource_key = v_key FOR SHARE;
        IF v_accepted = current_setting('fence.token', true) THEN
            RETURN;
        END IF;
    ELSIF NOT required
        AND concat(v_key, current_setting('fence.token', true), current_setting('fence.tokens', true)) = ''
    THEN
        RETURN;
    END IF;
    PERFORM fence.check_tag(required);
END
$$;

-- Checks every pair of the tag, in the order of the keys, so that two sessions
-- can't lock the same marks crosswise. Where a tag is required, a session without
-- one may have an override instead.
CREATE OR REPLACE FUNCTION fence.check_tag(p_required boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_pair record;
BEGIN
    FOR v_pair IN SELECT t.key, t.token FROM fence.read_tag() AS t ORDER BY t.key COLLATE "C" LOOP
        PERFORM fence.check_key(v_pair.key, v_pair.token);
    END LOOP;
    IF NOT FOUND AND p_required THEN
        IF coalesce(current_setting('fence.override', true), '') <> '' THEN
            PERFORM fence.override(0);
            RETURN;
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'LF004',
            MESSAGE = 'token_required: a write here needs a lock, and this session has no tag',
            DETAIL = 'None of fence.key, fence.token and fence.tokens names a lock.',
            HINT = 'Acquire the lock, then set fence.key and fence.token (or fence.tokens) to its key and token.';
    END IF;
END
$$;

-- Reads the whole tag, or refuses one that can't be read. An empty setting is
-- an unset one: that is what RESET leaves of a custom setting.
CREATE OR REPLACE FUNCTION fence.read_tag()
RETURNS TABLE (key text, token bigint)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_key    text := nullif(current_setting('fence.key', true), '');
    v_token  text := nullif(current_setting('fence.token', true), '');
    v_tokens text := nullif(current_setting('fence.tokens', true), '');
    v_keys   text[] := '{}';
    v_values text[] := '{}';
    v_pair   record;
BEGIN
    IF (v_key IS NULL) <> (v_token IS NULL) THEN
        PERFORM fence.refuse_tag(format('%s is set but %s is not',
            CASE WHEN v_key IS NULL THEN 'fence.token' ELSE 'fence.key' END,
            CASE WHEN v_key IS NULL THEN 'fence.key' ELSE 'fence.token' END));
    END IF;
    IF v_key IS NOT NULL THEN
        v_keys := ARRAY[v_key];
        v_values := ARRAY[v_token];
    END IF;
    IF v_tokens IS NOT NULL THEN
        BEGIN
            IF json_typeof(v_tokens::json) <> 'object' THEN
                RAISE invalid_text_representation;
            END IF;
            -- A value that is no number is kept as its JSON text, quotes and
            -- all, which the test below refuses.
            SELECT v_keys || array_agg(j.key), v_values || array_agg(j.value::text)
                INTO v_keys, v_values FROM json_each(v_tokens::json) AS j;
        EXCEPTION WHEN data_exception THEN
            PERFORM fence.refuse_tag('fence.tokens is not a JSON object');
        END;
    END IF;
    FOR v_pair IN
        SELECT t.key, min(t.value) AS value, min(t.number) AS token, count(DISTINCT t.number) AS tokens,
               bool_and(coalesce(t.number <= 9223372036854775807, false)) AS whole
        FROM (SELECT u.key, u.value,
                     CASE WHEN u.value ~ '^0*[1-9][0-9]{0,18}$' THEN ltrim(u.value, '0')::numeric END AS number
              FROM unnest(v_keys, v_values) AS u (key, value)) AS t
        GROUP BY t.key ORDER BY t.key COLLATE "C"
    LOOP
        IF v_pair.key = '' OR octet_length(v_pair.key) > 2048 THEN
            PERFORM fence.refuse_tag('a key is empty or longer than 2048 bytes');
        ELSIF NOT v_pair.whole THEN
            PERFORM fence.refuse_tag(format('the token of key "%s", %s, is not a positive whole number below 2^63',
                v_pair.key, left(v_pair.value, 64)));
        ELSIF v_pair.tokens > 1 THEN
            PERFORM fence.refuse_tag(format('key "%s" stands with two tokens', v_pair.key));
        END IF;
        key := v_pair.key;
        token := v_pair.token;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Checks one pair against its mark, and holds the mark's share lock for the
-- rest of the transaction: that lock is what makes a later claim wait.
CREATE OR REPLACE FUNCTION fence.check_key(p_key text, p_token bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_mark fence.mark;
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        -- It can't lock (25006), it can't write any more, and it can't become
        -- read-write now that a query has run in it: a subtransaction only
        -- when it ends, and the proxy checks again after that.
        SELECT * INTO v_mark FROM fence.mark AS m WHERE m.resource_key = p_key;
    ELSIF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT * INTO v_mark FROM fence.mark AS m WHERE m.resource_key = p_key FOR SHARE;
    ELSE
        -- With one snapshot for the whole transaction, a mark that moved after
        -- it fails the lock with 40001, and a retry would be the wrong answer.
        -- Only here, for the block is a subtransaction.
        BEGIN
            SELECT * INTO v_mark FROM fence.mark AS m WHERE m.resource_key = p_key FOR SHARE;
            IF NOT FOUND THEN
                -- Claimed for the first time after the snapshot, or never? An
                -- insert sees what the snapshot hides (40001), and is undone.
                INSERT INTO fence.mark VALUES (p_key, p_token, '', 1, now(), '') ON CONFLICT DO NOTHING;
                RAISE no_data_found;
            END IF;
        EXCEPTION
            WHEN no_data_found THEN
                NULL;
            WHEN serialization_failure THEN
                RAISE EXCEPTION USING ERRCODE = 'LF001',
                    MESSAGE = format('stale_token: %s token %s: the accepted token changed after this transaction''s snapshot was taken', p_key, p_token),
                    DETAIL = format('Key %s, presented token %s, in a %s transaction.', p_key, p_token, upper(current_setting('transaction_isolation'))),
                    HINT = 'Begin the transaction after the lock was acquired and the tag was set. If this token was superseded, stop and acquire the lock again.';
        END;
    END IF;
    IF v_mark.token = p_token THEN
        -- A transaction can write, turn read-only, and still commit what it
        -- wrote; without a lock nothing would keep a claim from coming first.
        IF current_setting('transaction_read_only') = 'on' AND pg_current_xact_id_if_assigned() IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'LF007',
                MESSAGE = 'not_fenceable: a transaction that has written and is read-only now can''t be checked',
                DETAIL = format('Key %s, presented token %s. A read-only transaction can''t lock the mark.', p_key, p_token),
                HINT = 'Leave the transaction read-write, or write nothing in it.';
        END IF;
        RETURN;
    ELSIF v_mark.token > p_token THEN
        RAISE EXCEPTION USING ERRCODE = 'LF001',
            MESSAGE = format('stale_token: %s token %s was superseded by %s', p_key, p_token, v_mark.token),
            DETAIL = fence.describe(v_mark, p_token),
            HINT = 'Stop: another holder has this lock. Acquire it again and use the new token.';
    ELSIF v_mark.token IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LF002',
            MESSAGE = format('not_holder: %s token %s was not claimed', p_key, p_token),
            DETAIL = format('Key %s, presented token %s; no token is accepted for this key in this database.', p_key, p_token),
            HINT = 'Set the tag in the session itself and through fenceproxy, which claims the token before it forwards anything.';
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'LF002',
            MESSAGE = format('not_holder: %s token %s was not claimed', p_key, p_token),
            DETAIL = fence.describe(v_mark, p_token),
            HINT = 'Set the tag in the session itself and through fenceproxy, which claims the token before it forwards anything.';
    END IF;
END
$$;

-- The DETAIL of a refusal.
CREATE OR REPLACE FUNCTION fence.describe(p_mark fence.mark, p_token bigint)
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN format('Key %s, presented token %s, accepted token %s since %s by lock key %s.',
        p_mark.resource_key, p_token, p_mark.token,
        to_char(p_mark.claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), p_mark.lock_key);
END
$$;

-- Refuses a tag that can't be read.
CREATE OR REPLACE FUNCTION fence.refuse_tag(p_why text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LF009',
        MESSAGE = 'malformed_tag: ' || p_why,
        DETAIL = 'A tag that is incomplete or can''t be read lets reads through and refuses writes.',
        HINT = 'Set fence.key to the lock key and fence.token to the create revision of the holder''s etcd key, or fence.tokens to a JSON object of both.';
END
$$;
