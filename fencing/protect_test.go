package fencing_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"order:{id}":                        "",
		"{id}":                              "",
		"{a}-{b}":                           "",
		"nightly":                           "",
		"{{{id}}}":                          "",
		`a\b'c"{Id "x}`:                     "",
		"":                                  "is empty",
		"{a}{b}":                            "{b} follows another column directly",
		"order:{id":                         "has no } after it",
		"order:id}":                         "has no { before it",
		"{}":                                "{} is not the name of a column",
		"{a{b}":                             "{a{b} is not the name of a column",
		"{{id}":                             "has no { before it",
		"a\x00":                             "none that is zero",
		strings.Repeat("k", 2049):           "at most 2048 bytes",
		strings.Repeat("{a}-", 17):          "at most 16 columns",
		"{" + strings.Repeat("n", 64) + "}": "is not the name of a column",
	} {
		got, err := fencing.ParseTemplate(template)
		switch {
		case want == "" && (err != nil || got.String() != template):
			t.Errorf("%q: got %q, %v", template, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", template, err, want)
		}
	}
}

// TestProtect_Template: what the braces, quotes and backslashes of a template
// and of a column's name come to in PostgreSQL.
func TestProtect_Template(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	root := s.root()
	for template, key := range map[string]string{
		`{{{Id "x'}}}`:     `{7}`,
		`it's \{r}{{}}`:    `it's \8{}`,
		`%s%1$s-{r}`:       `%s%1$s-8`,
		`{r}/{Id "x'}/{r}`: `8/7/8`,
		`{r}`:              `8`,
	} {
		s.exec(root, `CREATE TABLE "T ""x'%s" ("Id ""x'" int, r int)`)
		s.protect(`"T ""x'%s"`, template)
		_, err := root.Exec(t.Context(), `INSERT INTO "T ""x'%s" VALUES (7, 8)`)
		if want := "needs the lock " + key + ","; code(err) != "LF004" || !strings.Contains(text(err), want) {
			t.Errorf("%s: got %v, want LF004 and %q", template, err, want)
		}
		s.exec(root, `DROP TABLE "T ""x'%s"`)
	}
}

func TestProtect_Errors(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.exec(s.root(), `CREATE VIEW v AS SELECT * FROM job; CREATE SEQUENCE s; CREATE TABLE mixed (id int);
		CREATE TABLE parts (id int) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF parts DEFAULT;
		CREATE TABLE parts2 (id int) PARTITION BY RANGE (id); CREATE TABLE part2 PARTITION OF parts2 DEFAULT;
		CREATE ROLE owner LOGIN; CREATE TABLE owned (id int); ALTER TABLE owned OWNER TO owner;
		GRANT owner TO `+adminRol)
	s.protect("parts", "order:{id}")
	s.protect("part2", "order:{id}")
	s.exec(s.dial(postgres.Superuser, "postgres"), "CREATE TABLE elsewhere (id int)")
	for _, c := range []struct{ user, db, table, key, want string }{
		{"postgres", database, "nowhere", "order:{id}", "no such table"},
		{"postgres", database, "v", "order:{id}", "it is a view"},
		{"postgres", database, "s", "order:{id}", "not a table of an application"},
		{"postgres", database, "pg_class", "order:{oid}", "not a table of an application"},
		{"postgres", database, "fence.mark", "order:{token}", "not a table of an application"},
		{"postgres", database, "job", "order:{Id}", "no stored column Id"},
		{"postgres", database, "job", "order:{ctid}", "no stored column ctid"},
		{"postgres", database, "part", "order:{id}", "guarded already, as a part of public.parts"},
		{"postgres", database, "parts2", "order:{id}", "its part public.part2 is guarded by itself"},
		{"postgres", "postgres", "elsewhere", "order:{id}", "run fenceproxy init"},
		{adminRol, database, "mixed", "order:{id}", "GRANT \"postgres\" TO fence_admin"},
		{"owner", database, "owned", "order:{id}", "nor a member of role fence_admin"},
		{adminRol, database, "owned", "order:{id}", ""},
	} {
		_, err := protect(t.Context(), s.dial(c.user, c.db), c.table, c.key)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: got %v, want %q", c.user, c.table, err, c.want)
		}
	}
	for table, want := range map[string]string{"mixed": "not protected", "part": "fenceproxy unprotect public.parts", "nowhere": "no such table"} {
		if _, err := fencing.Unprotect(t.Context(), s.root(), table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("unprotect %s: got %v, want %q", table, err, want)
		}
	}
}

// guards lists the triggers of all guards, by table.
func (s *stack) guards() string {
	return one[string](s, s.root(), `SELECT coalesce(string_agg(DISTINCT t.tgrelid::regclass || ' ' || substr(t.tgname, 13) || ' ' || t.tgenabled::text, ', '), '')
		FROM pg_trigger AS t WHERE t.tgfoid = 'fence.guard()'::regprocedure`)
}

func TestProtect_Again(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	s.exec(s.root(), "CREATE TABLE parts (id int, n int) PARTITION BY RANGE (id)")
	if p := s.protect("parts", "order:{id}"); p.Table != "public.parts" || p.Was != "" || len(p.Also) != 0 {
		t.Errorf("first: got %+v", p)
	}
	s.exec(s.root(), "CREATE TABLE part PARTITION OF parts DEFAULT; ALTER TRIGGER fence_guard_truncate ON parts RENAME TO mine")
	if p := s.protect("parts", "job:{n}", fencing.ReplicaAllow); p.Was != "order:{id}" || strings.Join(p.Also, " ") != "public.part" {
		t.Errorf("again: got %+v", p)
	}
	if got, want := s.guards(), "part delete O, part insert O, part rows R, part truncate A, part update O, "+
		"parts delete O, parts insert O, parts rows A, parts truncate A, parts update O"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := s.root().Exec(t.Context(), "INSERT INTO parts VALUES (1, 2)"); code(err) != "LF004" || !strings.Contains(err.Error(), "job:2") {
		t.Errorf("got %v, want LF004 for job:2", err)
	}
	for _, sql := range []string{"TRUNCATE part", "TRUNCATE parts"} {
		if _, err := s.root().Exec(t.Context(), sql); code(err) != "LF007" {
			t.Errorf("%s: got %v, want LF007", sql, err)
		}
	}
	if got, want := one[string](s, s.root(), "SELECT concat_ws(' ', relation, template, replica_apply, by) FROM fence.guarded"), "parts job:{n} allow postgres"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.install() // and an install leaves the guards alone
	if name, err := fencing.Unprotect(t.Context(), s.root(), "parts"); err != nil || name != "public.parts" {
		t.Errorf("got %q, %v", name, err)
	}
	if got := s.guards() + one[string](s, s.root(), "SELECT coalesce(max(relation::text), '') FROM fence.guarded"); got != "" {
		t.Errorf("after unprotect: got %s", got)
	}
	s.exec(s.root(), "INSERT INTO parts VALUES (1, 2)")
}

// TestProtect_Detached: a partition keeps its guard when it is detached, and
// can be freed of it by itself.
func TestProtect_Detached(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	root := s.root()
	s.exec(root, "CREATE TABLE parts (id int) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF parts DEFAULT")
	s.protect("parts", "order:{id}")
	s.exec(root, "ALTER TABLE parts DETACH PARTITION part")
	for _, sql := range []string{"INSERT INTO part VALUES (1)", "TRUNCATE part"} {
		if _, err := root.Exec(t.Context(), sql); !strings.HasPrefix(code(err), "LF") {
			t.Errorf("%s: got %v, want a refusal", sql, err)
		}
	}
	for _, table := range []string{"parts", "part"} {
		if _, err := fencing.Unprotect(t.Context(), root, table); err != nil {
			t.Error(err)
		}
	}
	if got := s.guards(); got != "" {
		t.Errorf("got %s, want no trigger", got)
	}
}

// TestProtect_Waits: a transaction that wrote before the table was guarded has
// ended when Protect returns.
func TestProtect_Waits(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	conn := s.dial(appRole, database)
	s.exec(conn, "BEGIN; INSERT INTO job VALUES (1, 'early')")
	done := make(chan error, 1)
	root := s.root()
	s.exec(root, "SET application_name = 'protects'")
	go func() {
		_, err := protect(t.Context(), root, "job", "order:{id}")
		done <- err
	}()
	s.waitEvent(1, "wait_event_type = 'Lock' AND application_name = 'protects'")
	s.exec(conn, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO job VALUES (2, 'late')"); code(err) != "LF004" {
		t.Errorf("got %v, want LF004", err)
	}
}

// TestProtect_Replica: what a subscription applies, and copies at its start, is
// refused or let through as was chosen; for a table that has one, it must be.
func TestProtect_Replica(t *testing.T) {
	t.Parallel()
	s := newGuarded(t, "wal_level = logical")
	other := s.dial(postgres.Superuser, "postgres")
	root := s.root()
	const tables = "CREATE TABLE flat (id int PRIMARY KEY, v text); CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF parts DEFAULT;"
	s.exec(other, tables+"INSERT INTO flat VALUES (1); INSERT INTO parts VALUES (1); CREATE PUBLICATION p FOR TABLE flat, parts WITH (publish_via_partition_root)")
	s.exec(other, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	s.exec(root, tables)
	s.protect("flat", "order:{id}", fencing.ReplicaAllow)
	s.protect("parts", "order:{id}", fencing.ReplicaAllow)
	s.exec(root, "CREATE SUBSCRIPTION s CONNECTION '"+strings.ReplaceAll(s.srv.DSN(postgres.Superuser, "postgres"), "'", "''")+"' PUBLICATION p WITH (create_slot = false, slot_name = 's')")
	rows := func(want string) {
		t.Helper()
		poll.Until(s.t, want, func() bool {
			return one[string](s, root, "SELECT concat_ws(' ', (SELECT string_agg(id || coalesce(v, ''), ',' ORDER BY id) FROM flat), (SELECT string_agg(id || coalesce(v, ''), ',' ORDER BY id) FROM parts))") == want
		})
	}
	rows("1 1")
	s.exec(other, "INSERT INTO flat VALUES (2); INSERT INTO parts VALUES (2); UPDATE flat SET v = 'x' WHERE id = 1; DELETE FROM parts WHERE id = 1")
	rows("1x,2 2")
	for _, table := range []string{"flat", "parts"} {
		if _, err := s.dial(appRole, database).Exec(t.Context(), "DELETE FROM "+table); code(err) != "42501" {
			t.Errorf("got %v", err)
		}
		if _, err := root.Exec(t.Context(), "BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM "+table); code(err) != "LF004" {
			t.Errorf("a session that is no subscription: got %v, want LF004", err)
		}
		s.exec(root, "ROLLBACK")
		if _, err := protect(t.Context(), root, table, "order:{id}"); err == nil || !strings.Contains(err.Error(), "choose --replica-apply") {
			t.Errorf("%s: got %v, want to be asked", table, err)
		}
		s.protect(table, "order:{id}", fencing.ReplicaRefuse)
	}
	s.exec(other, "INSERT INTO flat VALUES (3)")
	s.logged("needs the lock order:3")
	s.protect("flat", "order:{id}", fencing.ReplicaAllow)
	rows("1x,2,3 2")
	s.exec(other, "INSERT INTO parts VALUES (4)")
	s.logged("needs the lock order:4")
	s.exec(root, "ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
}

// logged waits for a text in the server's log.
func (s *stack) logged(want string) {
	s.t.Helper()
	poll.Until(s.t, "the server logs "+want, func() bool {
		text, err := os.ReadFile(s.srv.LogFile())
		if err != nil {
			s.t.Fatal(err)
		}
		return strings.Contains(string(text), want)
	})
}

// TestProtect_Restore: a dump of the database has the guards in it, and its
// data comes in before they stand.
func TestProtect_Restore(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	root := s.root()
	s.exec(root, "CREATE SCHEMA shop; CREATE TABLE shop.parts (id int) PARTITION BY RANGE (id); CREATE TABLE shop.part PARTITION OF shop.parts DEFAULT")
	s.protect("job", "order:{id}")
	s.protect("shop.parts", `it's \{id}`, fencing.ReplicaAllow)
	s.exec(root, override+"INSERT INTO job VALUES (1); INSERT INTO shop.parts VALUES (1)")
	s.exec(root, "CREATE DATABASE copy")
	run := func(program string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), s.srv.Program(program), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
	}
	file := t.TempDir() + "/dump"
	run("pg_dump", "-d", s.srv.DSN(postgres.Superuser, database), "-f", file)
	run("psql", "-X", "-v", "ON_ERROR_STOP=1", "-q", "-f", file, "-d", s.srv.DSN(postgres.Superuser, "copy"))
	conn := s.dial(postgres.Superuser, "copy")
	const triggers = "SELECT string_agg(pg_get_triggerdef(oid) || tgenabled::text, E'\n' ORDER BY tgrelid::regclass::text, tgname) FROM pg_trigger WHERE tgfoid = 'fence.guard()'::regprocedure"
	if got, want := one[string](s, conn, triggers), one[string](s, root, triggers); got != want {
		t.Errorf("triggers: got\n%s\nwant\n%s", got, want)
	}
	const guarded = "SELECT string_agg(relation::regclass || template || replica_apply, ', ' ORDER BY template) FROM fence.guarded"
	if got, want := one[string](s, conn, guarded), one[string](s, root, guarded); got != want {
		t.Errorf("guarded: got %s, want %s", got, want)
	}
	for _, sql := range []string{"INSERT INTO job VALUES (2)", "DELETE FROM job", "UPDATE shop.part SET id = 1", "SET session_replication_role = replica; DELETE FROM job"} {
		if _, err := conn.Exec(t.Context(), sql); code(err) != "LF004" {
			t.Errorf("%s: got %v, want LF004", sql, err)
		}
	}
	if _, _, err := fencing.Install(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// TestInstall_From2: what the program before had installed gets the guards.
func TestInstall_From2(t *testing.T) {
	t.Parallel()
	s := newBareStack(t)
	conn := s.dial(adminRol, database)
	if _, err := fencing.InstallFrom(t.Context(), conn, fencing.SchemaFiles(), 2); err != nil {
		t.Fatal(err)
	}
	if from, _ := s.install(); from != 2 {
		t.Errorf("got from %d, want 2", from)
	}
	s.protect("job", "order:{id}")
	if _, err := s.dial(appRole, database).Exec(t.Context(), "INSERT INTO job VALUES (1)"); code(err) != "LF004" {
		t.Errorf("got %v, want LF004", err)
	}
}
