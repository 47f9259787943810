-- What the proxies' role may do with schema fence, once `fenceproxy init` has
-- made it: see roles.sql. Run it again after an upgrade that says so; it does
-- no harm.
\set ON_ERROR_STOP on
\if :{?proxy} \else \set proxy fence \endif
BEGIN;
GRANT EXECUTE ON FUNCTION fence.version, fence.current_lineage, fence.accepted, fence.claim TO :"proxy";
-- To remove the marks of locks that are gone (--mark-retention).
GRANT EXECUTE ON FUNCTION fence.old_marks, fence.forget TO :"proxy";
-- To show them: SHOW MARKS on the console.
GRANT SELECT ON fence.status TO :"proxy";
-- To answer unknown users as it answers known ones (--client-tls).
GRANT EXECUTE ON FUNCTION fence.mock_key TO :"proxy";
COMMIT;
