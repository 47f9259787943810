-- The guard of a table: triggers that run the check for the key of each row
-- that a statement wrote. `fenceproxy protect` makes them, with these
-- arguments: what to do with rows that a subscription applies, refuse or allow,
-- and then the key's template, literal text and names of columns by turns,
-- literal text first.
--
-- The guard runs as the owner of this schema over rows of any table, so nothing
-- in it may call what somebody else has defined: a column becomes text by its
-- type's output function (concat), which is C, never by a cast to text or json,
-- which can be anybody's function. What such functions make of a value depends
-- on settings, which are pinned, so that a row has one key in every session.
CREATE OR REPLACE FUNCTION fence.guard()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET intervalstyle = 'postgres'
SET timezone = 'UTC'
SET extra_float_digits = 1
SET bytea_output = 'hex'
SET lc_monetary = 'C'
AS $$
DECLARE
    v_rows text;
    v_keys text[];
BEGIN
    IF coalesce(current_setting('fence.override', true), '') <> '' THEN
        PERFORM fence.override(TG_RELID);
        RETURN NULL;
    END IF;
    IF TG_ARGV[0] = 'allow' AND current_setting('session_replication_role') = 'replica' AND fence.applying() THEN
        RETURN NULL;
    END IF;
    IF TG_NARGS = 2 THEN
        v_keys := ARRAY[TG_ARGV[1]];
    ELSIF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION USING ERRCODE = 'LF007',
            MESSAGE = format('not_fenceable: TRUNCATE of %s would take the rows of every key', TG_RELID::regclass),
            DETAIL = 'The table is guarded by a key for each row, and no lock covers them all.',
            HINT = 'Delete the rows under their locks, or let an administrator set fence.override to the reason.';
    ELSE
        v_rows := CASE TG_LEVEL || ' ' || TG_OP
            WHEN 'STATEMENT INSERT' THEN 'new_rows'
            WHEN 'STATEMENT UPDATE' THEN '(TABLE new_rows UNION ALL TABLE old_rows)'
            WHEN 'STATEMENT DELETE' THEN 'old_rows'
            WHEN 'ROW INSERT' THEN '(SELECT ($1).*)'
            WHEN 'ROW UPDATE' THEN '(SELECT ($1).* UNION ALL SELECT ($2).*)'
            WHEN 'ROW DELETE' THEN '(SELECT ($2).*)'
        END;
        v_rows := format('SELECT array_agg(DISTINCT %s) FROM %s AS r', fence.key_of(TG_RELID, TG_ARGV), v_rows);
        IF TG_LEVEL = 'ROW' THEN
            EXECUTE v_rows INTO v_keys USING NEW, OLD;
        ELSE
            EXECUTE v_rows INTO v_keys;
        END IF;
    END IF;
    PERFORM fence.guard_keys(TG_RELID, v_keys);
    RETURN NULL;
END
$$;

-- The expression for the key of row r, null where a column of it is. The
-- columns are looked for first: of one that is gone, r.name could be a function
-- of that name applied to the row.
CREATE OR REPLACE FUNCTION fence.key_of(p_relation oid, p_args text[])
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_columns text := '';
    v_parts   text := '';
BEGIN
    FOR i IN array_lower(p_args, 1) + 1 .. array_upper(p_args, 1) LOOP
        IF (i - array_lower(p_args, 1)) % 2 = 1 THEN
            v_parts := v_parts || format(', %L', p_args[i]);
            CONTINUE;
        END IF;
        PERFORM FROM pg_attribute AS a
            WHERE a.attrelid = p_relation AND a.attname = p_args[i] AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'LF007',
                MESSAGE = format('not_fenceable: the key of %s is made from column %I, which is gone', p_relation::regclass, p_args[i]),
                DETAIL = 'The column was renamed or dropped after the table was guarded, and nothing is let through meanwhile.',
                HINT = 'Run fenceproxy protect again with the column''s new name, or fenceproxy unprotect.';
        END IF;
        v_parts := v_parts || format(', r.%I', p_args[i]);
        v_columns := v_columns || format(', r.%I', p_args[i]);
    END LOOP;
    RETURN format('CASE WHEN num_nulls(%s) = 0 THEN concat(%s) END COLLATE "C"', substr(v_columns, 3), substr(v_parts, 3));
END
$$;

-- Checks the session's tag for each of the keys, in order, so that two sessions
-- can't lock the same marks crosswise. No rows are no keys, and null.
CREATE OR REPLACE FUNCTION fence.guard_keys(p_relation oid, p_keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_pair record;
BEGIN
    -- The common case; an empty setting is an unset one and no key.
    IF cardinality(p_keys) = 1 AND p_keys[1] <> '' AND p_keys[1] = current_setting('fence.key', true) THEN
        PERFORM fence.check(true);
        RETURN;
    END IF;
    FOR v_pair IN
        SELECT k.key, t.token
        FROM unnest(p_keys) AS k (key) LEFT JOIN fence.read_tag() AS t ON t.key = k.key
        ORDER BY k.key COLLATE "C"
    LOOP
        IF v_pair.key IS NULL OR v_pair.key = '' OR octet_length(v_pair.key) > 2048 THEN
            RAISE EXCEPTION USING ERRCODE = 'LF007',
                MESSAGE = format('not_fenceable: a row of %s has no key', p_relation::regclass),
                DETAIL = CASE WHEN v_pair.key IS NULL THEN 'A column that the key is made from is null.'
                    ELSE 'Its key would be empty, or longer than 2048 bytes.' END,
                HINT = 'Give the row values that a lock can be named after.';
        ELSIF v_pair.token IS NULL THEN
            PERFORM fence.refuse_unguarded(p_relation, v_pair.key);
        END IF;
        PERFORM fence.check_key(v_pair.key, v_pair.token);
    END LOOP;
END
$$;

-- Refuses a write whose key the tag doesn't name.
CREATE OR REPLACE FUNCTION fence.refuse_unguarded(p_relation oid, p_key text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_tag text := (SELECT string_agg(t.key, ', ' ORDER BY t.key COLLATE "C") FROM fence.read_tag() AS t);
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'LF004',
        MESSAGE = format('token_required: a write to %s needs the lock %s, and this session''s tag %s',
            p_relation::regclass, p_key, CASE WHEN v_tag IS NULL THEN 'is empty' ELSE 'names other locks' END),
        DETAIL = format('The table is guarded. Key %s, the tag names %s.', p_key, coalesce(left(v_tag, 1000), 'none')),
        HINT = CASE WHEN fence.applying()
            THEN 'This is a subscription, which has no tag: see --replica-apply of fenceproxy protect.'
            ELSE 'Acquire the lock, then set fence.key and fence.token (or fence.tokens) to its key and token, through fenceproxy.' END;
END
$$;

-- Takes the session's fence.override for a write to a guarded table, or with 0
-- for any write where a tag is required, and records it, or refuses it. Who
-- logged in is asked, whatever role is set or function runs now.
CREATE OR REPLACE FUNCTION fence.override(p_relation oid)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_reason text := current_setting('fence.override', true);
BEGIN
    IF NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('role %I may not set fence.override', session_user),
            HINT = format('Only members of role %I may. RESET fence.override, and write under the lock.', current_user);
    ELSIF btrim(v_reason, E' \t\r\n') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'fence.override must be the reason of the repair, and is blank';
    END IF;
    -- A row trigger comes here for each row.
    PERFORM FROM fence.override_log AS l
        WHERE l.began = now() AND l.transaction = pg_current_xact_id() AND l.relation = p_relation::regclass::text;
    IF NOT FOUND THEN
        INSERT INTO fence.override_log
            VALUES (now(), pg_current_xact_id(), p_relation::regclass, v_reason, session_user,
                current_setting('application_name'), coalesce(host(inet_client_addr()), 'local'));
        RAISE LOG 'fence.override: role % writes %, reason %', quote_ident(session_user),
            CASE WHEN p_relation = 0 THEN 'without a tag' ELSE format('to guarded table %s', p_relation::regclass) END,
            quote_literal(v_reason);
    END IF;
END
$$;

-- Whether this is a process of a subscription: one that applies changes, or
-- that copies a table at the start.
CREATE OR REPLACE FUNCTION fence.applying()
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_stat_get_subscription(NULL) AS s WHERE s.pid = pg_backend_pid());
END
$$;
