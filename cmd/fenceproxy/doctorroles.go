package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// logins is a query's first part: the roles that may log in and are none of
// those that run the fencing; owner is the owner of schema fence.
const logins = `
	WITH fence AS (SELECT oid, nspowner AS owner FROM pg_namespace WHERE nspname = 'fence'),
	login AS (
		SELECT r.oid, quote_ident(r.rolname) AS name FROM pg_roles AS r, fence
		WHERE r.rolcanlogin AND NOT r.rolsuper AND r.oid <> fence.owner AND r.rolname <> current_user) `

// lookAtRights looks for roles that may do with schema fence what only its owner
// and the claims should.
func lookAtRights(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	var usable bool
	const use = `SELECT has_schema_privilege('public', 'fence', 'USAGE') AND has_function_privilege('public', 'fence.check(boolean)', 'EXECUTE')`
	if err := conn.QueryRow(ctx, use).Scan(&usable); err != nil {
		return err
	}
	if !usable {
		d.fail("fenceproxy init", "applications may not run fence.check, so that every write under a tag fails")
	}
	found := false
	for _, look := range []struct {
		query string
		level level
		text  string
		do    string
	}{
		{"SELECT login.name FROM login WHERE " + anyOf(`has_table_privilege(login.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
			OR has_any_column_privilege(login.oid, c.oid, 'INSERT, UPDATE')`) + " AND NOT pg_has_role(login.oid, (SELECT owner FROM fence), 'USAGE')",
			levelFail, "may write the tables of schema fence, and so move marks: %s", "fenceproxy init takes the rights away again."},
		{"SELECT login.name FROM login, fence WHERE has_schema_privilege(login.oid, fence.oid, 'CREATE') AND NOT pg_has_role(login.oid, fence.owner, 'USAGE')",
			levelFail, "may create objects in schema fence: %s", "REVOKE CREATE ON SCHEMA fence FROM each of them."},
		{"SELECT DISTINCT r.rolname::text FROM fence, pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.relnamespace = fence.oid AND c.relowner <> fence.owner " +
			"UNION SELECT r.rolname FROM fence, pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner WHERE p.pronamespace = fence.oid AND p.proowner <> fence.owner",
			levelFail, "own something in schema fence, and are not its owner: %s", "Give it back to the schema's owner: ALTER … OWNER TO."},
		{"SELECT login.name FROM login, fence WHERE pg_has_role(login.oid, fence.owner, 'MEMBER')",
			levelWarn, "members of the role that owns schema fence, who may move marks and override guards: %s", "Let that be people who repair, and no application."},
		{"SELECT login.name FROM login, fence, pg_proc AS p WHERE p.pronamespace = fence.oid AND p.proname = 'claim' " +
			"AND has_function_privilege(login.oid, p.oid, 'EXECUTE') AND NOT pg_has_role(login.oid, fence.owner, 'USAGE')",
			levelWarn, "may run fence.claim, and so make a mark of any number: %s", "REVOKE EXECUTE ON FUNCTION fence.claim FROM each that runs no proxy."},
	} {
		names, err := collect(ctx, conn, logins+look.query+" ORDER BY 1")
		if err != nil {
			return err
		}
		if len(names) > 0 {
			found = true
			d.add(look.level, look.do, look.text, some(names))
		}
	}
	if !found {
		d.ok("only the owner of schema fence can")
	}
	return nil
}

// anyOf asks about each table in schema fence.
func anyOf(condition string) string {
	return "EXISTS (SELECT FROM pg_class AS c, fence WHERE c.relnamespace = fence.oid AND c.relkind = 'r' AND (" + condition + "))"
}

// lookAtRoles looks for superusers, whom nothing here binds, and whether the
// owner of schema fence is an application's role.
func lookAtRoles(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	const query = `SELECT quote_ident(o.rolname), o.rolsuper, quote_ident(current_user), (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
		FROM pg_namespace AS n JOIN pg_roles AS o ON o.oid = n.nspowner WHERE n.nspname = 'fence'`
	var owner, self string
	var ownerSuper, selfSuper bool
	if err := conn.QueryRow(ctx, query).Scan(&owner, &ownerSuper, &self, &selfSuper); err != nil {
		return err
	}
	const tables = `SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relowner = (SELECT nspowner FROM pg_namespace WHERE nspname = 'fence') AND c.relkind IN ('r', 'p', 'm', 'v', 'S', 'f')
			AND n.nspname NOT IN ('fence', 'information_schema') AND n.nspname NOT LIKE 'pg\_%' ORDER BY 1`
	owned, err := collect(ctx, conn, tables)
	if err != nil {
		return err
	}
	const apart = "Give applications a role of their own, and what they need: REASSIGN OWNED, GRANT."
	switch {
	case len(owned) > 0 && !ownerSuper:
		d.fail(apart, "role %s owns schema fence and %s: who writes there as %s can move marks", owner, some(owned), owner)
	case len(owned) > 0:
		d.warn(apart, "superuser %s owns schema fence and %s: who writes there as %s can move marks", owner, some(owned), owner)
	case ownerSuper || selfSuper:
		d.warn("Make a role as the README's quick start does, and let it own schema fence.", "the proxies' role %s, or the owner of schema fence, %s, is a superuser: it needs less", self, owner)
	default:
		d.ok("role %s owns schema fence and no table of an application", owner)
	}
	// The first superuser, of initdb, has OID 10.
	supers, err := collect(ctx, conn, "SELECT quote_ident(rolname) FROM pg_roles WHERE rolsuper AND rolcanlogin AND oid <> 10 AND rolname <> current_user ORDER BY 1")
	if err == nil && len(supers) > 0 {
		d.warn("ALTER ROLE … NOSUPERUSER for each that an application uses.",
			"superusers can move marks and switch guards off, and no claim can end their sessions: %s", some(supers))
	}
	return err
}

// lookAtGuards looks whether the tables that protect was run on still have all
// of their guard.
func lookAtGuards(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	const query = `
		WITH RECURSIVE down (root, oid) AS (
			SELECT relation::oid, relation::oid FROM fence.guarded
			UNION SELECT d.root, i.inhrelid FROM pg_inherits AS i JOIN down AS d ON i.inhparent = d.oid)
		SELECT d.root::regclass::text, d.oid::regclass::text, coalesce(c.relkind::text, ''), coalesce(pg_get_userbyid(c.relowner)::text, ''),
			coalesce(r.rolcanlogin AND NOT r.rolsuper, false),
			ARRAY(SELECT concat(t.tgname, ' ', t.tgenabled) FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
				WHERE t.tgrelid = d.oid AND p.pronamespace = 'fence'::regnamespace AND p.proname = 'guard'),
			coalesce((SELECT k.relkind::text FROM pg_class AS k WHERE k.oid = d.root), ''),
			d.oid <> d.root, EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = d.root)
		FROM down AS d LEFT JOIN pg_class AS c ON c.oid = d.oid LEFT JOIN pg_roles AS r ON r.oid = c.relowner ORDER BY 1, 2`
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return err
	}
	guarded, err := pgx.CollectRows(rows, pgx.RowToStructByPos[guardedTable])
	if err != nil {
		return err
	}
	if len(guarded) == 0 {
		d.ok("no table has a guard (fenceproxy protect): what comes round the proxy is not refused")
		return nil
	}
	whole, owners := 0, []string{}
	for _, g := range guarded {
		again := fmt.Sprintf("fenceproxy protect %s again, with its --key; or unprotect it.", g.Root)
		switch wrong := g.wrong(); {
		case g.Kind == "":
			d.warn("DELETE FROM fence.guarded WHERE relation = "+g.Root+";", "the guarded table %s is gone", g.Root)
		case wrong != "":
			d.fail(again, "table %s is not guarded as it should be: %s", g.Table, wrong)
		default:
			whole++
		}
		if g.Login && !slices.Contains(owners, g.Owner) {
			owners = append(owners, g.Owner)
		}
	}
	if whole > 0 {
		d.ok("%s with a whole guard", counted(whole, "table"))
	}
	if len(owners) > 0 {
		d.warn("Let guarded tables belong to a role that doesn't log in.", "roles that may log in own guarded tables, and so may drop their guards: %s", some(owners))
	}
	return nil
}

// A guardedTable is a table that should have a guard: one that protect was run
// on, or one below it.
type guardedTable struct {
	Root, Table, Kind, Owner string
	Login                    bool     // the owner may
	Triggers                 []string // name and tgenabled
	RootKind                 string
	Below, RootBelow         bool // the table is below Root, Root below another
}

// wrong says what the guard lacks.
func (g guardedTable) wrong() string {
	for _, want := range fencing.GuardTriggers(g.RootKind, g.RootBelow, g.Kind, g.Below) {
		name, _, _ := strings.Cut(want, " ")
		switch {
		case slices.Contains(g.Triggers, want), slices.Contains(g.Triggers, name+" A"):
		case slices.Contains(g.Triggers, name+" D"):
			return "trigger " + name + " is disabled"
		case slices.ContainsFunc(g.Triggers, func(s string) bool { return strings.HasPrefix(s, name+" ") }):
			return "trigger " + name + " doesn't fire when it should"
		default:
			return "trigger " + name + " is missing"
		}
	}
	return ""
}
