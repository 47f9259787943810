-- What operators look at: every mark, and whether its token still counts.
CREATE OR REPLACE VIEW fence.status AS
    SELECT m.resource_key, m.token, m.lock_key, l.cluster, m.lineage AS epoch,
           m.lineage = (SELECT pg_catalog.max(c.epoch) FROM fence.lineage AS c) AS current,
           m.claimed_at, m.claimed_by
    FROM fence.mark AS m
    LEFT JOIN fence.lineage AS l ON l.epoch = m.lineage;
