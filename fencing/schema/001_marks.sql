-- Step to version 1: the tables. A step runs once in a database's life, in
-- order, and is never changed after a release; functions and rights stand in
-- files of their own, which every install runs again.

-- Which version of this schema is installed; one row.
CREATE TABLE fence.meta (
    singleton    boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
    version      integer     NOT NULL,
    installed_at timestamptz NOT NULL,
    installed_by text        NOT NULL
);

-- The etcd histories that tokens came from, the current one last. Tokens are
-- comparable within one of them only.
CREATE TABLE fence.lineage (
    epoch      integer     PRIMARY KEY CHECK (epoch > 0),
    cluster    text        NOT NULL,
    adopted_at timestamptz NOT NULL,
    adopted_by text        NOT NULL
);

-- The marks: the highest token that was accepted for each key, and from whom.
-- A row is made and raised by fence.claim and by nothing else; a transaction
-- that was checked holds a share lock on its row until it ends. The space left
-- in each page is for new versions of the rows in it, so that a key that
-- changes hands often stays in its page.
CREATE TABLE fence.mark (
    resource_key text        COLLATE "C" PRIMARY KEY,
    token        bigint      NOT NULL CHECK (token > 0),
    lock_key     text        NOT NULL,
    lineage      integer     NOT NULL,
    claimed_at   timestamptz NOT NULL,
    claimed_by   text        NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Each claim asks for the highest mark of its lineage, to see etcd's history
-- go backwards.
CREATE INDEX mark_highest ON fence.mark (lineage, token);
