package proxy_test

import (
	"encoding/binary"
	"testing"
)

// A call is a statement with parameters, as a driver sends it.
type call struct {
	sql     string
	types   []uint32
	args    [][]byte
	formats []int16
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func text(args ...string) [][]byte {
	var all [][]byte
	for _, a := range args {
		all = append(all, []byte(a))
	}
	return all
}

// A tag that is bound is claimed before its statement runs, so that the write
// that follows in the same segment runs under it.
func TestSession_BoundTag(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("a", 5)
	s.holders.hold("b", 6)
	const both = "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2, false)"
	calls := func(all ...call) []call { return all }
	for _, c := range []struct {
		name string
		tag  []call
		want string
	}{
		{"text", calls(call{sql: both, args: text("a", "5")}), ""},
		{"stale", calls(call{sql: both, args: text("a", "4")}), "LF001"},
		{"binary", calls(call{sql: both, args: text("a", "5"), formats: []int16{1}}), ""},
		{"a format each", calls(call{sql: both, args: text("a", "5"), formats: []int16{0, 1}}), ""},
		{"types", calls(call{sql: both, args: text("a", "5"), types: []uint32{25, 1043}, formats: []int16{1}}), ""},
		{"any order", calls(call{sql: "SELECT set_config('fence.token', $2, false), set_config('fence.key', $1, false)", args: text("a", "5")}), ""},
		{"casts", calls(call{sql: "SELECT pg_catalog.set_config('fence.key', $2::text, false), set_config('fence.token', $1::varchar::text, $3::boolean)", args: text("5", "a", "f")}), ""},
		{"a number as text", calls(call{sql: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2::bigint::text, false)", args: text("a", "5")}), ""},
		{"a number", calls(call{sql: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2::bigint::text, false)", args: [][]byte{[]byte("a"), number(5)}, formats: []int16{0, 1}}), ""},
		{"CAST", calls(call{sql: "SELECT set_config('fence.key', CAST($1 AS text), false), set_config('fence.token', CAST($2 AS bigint)::text, false)", args: text("a", "5")}), ""},
		{"a stale number", calls(call{sql: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2::text, false)", types: []uint32{25, 20}, args: [][]byte{[]byte("a"), number(4)}, formats: []int16{0, 1}}), "LF001"},
		{"a number of its Parse", calls(call{sql: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2::text, false)", types: []uint32{0, 20}, args: [][]byte{[]byte("a"), number(5)}, formats: []int16{0, 1}}), ""},
		{"names", calls(call{sql: "SELECT set_config($1, $2, false), set_config($3, $4, $5)", args: text("fence.key", "a", "FENCE.Token", "5", "off")}), ""},
		{"two statements", calls(
			call{sql: "SELECT set_config($1, $2, false)", args: text("fence.key", "a")},
			call{sql: "SELECT set_config($1, $2, false)", args: text("fence.token", "5")}), ""},
		{"key alone", calls(call{sql: "SELECT set_config($1, $2, false)", args: text("fence.key", "a")}), "LF009"},
		{"no number in the token", calls(call{sql: both, args: text("a", "five")}), "LF009"},
		{"several", calls(call{sql: "SELECT set_config('fence.tokens', $1, $2)", args: text(`{"a": 5, "b": 6}`, "t")}), ""},
		{"several, one stale", calls(call{sql: "SELECT set_config('fence.tokens', $1, $2)", args: [][]byte{[]byte(`{"a": 5, "b": 5}`), {1}}, formats: []int16{0, 1}}), "LF001"},
		{"NULL takes it off", calls(call{sql: both, args: text("a", "5")}, call{sql: both, args: [][]byte{nil, nil}}), ""},
		{"another setting", calls(call{sql: both, args: text("a", "5")}, call{sql: "SELECT set_config($1, $2, false)", args: text("application_name", "x")}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.exec("TRUNCATE t")
			conn := s.session(0, "", 0).PgConn()
			batch := conn.StartPipeline(t.Context())
			for _, call := range c.tag {
				batch.SendQueryParams(call.sql, call.args, call.types, call.formats, nil)
			}
			batch.SendQueryParams("INSERT INTO t VALUES (1, 'x')", nil, nil, nil, nil)
			if err := batch.Sync(); err != nil {
				t.Fatal(err)
			}
			err := batch.Close()
			if got := code(err); got != c.want {
				t.Errorf("got %q, want %q (%v)", got, c.want, err)
			}
			want := 0
			if c.want == "" {
				want = 1
			}
			if got := s.count("true"); got != want {
				t.Errorf("rows: got %d, want %d", got, want)
			}
		})
	}
}

// A bound tag ends where one that the text gives would.
func TestSession_BoundTagEnds(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("a", 5)
	conn := s.session(0, "", 0)
	for i, st := range []struct {
		sql   string
		args  []any
		want  string
		shows string // fence.key afterwards
	}{
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", true, "5"}},
		{sql: "BEGIN"},
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", true, "5"}, shows: "a"},
		{sql: "INSERT INTO t VALUES (1, $1)", args: []any{"x"}, shows: "a"},
		{sql: "COMMIT"},
		{sql: "BEGIN"},
		{sql: "SAVEPOINT s"},
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", false, "5"}, shows: "a"},
		{sql: "ROLLBACK TO s"},
		{sql: "INSERT INTO t VALUES (2, $1)", args: []any{"x"}},
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", false, "5"}, shows: "a"},
		{sql: "ROLLBACK"},
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", false, "4"}, want: "LF001"},
		{sql: "INSERT INTO t VALUES (2, $1)", args: []any{"x"}, want: "LF001"},
		{sql: "SELECT set_config('fence.key', $1, $2), set_config('fence.token', $3, $2)", args: []any{"a", false, "5"}, shows: "a"},
		{sql: "INSERT INTO t VALUES (2, $1)", args: []any{"x"}, shows: "a"},
		{sql: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $1, false)", args: []any{nil}},
	} {
		_, err := conn.Exec(t.Context(), st.sql, st.args...)
		if got := code(err); got != st.want {
			t.Errorf("%d %s: got %q, want %q (%v)", i, st.sql, got, st.want, err)
		}
		if st.want != "" {
			continue
		}
		var shows string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(current_setting('fence.key', true), '')").Scan(&shows); err != nil || shows != st.shows {
			t.Errorf("%d %s: fence.key is %q, want %q (%v)", i, st.sql, shows, st.shows, err)
		}
	}
	if got := s.count("true"); got != 2 {
		t.Errorf("rows: got %d, want 2", got)
	}
}

// A set_config of the application's own, which a search_path puts before
// PostgreSQL's, is covered by a check as any function is.
func TestSession_SetConfigOfAnother(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE SCHEMA app;
		CREATE FUNCTION app.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'INSERT INTO public.t VALUES (1, ''app'') RETURNING v'`)
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			key := string(p)
			s.holders.hold(key, 1)
			conn := s.session(0, key, 1)
			if err := p.run(t.Context(), conn, "SET search_path = app, pg_catalog"); err != nil {
				t.Fatal(err)
			}
			s.raise(1, key, 2)
			if err := p.run(t.Context(), conn, "SELECT set_config('fence.key', NULL, false)"); code(err) != "LF001" {
				t.Errorf("got %v, want LF001", err)
			}
			if got := s.count("true"); got != 0 {
				t.Errorf("rows: got %d, want 0", got)
			}
		})
	}
}
