package fencing_test

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestInstall_Idempotent(t *testing.T) {
	t.Parallel()
	s := newBareStack(t)
	if from, to := s.install(); from != 0 || to != fencing.SchemaVersion {
		t.Errorf("first: got %d to %d, want 0 to %d", from, to, fencing.SchemaVersion)
	}
	s.claim("a", 42)
	const grant = "GRANT EXECUTE ON FUNCTION fence.version() TO app_user; GRANT SELECT ON fence.status TO app_user"
	s.exec(s.dial(adminRol, database), grant)
	if from, to := s.install(); from != fencing.SchemaVersion || to != fencing.SchemaVersion {
		t.Errorf("again: got %d to %d, want %d to the same", from, to, fencing.SchemaVersion)
	}
	if got := s.mark("a"); got != 42 {
		t.Errorf("the mark is %d after the second install, want 42", got)
	}
	app := s.tagged("a", 42)
	s.exec(app, "SELECT fence.check()")
	s.exec(app, "SELECT fence.version(), (SELECT count(*) FROM fence.status)")
	if got, want := one[string](s, s.root(), "SELECT string_agg(DISTINCT pg_get_userbyid(relowner), ',') FROM pg_class WHERE relnamespace = 'fence'::regnamespace"), adminRol; got != want {
		t.Errorf("owner: got %s, want %s", got, want)
	}
}

// TestInstall_Mends: an install puts back what was damaged since.
func TestInstall_Mends(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	admin := s.dial(adminRol, database)
	s.exec(admin, "DROP FUNCTION fence.check(boolean); GRANT ALL ON fence.mark TO app_user; GRANT EXECUTE ON FUNCTION fence.check_key(text, bigint) TO PUBLIC")
	s.install()
	app := s.tagged("a", 41)
	for sql, want := range map[string]string{
		"SELECT fence.check()":             "LF001",
		"DELETE FROM fence.mark":           "42501",
		"SELECT fence.check_key('a', 42)":  "42501",
		"SELECT * FROM fence.mark":         "42501",
		"SELECT fence.check() WHERE false": "",
	} {
		if _, err := app.Exec(t.Context(), sql); code(err) != want {
			t.Errorf("%s: got %v, want %q", sql, err, want)
		}
	}
}

// TestInstall_Damaged: no install makes up for lost marks.
func TestInstall_Damaged(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	admin := s.dial(adminRol, database)
	for _, c := range []struct{ name, damage, says string }{
		{"a column", "ALTER TABLE fence.mark DROP COLUMN lock_key CASCADE", "table fence.mark lacks lock_key text"},
		{"the marks", "DROP TABLE fence.mark CASCADE", "table fence.mark is missing"},
		{"the version", "DELETE FROM fence.meta", "table fence.meta is empty"},
		{"the version's table", "DROP TABLE fence.meta", "table fence.meta is missing"},
	} {
		s.exec(admin, c.damage)
		_, _, err := fencing.Install(t.Context(), admin)
		if err == nil || !strings.Contains(err.Error(), "damaged: "+c.says) || !strings.Contains(err.Error(), "DROP SCHEMA fence CASCADE") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line that says %q and the mend", c.name, err, c.says)
		}
	}
	s.exec(admin, "DROP SCHEMA fence CASCADE")
	s.install()
	s.claim("a", 1)
}

var newerStep = fmt.Sprintf("%03d_more.sql", fencing.SchemaVersion+1)

// newer returns the program's own files with a step to one version more.
func newer(t *testing.T, step string) fs.FS {
	t.Helper()
	files := fstest.MapFS{"schema/" + newerStep: {Data: []byte(step)}}
	own := fencing.SchemaFiles()
	names, err := fs.Glob(own, "schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(own, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

// What a database in any encoding takes, and what its clients in any can be told.
func TestSchemaFiles_ASCII(t *testing.T) {
	own := fencing.SchemaFiles()
	names, err := fs.Glob(own, "schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(own, name)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.IndexFunc(string(text), func(r rune) bool { return r > 0x7F }); at >= 0 {
			t.Errorf("%s: byte %d is no ASCII", name, at)
		}
	}
}

func TestInstall_Upgrade(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	admin := s.dial(adminRol, database)
	version := func() int { return one[int](s, admin, "SELECT version FROM fence.meta") }

	_, err := fencing.InstallFrom(t.Context(), admin, newer(t, "ALTER TABLE fence.mark ADD note text; SELECT 1/0"), fencing.SchemaVersion+1)
	if code(err) != "22012" || !strings.Contains(err.Error(), newerStep) {
		t.Errorf("a step that fails: got %v, want 22012 in %s", err, newerStep)
	}
	if got := version(); got != fencing.SchemaVersion {
		t.Errorf("version after a step that failed: %d, want %d", got, fencing.SchemaVersion)
	}

	files := newer(t, "ALTER TABLE fence.mark ADD note text")
	for i, want := range []int{fencing.SchemaVersion, fencing.SchemaVersion + 1} {
		from, err := fencing.InstallFrom(t.Context(), admin, files, fencing.SchemaVersion+1)
		if err != nil || from != want {
			t.Errorf("upgrade %d: got from %d, %v, want %d", i, from, err, want)
		}
	}
	if got := version(); got != fencing.SchemaVersion+1 {
		t.Errorf("version: got %d, want %d", got, fencing.SchemaVersion+1)
	}
	if got := s.mark("a"); got != 42 {
		t.Errorf("the mark is %d after the upgrade, want 42", got)
	}

	if _, _, err := fencing.Install(t.Context(), admin); err == nil || !strings.Contains(err.Error(), "use a newer fenceproxy") {
		t.Errorf("an older program's install: got %v", err)
	}
}

func TestInstall_TwoAtOnce(t *testing.T) {
	t.Parallel()
	s := newBareStack(t)
	var wg sync.WaitGroup
	for range 4 {
		conn := s.dial(adminRol, database)
		wg.Go(func() {
			if _, _, err := fencing.Install(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestInstall_Who(t *testing.T) {
	t.Parallel()
	install := func(t *testing.T, conn *pgx.Conn) string {
		if _, _, err := fencing.Install(t.Context(), conn); err != nil {
			return err.Error()
		}
		return ""
	}
	s := newBareStack(t)
	t.Run("a role that may not create", func(t *testing.T) {
		s := &stack{t: t, srv: s.srv}
		if got, want := install(t, s.dial(appRole, database)), "run GRANT CREATE ON DATABASE app TO app_user"; !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	})
	t.Run("a schema of somebody else's", func(t *testing.T) {
		s := &stack{t: t, srv: s.srv}
		s.exec(s.root(), "CREATE SCHEMA fence AUTHORIZATION app_user")
		if got, want := install(t, s.root()), "role app_user made for something else"; !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
		s.exec(s.root(), "DROP SCHEMA fence")
	})
	t.Run("the owner, and then a superuser", func(t *testing.T) {
		s := &stack{t: t, srv: s.srv}
		s.install()
		s.exec(s.root(), "DROP VIEW fence.status")
		if got := install(t, s.root()); got != "" {
			t.Fatal(got)
		}
		if got := one[string](s, s.root(), "SELECT viewowner FROM pg_views WHERE schemaname = 'fence'"); got != adminRol {
			t.Errorf("what a superuser made anew belongs to %s, want %s", got, adminRol)
		}
	})
	t.Run("a stranger to an installed schema", func(t *testing.T) {
		s := &stack{t: t, srv: s.srv}
		if got, want := install(t, s.dial(appRole, database)), "schema fence belongs to role fence_admin"; !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	})
}
