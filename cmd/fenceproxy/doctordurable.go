package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// collect returns the rows of a query of one text column.
func collect(ctx context.Context, conn *pgx.Conn, query string, args ...any) ([]string, error) {
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// some joins names, of many the first few.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// lookAtDurability looks for settings that can lose what was committed.
func lookAtDurability(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	var fsync, pages, commit string
	const query = "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')"
	if err := conn.QueryRow(ctx, query).Scan(&fsync, &pages, &commit); err != nil {
		return err
	}
	if fsync == "on" {
		d.ok("fsync is on")
	} else {
		d.fail("ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();", "fsync is off: a crash of the machine can lose marks, and let stale tokens in again")
	}
	if pages == "on" {
		d.ok("full_page_writes is on")
	} else {
		d.warn("ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();",
			"full_page_writes is off: unless the file system writes whole pages, a crash of the machine can damage marks")
	}
	const roles = `
		SELECT concat_ws(' ', 'ALTER', CASE WHEN s.setrole = 0 THEN format('DATABASE %I', d.datname) ELSE format('ROLE %s', s.setrole::regrole) END,
			CASE WHEN s.setrole <> 0 AND s.setdatabase <> 0 THEN format('IN DATABASE %I', d.datname) END, 'RESET synchronous_commit;')
		FROM pg_db_role_setting AS s LEFT JOIN pg_database AS d ON d.oid = s.setdatabase CROSS JOIN unnest(s.setconfig) AS c
		WHERE c IN ('synchronous_commit=off', 'synchronous_commit=local') AND (s.setdatabase = 0 OR d.datname = current_database())
		ORDER BY 1`
	resets, err := collect(ctx, conn, roles)
	const risk = "claims wait for the disk all the same, but acknowledged writes of applications can be lost"
	switch {
	case err != nil:
		return err
	case len(resets) > 0:
		d.warn(some(resets), "synchronous_commit is off or local for a role or database: %s", risk)
	case commit == "off" || commit == "local":
		d.warn("ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();", "synchronous_commit is %s: %s", commit, risk)
	default:
		d.ok("synchronous_commit is %s", commit)
	}
	return nil
}

// lookAtStandbys looks whether a failover can lose what was acknowledged.
func lookAtStandbys(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	const query = `
		SELECT current_setting('synchronous_standby_names'), count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum')),
			count(*) FILTER (WHERE r.sync_state NOT IN ('sync', 'quorum'))
		FROM (VALUES (1)) AS one LEFT JOIN pg_stat_replication AS r ON r.state IN ('streaming', 'catchup')
			AND NOT EXISTS (SELECT FROM pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')`
	var names string
	var sync, async int
	if err := conn.QueryRow(ctx, query).Scan(&names, &sync, &async); err != nil {
		return err
	}
	switch {
	case names != "" && sync == 0:
		d.warn("Start the standby, or change synchronous_standby_names.",
			"no standby of synchronous_standby_names (%s) is connected: commits and claims wait for it", names)
	case sync > 0:
		d.ok("%s: a failover to it loses nothing that was acknowledged", counted(sync, "synchronous standby"))
	case async > 0:
		d.warn("Set synchronous_standby_names if that must not be.",
			"%s, none synchronous: a failover can lose acknowledged writes; every token is verified again after one", counted(async, "standby server"))
	}
	return nil
}

// lookAtPrepared looks for prepared transactions, which no claim can end.
func lookAtPrepared(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	prepared, err := collect(ctx, conn, "SELECT quote_literal(gid) FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared")
	if err == nil && len(prepared) > 0 {
		d.warn("COMMIT PREPARED or ROLLBACK PREPARED each of them.",
			"prepared transactions hold their locks, and a claim that waits for one can't end it: %s", some(prepared))
	}
	return err
}

// lookAtTagSettings looks for tags that were set for a role or a database: no
// proxy claims them.
func lookAtTagSettings(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	const query = `
		SELECT concat_ws(' ', 'ALTER', CASE WHEN s.setrole = 0 THEN format('DATABASE %I', d.datname) ELSE format('ROLE %s', s.setrole::regrole) END,
			CASE WHEN s.setrole <> 0 AND s.setdatabase <> 0 THEN format('IN DATABASE %I', d.datname) END,
			format('RESET %s;', split_part(c, '=', 1)))
		FROM pg_db_role_setting AS s LEFT JOIN pg_database AS d ON d.oid = s.setdatabase CROSS JOIN unnest(s.setconfig) AS c
		WHERE lower(c) LIKE 'fence.%' AND (s.setdatabase = 0 OR d.datname = current_database()) ORDER BY 1`
	resets, err := collect(ctx, conn, query)
	if err != nil {
		return err
	}
	everywhere, err := collect(ctx, conn, `SELECT name FROM unnest('{fence.key,fence.token,fence.tokens,fence.override}'::text[]) AS name
		WHERE current_setting(name, true) <> ''`)
	switch {
	case err != nil:
		return err
	case len(resets) > 0:
		d.warn(some(resets), "a setting of a role or a database is no way to tag: no proxy claims it, and every write under it is refused (LF002)")
	case len(everywhere) > 0:
		d.warn("Take it out.", "%s is set in postgresql.conf or in --upstream: no proxy claims such a tag, and every write under it is refused (LF002)", some(everywhere))
	default:
		d.ok("no tag is set for a role, a database or the server")
	}
	return nil
}
