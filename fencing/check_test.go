package fencing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// TestCheck runs fence.check in a session of its own for each case: setup ends
// without an error, and check answers with the code.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	s.claim("b", 50)
	s.claim("ключ/1", 51)
	const (
		good   = "SET fence.key = 'a'; SET fence.token = 42"
		old    = "SET fence.key = 'a'; SET fence.token = 41"
		future = "SET fence.key = 'a'; SET fence.token = 43"
		none   = "SET fence.key = 'never'; SET fence.token = 43"
		check  = "SELECT fence.check()"
	)
	cases := []struct {
		name  string
		setup []string
		check string
		want  string
		says  string
	}{
		{"untagged", nil, check, "", ""},
		{"untagged where a token is required", nil, "SELECT fence.check(true)", "LF004", "token_required: "},
		{"reset is untagged", []string{good, "RESET fence.key; RESET fence.token"}, "SELECT fence.check(true)", "LF004", "token_required: "},
		{"current", []string{good}, check, "", ""},
		{"current where a token is required", []string{good}, "SELECT fence.check(true)", "", ""},
		{"current with zeros before it", []string{"SET fence.key = 'a'; SET fence.token = '0042'"}, check, "", ""},
		{"current, not ASCII", []string{"SET fence.key = 'ключ/1'; SET fence.token = 51"}, check, "", ""},
		{"stale", []string{old}, check, "LF001", "stale_token: a token 41 was superseded by 42"},
		{"stale in a block", []string{old, "BEGIN", "SELECT 1"}, check, "LF001", "superseded by 42"},
		{"stale after a savepoint", []string{old, "BEGIN", "SAVEPOINT x"}, check, "LF001", "superseded by 42"},
		{"stale for this transaction", []string{good, "BEGIN", "SET LOCAL fence.token = 41"}, check, "LF001", "superseded by 42"},
		{"current again after the transaction", []string{good, "BEGIN", "SET LOCAL fence.token = 41", "COMMIT"}, check, "", ""},
		{"not claimed", []string{future}, check, "LF002", "not_holder: a token 43 was not claimed"},
		{"never claimed", []string{none}, check, "LF002", "no token is accepted"},
		{"read-only, current", []string{good, "BEGIN READ ONLY"}, check, "", ""},
		{"read-only, stale", []string{old, "BEGIN READ ONLY"}, check, "LF001", "superseded by 42"},
		{"read-only, not claimed", []string{future, "BEGIN READ ONLY"}, check, "LF002", "not claimed"},
		{"read-only by default", []string{old, "SET default_transaction_read_only = on"}, check, "LF001", "superseded by 42"},
		{"read-only after a write", []string{good, "BEGIN; CREATE TEMP TABLE written ()", "SET TRANSACTION READ ONLY"}, check, "LF007", "not_fenceable: "},
		{"read-only after a write, stale", []string{old, "BEGIN; CREATE TEMP TABLE written ()", "SET TRANSACTION READ ONLY"}, check, "LF001", "superseded by 42"},
		{"read-only after a read", []string{good, "BEGIN; SELECT 1", "SET TRANSACTION READ ONLY"}, check, "", ""},
		{"repeatable read, current", []string{good, "BEGIN ISOLATION LEVEL REPEATABLE READ"}, check, "", ""},
		{"repeatable read, stale", []string{old, "BEGIN ISOLATION LEVEL REPEATABLE READ"}, check, "LF001", "superseded by 42"},
		{"repeatable read, never claimed", []string{none, "BEGIN ISOLATION LEVEL REPEATABLE READ"}, check, "LF002", "never"},
		{"serializable, current", []string{good, "BEGIN ISOLATION LEVEL SERIALIZABLE"}, check, "", ""},
		{"serializable, not claimed", []string{future, "BEGIN ISOLATION LEVEL SERIALIZABLE"}, check, "LF002", "not claimed"},
		{"read uncommitted, stale", []string{old, "BEGIN ISOLATION LEVEL READ UNCOMMITTED"}, check, "LF001", "superseded by 42"},
		{"key without token", []string{"SET fence.key = 'a'"}, check, "LF009", "fence.key is set but fence.token is not"},
		{"token without key", []string{"SET fence.token = 42"}, check, "LF009", "fence.token is set but fence.key is not"},
		{"token is a word", []string{"SET fence.key = 'a'; SET fence.token = 'x'"}, check, "LF009", "not a positive whole number"},
		{"token is zero", []string{"SET fence.key = 'a'; SET fence.token = '0'"}, check, "LF009", "not a positive whole number"},
		{"token is negative", []string{"SET fence.key = 'a'; SET fence.token = '-42'"}, check, "LF009", "not a positive whole number"},
		{"token has a space", []string{"SET fence.key = 'a'; SET fence.token = ' 42'"}, check, "LF009", "not a positive whole number"},
		{"token is 2^63", []string{"SET fence.key = 'a'; SET fence.token = '9223372036854775808'"}, check, "LF009", "not a positive whole number"},
		{"token is 2^63-1", []string{"SET fence.key = 'a'; SET fence.token = '9223372036854775807'"}, check, "LF002", "not claimed"},
		{"token is huge", []string{"SET fence.key = 'a'; SET fence.token = '" + strings.Repeat("9", 200000) + "'"}, check, "LF009", "not a positive whole number"},
		{"key is too long", []string{"SET fence.key = '" + strings.Repeat("k", 2049) + "'; SET fence.token = 1"}, check, "LF009", "2048"},
		{"several, current", []string{`SET fence.tokens = '{"a": 42, "b": 50}'`}, check, "", ""},
		{"several, one stale", []string{`SET fence.tokens = '{"a": 42, "b": 49}'`}, check, "LF001", "b token 49 was superseded by 50"},
		{"several, one not claimed", []string{`SET fence.tokens = '{"a": 42, "b": 51}'`}, check, "LF002", "b token 51"},
		{"several, stale, read-only", []string{`SET fence.tokens = '{"a": 42, "b": 49}'`, "BEGIN READ ONLY"}, check, "LF001", "b token 49"},
		{"union with the single pair", []string{`SET fence.tokens = '{"a": 42}'; SET fence.key = 'b'; SET fence.token = 49`}, check, "LF001", "b token 49"},
		{"union, the single pair current", []string{`SET fence.tokens = '{"b": 49}'; ` + good}, check, "LF001", "b token 49"},
		{"union, the same pair twice", []string{`SET fence.tokens = '{"a": 42}'; ` + good}, check, "", ""},
		{"union, two tokens for a key", []string{`SET fence.tokens = '{"a": 42}'; ` + old}, check, "LF009", "two tokens"},
		{"several, a key twice", []string{`SET fence.tokens = '{"a": 42, "a": 41}'`}, check, "LF009", "two tokens"},
		{"several, none", []string{`SET fence.tokens = '{}'`}, check, "", ""},
		{"several, none where one is required", []string{`SET fence.tokens = '{}'`}, "SELECT fence.check(true)", "LF004", "token_required: "},
		{"several, no JSON", []string{`SET fence.tokens = 'a=42'`}, check, "LF009", "fence.tokens is not a JSON object"},
		{"several, an array", []string{`SET fence.tokens = '[42]'`}, check, "LF009", "fence.tokens is not a JSON object"},
		{"several, a string token", []string{`SET fence.tokens = '{"a": "42"}'`}, check, "LF009", "not a positive whole number"},
		{"several, a null token", []string{`SET fence.tokens = '{"a": null}'`}, check, "LF009", "not a positive whole number"},
		{"several, a fraction", []string{`SET fence.tokens = '{"a": 42.0}'`}, check, "LF009", "not a positive whole number"},
		{"several, an empty key", []string{`SET fence.tokens = '{"": 42}'`}, check, "LF009", "a key is empty"},
		{"several, a NUL in a key", []string{`SET fence.tokens = '{"a\u0000": 42}'`}, check, "LF009", "fence.tokens is not a JSON object"},
		{"late, nothing written", []string{old, "BEGIN", "SELECT 1"}, check + " WHERE pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL", "", ""},
		{"late, written", []string{old, "BEGIN", "INSERT INTO job VALUES (1)"}, check + " WHERE pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL", "LF001", "superseded by 42"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &stack{t: t, srv: s.srv}
			conn := s.dial(appRole, database)
			for _, sql := range c.setup {
				s.exec(conn, sql)
			}
			_, err := conn.Exec(t.Context(), c.check)
			if got := code(err); got != c.want {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if err != nil && !strings.Contains(text(err), c.says) {
				t.Errorf("got %q, want it to say %q", text(err), c.says)
			}
			if err != nil && hint(err) == "" {
				t.Error("no hint")
			}
		})
	}
}

func pgError(err error) *pgconn.PgError {
	var pgErr *pgconn.PgError
	errors.As(err, &pgErr)
	return pgErr
}

func text(err error) string { return pgError(err).Message + "\n" + pgError(err).Detail }
func hint(err error) string { return pgError(err).Hint }

// TestCheck_OldSnapshot: with one snapshot for the whole transaction, a claim
// after it is LF001, never a retry.
func TestCheck_OldSnapshot(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	cases := []struct {
		name   string
		before bool // a mark at 41 before the snapshot
		token  string
	}{
		{"superseded after the snapshot", true, "41"},
		{"the holder's own claim after the snapshot", true, "42"},
		{"the key's first claim after the snapshot", false, "42"},
	}
	for _, c := range cases {
		for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
			t.Run(c.name+"/"+level, func(t *testing.T) {
				s := &stack{t: t, srv: s.srv}
				s.exec(s.root(), "DELETE FROM fence.mark")
				if c.before {
					s.claim("a", 41)
				}
				conn := s.dial(appRole, database)
				s.exec(conn, "SET fence.key = 'a'; SET fence.token = "+c.token)
				s.exec(conn, "BEGIN ISOLATION LEVEL "+level)
				s.exec(conn, "SELECT count(*) FROM job")
				s.claim("a", 42)
				_, err := conn.Exec(t.Context(), "SELECT fence.check()")
				if code(err) != "LF001" || !strings.HasPrefix(pgError(err).Message, "stale_token: a token "+c.token) {
					t.Fatalf("got %v, want LF001", err)
				}
				if !strings.Contains(hint(err), "Begin the transaction after the lock was acquired") {
					t.Errorf("hint: got %q", hint(err))
				}
			})
		}
	}
	if got := s.mark("a"); got != 42 {
		t.Errorf("the mark is %d, want 42", got)
	}
}

// TestCheck_RollbackTo: a lock that was taken after a savepoint goes with it,
// and a second check sees the claim that went through.
func TestCheck_RollbackTo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	conn := s.tagged("a", 41)
	for _, sql := range []string{"BEGIN", "SAVEPOINT x", "SELECT fence.check()", "ROLLBACK TO x"} {
		s.exec(conn, sql)
	}
	s.claim("a", 42)
	if _, err := conn.Exec(t.Context(), "SELECT fence.check()"); code(err) != "LF001" {
		t.Errorf("got %v, want LF001", err)
	}
}

// TestCheck_LocksInOrder: sessions with the same keys can't lock crosswise,
// however they write them; with the locks in the order of the text, a claim of
// b between them would make a deadlock.
func TestCheck_LocksInOrder(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	s.claim("b", 42)
	first := s.dial(postgres.Superuser, database)
	s.exec(first, "BEGIN")
	s.exec(first, "SELECT FROM fence.mark WHERE resource_key = 'a' FOR UPDATE")
	conn := s.dial(appRole, database)
	s.exec(conn, `SET fence.tokens = '{"b": 42, "a": 41}'; SET application_name = 'in order'`)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT fence.check()")
		done <- err
	}()
	s.waitEvent(1, "wait_event_type = 'Lock' AND application_name = 'in order'")
	// It waits for a, and so must not have b yet.
	s.exec(first, "SELECT FROM fence.mark WHERE resource_key = 'b' FOR UPDATE NOWAIT")
	s.exec(first, "COMMIT")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCheck_Rights(t *testing.T) {
	t.Parallel()
	s := newBareStack(t)
	// What an administrator may have set up for all new objects.
	admin := s.dial(adminRol, database)
	for _, kind := range []string{"TABLES", "FUNCTIONS", "SCHEMAS"} {
		s.exec(admin, "ALTER DEFAULT PRIVILEGES GRANT ALL ON "+kind+" TO "+appRole+" WITH GRANT OPTION")
	}
	s.install()
	s.claim("a", 42)
	app := s.tagged("a", 42)
	s.exec(app, "SELECT fence.check()")
	for _, sql := range []string{
		"SELECT * FROM fence.mark",
		"SELECT * FROM fence.mark FOR SHARE",
		"SELECT * FROM fence.status",
		"SELECT * FROM fence.meta",
		"INSERT INTO fence.mark VALUES ('z', 1, '', 1, now(), '')",
		"UPDATE fence.mark SET token = 1",
		"DELETE FROM fence.mark",
		"TRUNCATE fence.mark",
		"DO $$BEGIN LOCK TABLE fence.mark IN ACCESS SHARE MODE; END$$",
		"DROP TABLE fence.mark",
		"DROP SCHEMA fence CASCADE",
		"ALTER TABLE fence.mark DISABLE TRIGGER ALL",
		"CREATE TABLE fence.mine (n int)",
		"CREATE OR REPLACE FUNCTION fence.check(required boolean DEFAULT false) RETURNS void LANGUAGE sql AS ''",
		"SELECT fence.claim('a', 99, 'k', 'c1', 99, 1, 'me')",
		"SELECT fence.current_lineage()",
		"SELECT fence.old_marks('0s', '', 10)",
		"SELECT fence.forget('{a}', '{42}', 1, 99, '0s')",
		"SELECT fence.accepted('a')",
		"SELECT fence.check_tag(false)",
		"SELECT fence.check_key('a', 42)",
		"SELECT fence.refuse_tag('x')",
		"SELECT fence.version()",
		"SELECT fence.mock_key()",
		"SELECT fence.whereabouts()",
	} {
		if _, err := app.Exec(t.Context(), sql); code(err) != "42501" {
			t.Errorf("%s: got %v, want 42501", sql, err)
		}
	}
	if got := s.mark("a"); got != 42 {
		t.Errorf("the mark is %d, want 42", got)
	}
}

// TestCheck_SearchPath: what a session puts before pg_catalog is not looked at.
func TestCheck_SearchPath(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	s.exec(s.root(), "CREATE SCHEMA mine AUTHORIZATION "+appRole+"; GRANT USAGE ON SCHEMA mine TO PUBLIC")
	for name, sql := range map[string]string{
		"function": `CREATE FUNCTION mine.current_setting(text, boolean) RETURNS text LANGUAGE sql AS
			$$SELECT CASE $1 WHEN 'fence.token' THEN '42' ELSE pg_catalog.current_setting($1, $2) END$$`,
		"operator": `CREATE FUNCTION mine.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
			CREATE OPERATOR mine.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.yes)`,
		"table": "CREATE TEMP TABLE mark AS SELECT 'a'::text AS resource_key, 41::bigint AS token",
	} {
		t.Run(name, func(t *testing.T) {
			s := &stack{t: t, srv: s.srv}
			conn := s.tagged("a", 41)
			s.exec(conn, sql)
			s.exec(conn, "SET search_path = mine, pg_temp, pg_catalog")
			if _, err := conn.Exec(t.Context(), "SELECT fence.check()"); code(err) != "LF001" {
				t.Errorf("got %v, want LF001", err)
			}
		})
	}
}

// TestCheck_Standby: on a hot standby the check compares without locking.
func TestCheck_Standby(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	makeStandby(t, s.srv)
	for token, want := range map[int]string{41: "LF001", 42: "", 43: "LF002"} {
		conn := s.dial(appRole, database)
		if _, err := conn.Exec(t.Context(), "SELECT set_config('fence.key', 'a', false), set_config('fence.token', $1::text, false)", pgx.QueryExecModeSimpleProtocol, token); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT fence.check()"); code(err) != want {
			t.Errorf("token %d: got %v, want %q", token, err, want)
		}
	}
}
