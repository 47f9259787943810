-- Step to version 4: how far etcd had come when marks were removed last, or
-- when the lineage was adopted. A verification that is older tells nothing of a
-- key without a mark, and an etcd that is behind it has lost its history.
ALTER TABLE fence.lineage ADD COLUMN floor bigint NOT NULL DEFAULT 0;

-- They say of which lineage their answer is; the definitions follow.
DROP FUNCTION IF EXISTS fence.whereabouts();
DROP FUNCTION IF EXISTS fence.accepted(text);
DROP FUNCTION IF EXISTS fence.claim(text, bigint, text, text, bigint, text);
