-- Everybody may run the check and ask for locks, and nobody but the owner anything
-- else. Roles
-- that run claims without owning the schema are granted EXECUTE on fence.claim,
-- fence.accepted, fence.current_lineage and fence.version by hand (fence.old_marks
-- and fence.forget too where marks are to be removed), and keep it over upgrades
-- that leave these functions' arguments as they are.
REVOKE ALL ON SCHEMA fence FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA fence FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fence FROM PUBLIC;
GRANT USAGE ON SCHEMA fence TO PUBLIC;
GRANT EXECUTE ON FUNCTION fence.check(boolean) TO PUBLIC;
GRANT EXECUTE ON FUNCTION fence.acquire(text, text, text), fence.renew(text), fence.release(text) TO PUBLIC;
