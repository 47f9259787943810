package proxy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// rejecting is a proxy that refuses untagged writes of all roles but migrator.
func rejecting(server *proxy.Server) {
	server.Policies = proxy.Policies{
		Default: proxy.Policy{UntaggedWrites: proxy.RejectUntagged},
		Rules:   []proxy.Rule{{Role: "migrator"}},
	}
}

// newRejecting makes a stack with a proxy that refuses untagged writes, roles
// with rights on table t, and what is needed to read and write in many ways.
func newRejecting(t *testing.T, set ...func(*proxy.Server)) *stack {
	t.Helper()
	s := newStack(t, 0)
	s.addProxy(s.pg.Addr(), append([]func(*proxy.Server){rejecting}, set...)...)
	s.exec(`CREATE ROLE app LOGIN; CREATE ROLE migrator LOGIN; CREATE ROLE chief LOGIN SUPERUSER;
		GRANT ALL ON t, sneaky TO app, migrator; GRANT ALL ON SCHEMA public TO app, migrator;
		INSERT INTO t VALUES (1, 'one');
		CREATE SEQUENCE s; GRANT ALL ON s TO app;
		CREATE FUNCTION reads() RETURNS bigint LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN (SELECT count(*) FROM t); END';
		CREATE PROCEDURE looks() LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM t; END';
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (50, ''commits''); COMMIT; END';
		CREATE PROCEDURE inserts() LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (51, ''inserts''); END'`)
	return s
}

// as is the DSN of a role through the proxy.
func (s *stack) as(role string) string {
	return strings.Replace(s.dsn(0), "postgres@", role+"@", 1)
}

// Without a tag what writes is refused and leaves nothing behind, whatever does
// the writing; what reads is not.
func TestSession_RejectsUntagged(t *testing.T) {
	s := newRejecting(t)
	const tokenRequired, notFenceable = "LF004", "LF007"
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES (2, 'x')": tokenRequired,
		"UPDATE t SET v = 'x'":          tokenRequired,
		"DELETE FROM t":                 tokenRequired,
		"TRUNCATE t":                    tokenRequired,
		"CREATE TABLE u (i int)":        tokenRequired,
		"SELECT * FROM t FOR UPDATE":    tokenRequired,
		"WITH x AS (INSERT INTO t VALUES (3, 'x') RETURNING 1) TABLE x": tokenRequired,
		"SELECT writes()":                                 tokenRequired,
		"SELECT * FROM sneaky":                            tokenRequired,
		"EXPLAIN ANALYZE SELECT writes()":                 tokenRequired,
		"SELECT nextval('s')":                             tokenRequired,
		"NOTIFY c":                                        tokenRequired,
		"SELECT pg_notify('c', '')":                       tokenRequired,
		"DO $$BEGIN INSERT INTO t VALUES (4, 'x'); END$$": tokenRequired,
		"CALL inserts()":                                  tokenRequired,
		"CALL commits()":                                  notFenceable,
		"VACUUM t":                                        notFenceable,
		"CREATE DATABASE d":                               notFenceable,
		"SELECT count(*) FROM t":                          "",
		"SELECT reads()":                                  "",
		"EXPLAIN ANALYZE SELECT reads()":                  "",
		"EXPLAIN INSERT INTO t VALUES (5, 'x')":           "",
		"CALL looks()":                                    "",
		"DO $$BEGIN PERFORM count(*) FROM t; END$$":       "",
		"SET work_mem = '1MB'":                            "",
		"SHOW work_mem":                                   "",
		"LISTEN c":                                        "",
		"DISCARD ALL":                                     "",
		"SELECT pg_advisory_lock(1)":                      "",
		"SELECT 1/0":                                      "22012",
		"SELEC":                                           "42601",
		"SAVEPOINT a":                                     "25P01",
	} {
		for _, p := range protocols {
			if p == prepared && strings.HasPrefix(sql, "SELEC ") {
				continue
			}
			t.Run(string(p)+"/"+sql, func(t *testing.T) {
				c := s.connect(s.as("app"))
				if got := code(p.run(t.Context(), c, sql)); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if got := c.PgConn().TxStatus(); got != 'I' {
					t.Errorf("status afterwards: got %q, want 'I'", got)
				}
				if err := p.run(t.Context(), c, "SELECT 1"); err != nil {
					t.Errorf("a read afterwards: %v", err)
				}
				c.Close(context.Background())
				if got := s.count("v <> 'one'"); got != 0 {
					t.Errorf("rows left behind: %d", got)
				}
			})
		}
	}
}

// A block that only reads ends as it would without the policy; one that wrote
// unseen is refused at its COMMIT.
func TestSession_RejectsUntaggedBlocks(t *testing.T) {
	s := newRejecting(t)
	for name, c := range map[string]struct {
		before []string
		last   string
		want   string
	}{
		"reads":        {[]string{"BEGIN", "SAVEPOINT a", "DECLARE c CURSOR FOR SELECT reads()", "FETCH c", "RELEASE a"}, "COMMIT", ""},
		"execute":      {[]string{"PREPARE p AS SELECT reads()", "BEGIN", "EXECUTE p"}, "COMMIT", ""},
		"locks":        {[]string{"BEGIN", "LOCK TABLE t IN SHARE MODE", "TABLE t"}, "COMMIT", ""},
		"hidden write": {[]string{"BEGIN", "SELECT writes()"}, "COMMIT", "LF004"},
		"written, then a savepoint": {[]string{"BEGIN", "SELECT writes()", "SAVEPOINT a", "SELECT 1", "ROLLBACK TO a"},
			"COMMIT", "LF004"},
		"undone":            {[]string{"BEGIN", "SELECT writes()"}, "ROLLBACK", ""},
		"plain write":       {[]string{"BEGIN", "SELECT 1"}, "INSERT INTO t VALUES (2, 'x')", "LF004"},
		"chain":             {[]string{"BEGIN", "SELECT writes()"}, "COMMIT AND CHAIN", "LF004"},
		"prepared for two":  {[]string{"BEGIN", "SELECT 1"}, "PREPARE TRANSACTION 'x'", "LF004"},
		"prepared by SQL":   {[]string{"PREPARE p AS INSERT INTO t VALUES (2, 'x')"}, "EXECUTE p", "LF004"},
		"read only":         {[]string{"BEGIN READ ONLY", "SELECT reads()"}, "COMMIT", ""},
		"repeatable read":   {[]string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT writes()"}, "COMMIT", "LF004"},
		"tag taken off":     {[]string{"SET fence.key = 'k'", "SET fence.token = 7", "RESET ALL"}, "INSERT INTO t VALUES (2, 'x')", "LF004"},
		"tag of one commit": {[]string{"BEGIN", "SET LOCAL fence.key = 'k'", "SET LOCAL fence.token = 7", "COMMIT"}, "DELETE FROM t", "LF004"},
	} {
		for _, p := range protocols {
			t.Run(name+"/"+string(p), func(t *testing.T) {
				s.holders.hold("k", 7)
				conn := s.connect(s.as("app"))
				for _, sql := range c.before {
					if err := p.run(t.Context(), conn, sql); err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
				}
				if got := code(p.run(t.Context(), conn, c.last)); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				conn.Close(context.Background())
				if got := s.count("v <> 'one'"); got != 0 {
					t.Errorf("rows left behind: %d", got)
				}
			})
		}
	}
}

func TestSession_RejectsUntaggedInOneText(t *testing.T) {
	s := newRejecting(t)
	for sql, want := range map[string]string{
		"SELECT 1; INSERT INTO t VALUES (2, 'x')":  "LF004",
		"SELECT writes(); SELECT 1":                "LF004",
		"BEGIN; SELECT writes(); COMMIT; SELECT 1": "LF004",
		"SELECT 1; COMMIT; SELECT writes()":        "LF004",
		"SELECT 1; SELECT reads(); COMMIT":         "",
	} {
		t.Run(sql, func(t *testing.T) {
			s.holders.hold("k", 7)
			c := s.connect(s.as("app"))
			_, err := c.PgConn().Exec(t.Context(), sql).ReadAll()
			if got := code(err); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if got := s.count("v <> 'one'"); got != 0 {
				t.Errorf("rows left behind: %d", got)
			}
		})
	}
}

func TestSession_RejectsUntaggedCopyAndCalls(t *testing.T) {
	s := newRejecting(t)
	c := s.connect(s.as("app"))
	_, err := c.PgConn().CopyFrom(t.Context(), strings.NewReader("2\tx\n"), "COPY t FROM STDIN")
	if got, want := code(err), "LF004"; got != want {
		t.Errorf("COPY FROM: got %q, want %q", got, want)
	}
	var out strings.Builder
	if _, err := c.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT reads()) TO STDOUT"); err != nil || out.String() != "1\n" {
		t.Errorf("COPY TO: got %q, %v", out.String(), err)
	}
	_, err = c.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT writes()) TO STDOUT")
	if got, want := code(err), "LF004"; got != want {
		t.Errorf("COPY TO of a write: got %q, want %q", got, want)
	}
	if got := s.count("true"); got != 1 {
		t.Errorf("got %d rows, want 1", got)
	}
}

// A tag makes writes possible, and a rule does for a role.
func TestSession_RejectLetsThrough(t *testing.T) {
	s := newRejecting(t)
	s.holders.hold("k", 7)
	for name, dsn := range map[string]string{
		"tagged at startup": s.as("app") + "&options=-c%20fence.key%3Dk%20-c%20fence.token%3D7",
		"migrator":          s.as("migrator"),
	} {
		for _, p := range protocols {
			t.Run(name+"/"+string(p), func(t *testing.T) {
				c := s.connect(dsn)
				for _, sql := range []string{"INSERT INTO t VALUES (2, 'x')", "CALL inserts()", "DELETE FROM t WHERE v <> 'one'"} {
					if err := p.run(t.Context(), c, sql); err != nil {
						t.Errorf("%s: %v", sql, err)
					}
				}
			})
		}
	}
	t.Run("tag", func(t *testing.T) {
		c := s.connect(s.as("app"))
		s.tag(c, "k", 7)
		if err := simple.run(t.Context(), c, "UPDATE t SET v = 'one'"); err != nil {
			t.Error(err)
		}
		s.raise(0, "k", 8)
		if got, want := code(simple.run(t.Context(), c, "SELECT 1")), "LF005"; got != want {
			t.Errorf("after a higher claim: got %q, want %q", got, want)
		}
	})
}

// No role gets another's policy: by what it sets at startup, or later.
func TestSession_PolicyOfWhoLoggedIn(t *testing.T) {
	s := newRejecting(t)
	s.exec("GRANT migrator TO app; ALTER ROLE chief SET role = migrator")
	for name, c := range map[string]struct{ role, parameter, first string }{
		"set role":                 {role: "app", first: "SET ROLE migrator"},
		"role at startup":          {role: "app", parameter: "&role=migrator"},
		"role in options":          {role: "app", parameter: "&options=-c%20role%3Dmigrator"},
		"authorization at startup": {role: "chief", parameter: "&session_authorization=migrator"},
		"authorization in options": {role: "chief", parameter: "&options=-c%20session_authorization%3Dmigrator"},
		"authorization":            {role: "chief", first: "SET SESSION AUTHORIZATION migrator"},
		"a setting of the role":    {role: "chief"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.connect(s.as(c.role) + c.parameter)
			if c.first != "" {
				if err := simple.run(t.Context(), conn, c.first); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := code(simple.run(t.Context(), conn, "INSERT INTO t VALUES (2, 'x')")), "LF004"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Up to PostgreSQL 16 a role can have another name than its login says; the
// policy of neither is to be got round by that.
func TestSession_PolicyOfOtherName(t *testing.T) {
	s := newRejecting(t, func(server *proxy.Server) {
		server.Policies = proxy.Policies{Rules: []proxy.Rule{
			{Role: "app", Policy: proxy.Policy{UntaggedWrites: proxy.RejectUntagged}},
			{Role: "migrator@*", Policy: proxy.Policy{UntaggedWrites: proxy.RejectUntagged}},
		}}
	})
	var version int
	if err := s.admin.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version > 16 {
		return // there db_user_namespace is no more
	}
	s.exec("ALTER SYSTEM SET db_user_namespace = on")
	s.exec(`SELECT pg_reload_conf(); CREATE ROLE "migrator@postgres" LOGIN; GRANT ALL ON t TO "migrator@postgres"`)
	for _, user := range []string{"app%40", "migrator"} {
		t.Run(user, func(t *testing.T) {
			var conn *pgx.Conn
			poll.Until(t, "the setting counts", func() (ok bool) {
				c, err := pgx.Connect(t.Context(), s.as(user))
				if err == nil {
					t.Cleanup(func() { c.Close(context.Background()) })
				}
				conn = c
				return err == nil && c.PgConn().ParameterStatus("session_authorization") != user
			})
			if got, want := code(simple.run(t.Context(), conn, "INSERT INTO t VALUES (2, 'x')")), "LF004"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// An administrator may say why a write has no tag.
func TestSession_RejectOverride(t *testing.T) {
	s := newRejecting(t)
	admin, app := s.session(0, "", 0), s.connect(s.as("app"))
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			for _, c := range []*pgx.Conn{admin, app} {
				if err := p.run(t.Context(), c, "SET fence.override = 'ticket 1'"); err != nil {
					t.Fatal(err)
				}
			}
			for _, sql := range []string{"UPDATE t SET v = 'one'", "SELECT writes()", "DELETE FROM t WHERE id = 99"} {
				if err := p.run(t.Context(), admin, sql); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if got, want := code(p.run(t.Context(), app, "UPDATE t SET v = 'x'")), "42501"; got != want {
				t.Errorf("another role: got %q, want %q", got, want)
			}
		})
	}
	var uses int
	err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM fence.override_log WHERE relation = '-' AND reason = 'ticket 1' AND by = 'postgres'").Scan(&uses)
	if want := 3 * len(protocols); err != nil || uses != want {
		t.Errorf("uses in the log: got %d, %v, want %d", uses, err, want)
	}
}

// In a database without schema fence reads work, and a write is told what is
// missing.
func TestSession_RejectWithoutSchema(t *testing.T) {
	s := newRejecting(t)
	s.exec("CREATE DATABASE bare OWNER app")
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			c := s.connect(strings.Replace(s.as("app"), "/postgres?", "/bare?", 1))
			if err := p.run(t.Context(), c, "SELECT count(*) FROM pg_class"); err != nil {
				t.Errorf("a read: %v", err)
			}
			if got, want := code(p.run(t.Context(), c, "CREATE TABLE u (i int)")), "3F000"; got != want {
				t.Errorf("a write: got %q, want %q", got, want)
			}
			if got, want := code(p.run(t.Context(), c, "SELECT lo_create(0)")), "3F000"; got != want {
				t.Errorf("a hidden write: got %q, want %q", got, want)
			}
		})
	}
}

// What the proxy never saw the text of, and what stands in the middle of a
// pipeline, writes nothing without a tag either; what reads there is as ever.
func TestSession_RejectsUntaggedPipelines(t *testing.T) {
	s := newRejecting(t)
	bound := func(portal, name string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name}, &pgproto3.Execute{Portal: portal}, &pgproto3.Sync{}}
	}
	for name, c := range map[string]struct {
		first string
		then  []pgproto3.FrontendMessage
		want  string
	}{
		"prepared by SQL, writes":    {"PREPARE p AS INSERT INTO t VALUES (2, 'x')", bound("", "p"), "INSERT 0 1 LF004 ZI"},
		"prepared by SQL, reads":     {"PREPARE p AS SELECT count(*) FROM t", bound("", "p"), "SELECT 1 ZI"},
		"no such statement":          {"SELECT 1", bound("", "p"), "26000 ZI"},
		"no such portal":             {"SELECT 1", []pgproto3.FrontendMessage{&pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}}, "34000 ZI"},
		"a cursor":                   {"BEGIN; DECLARE c CURSOR FOR SELECT reads()", []pgproto3.FrontendMessage{&pgproto3.Execute{Portal: "c"}, &pgproto3.Sync{}, query("COMMIT")}, "SELECT 1 ZT COMMIT ZI"},
		"a cursor that writes":       {"BEGIN; DECLARE c CURSOR FOR SELECT writes()", []pgproto3.FrontendMessage{&pgproto3.Execute{Portal: "c"}, &pgproto3.Sync{}, query("COMMIT")}, "SELECT 1 ZT LF004 ZI"},
		"a COMMIT in it":             {"SELECT 1", append(append(append(execute("BEGIN"), execute("SELECT writes()")...), execute("COMMIT")...), &pgproto3.Sync{}), "BEGIN SELECT 1 LF004 ZI"},
		"after what fails":           {"SELECT 1", append(append(execute("SELECT 1/0"), execute("SELECT writes()")...), &pgproto3.Sync{}), "22012 ZI"},
		"two segments":               {"SELECT 1", segments("SELECT writes()", "SELECT 1"), "SELECT 1 LF004 ZI SELECT 1 ZI"},
		"a function call":            {"SELECT 1", []pgproto3.FrontendMessage{&pgproto3.FunctionCall{Function: 1598}}, "LF007 ZI"},
		"a function call in a block": {"BEGIN", []pgproto3.FrontendMessage{&pgproto3.FunctionCall{Function: 1598}}, "LF004 ZE"},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.frontend(s.addrs[0])
			f.send(query(c.first))
			f.until('Z')
			f.send(c.then...)
			if got := f.ready(strings.Count(c.want, " Z")); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			f.conn.Close()
			if got := s.count("v <> 'one'"); got != 0 {
				t.Errorf("rows left behind: %d", got)
			}
		})
	}
}

// A Query in a segment that has no Sync yet ends nothing unchecked.
func TestSession_RejectsUntaggedMidway(t *testing.T) {
	s := newRejecting(t)
	for _, second := range []string{"SELECT 1", "COMMIT", "SELECT reads()"} {
		t.Run(second, func(t *testing.T) {
			f := s.frontend(s.addrs[0])
			f.send(append(append(execute("SELECT writes()"), query(second)), &pgproto3.Sync{})...)
			if got := f.ready(2); !strings.Contains(got, "LF004") {
				t.Errorf("got %s, want LF004", got)
			}
			f.conn.Close()
			if got := s.count("v <> 'one'"); got != 0 {
				t.Errorf("rows left behind: %d", got)
			}
		})
	}
}
