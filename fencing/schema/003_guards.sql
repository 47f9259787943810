-- Step to version 3: the guards of tables.

-- The tables that `fenceproxy protect` was run on. The triggers are what
-- guards; this says what they should be. A dump writes regclass as a name, and
-- so the row finds its table after a restore.
CREATE TABLE fence.guarded (
    relation      regclass    PRIMARY KEY,
    template      text        NOT NULL,
    replica_apply text        NOT NULL CHECK (replica_apply IN ('refuse', 'allow')),
    since         timestamptz NOT NULL,
    by            text        NOT NULL
);

-- Every use of fence.override: one row for each transaction and table. A
-- transaction's id and beginning together are unique, even where the ids begin
-- anew after a restore.
CREATE TABLE fence.override_log (
    began       timestamptz NOT NULL,
    transaction xid8        NOT NULL,
    relation    text        NOT NULL,
    reason      text        NOT NULL,
    by          text        NOT NULL,
    application text        NOT NULL,
    client      text        NOT NULL,
    PRIMARY KEY (began, transaction, relation)
);
