-- The two roles that fenceproxy needs, with as little as it can do with; to be
-- run by a superuser in the database to protect, before `fenceproxy init`:
--
--   psql -d app -v password="'secret'" -f roles.sql
--   fenceproxy init --upstream 'postgres://postgres@127.0.0.1:5432/app?role=fence_owner'
--   psql -d app -f grants.sql
--   fenceproxy serve --upstream postgres://fence:secret@127.0.0.1:5432/app …
--
-- fence_owner owns schema fence and nobody logs in as it: who has its rights can
-- move marks. fence is the proxies', and can do what claims do. -v proxy=… and
-- -v owner=… give them other names.
\set ON_ERROR_STOP on
\if :{?proxy} \else \set proxy fence \endif
\if :{?owner} \else \set owner fence_owner \endif
BEGIN;
CREATE ROLE :"owner" NOLOGIN;
CREATE ROLE :"proxy" LOGIN PASSWORD :password;
-- To see what blocks a claim, and to end it.
GRANT pg_read_all_stats, pg_signal_backend TO :"proxy";
SELECT current_database() AS database \gset
GRANT CREATE ON DATABASE :"database" TO :"owner";
COMMIT;
