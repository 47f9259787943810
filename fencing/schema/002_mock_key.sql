-- Step to version 2: what the salts of roles that don't exist are made from.
-- All proxies share it, over restarts too, and no application may read it: who
-- has it can tell such a salt from a real one.
ALTER TABLE fence.meta ADD COLUMN mock_key bytea NOT NULL
    DEFAULT pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) || pg_catalog.uuid_send(pg_catalog.gen_random_uuid());
