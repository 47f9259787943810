#!/bin/sh
# Copies the primary when the standby's data folder is new, and follows it. A
# copy that was broken off is made anew.
set -eu
umask 077
primary="host=${PRIMARY_HOST:-primary} port=${PRIMARY_PORT:-5432} user=standby application_name=standby"

if [ ! -e "$PGDATA/standby.signal" ] && [ ! -e "$PGDATA/copied" ]; then
	find "$PGDATA" -mindepth 1 -delete
	PGPASSWORD=$STANDBY_PASSWORD pg_basebackup --pgdata "$PGDATA" --dbname "$primary" \
		--slot standby --wal-method stream --checkpoint fast --write-recovery-conf --no-password
	# Once promoted it has no standby.signal, and is no copy to throw away.
	touch "$PGDATA/copied"
fi
exec postgres "$@"
