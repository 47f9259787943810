#!/bin/sh
# Run by the image of PostgreSQL once, when the primary's data folder is new:
# roles, what a standby needs, and that commits wait for it.
set -eu

psql --no-psqlrc --username postgres --dbname "$POSTGRES_DB" \
	--set password="'$FENCE_PASSWORD'" --file "${ROLES_SQL:-/roles.sql}"
psql --no-psqlrc --username postgres --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 \
	--set app="'$APP_PASSWORD'" --set standby="'$STANDBY_PASSWORD'" <<'SQL'
CREATE ROLE app LOGIN PASSWORD :app;
CREATE SCHEMA app AUTHORIZATION app;
CREATE ROLE standby LOGIN REPLICATION PASSWORD :standby;
SELECT pg_create_physical_replication_slot('standby');
-- In force at the next start: the server that runs now has no standby to wait for.
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo 'host replication standby all scram-sha-256' >>"$PGDATA/pg_hba.conf"
