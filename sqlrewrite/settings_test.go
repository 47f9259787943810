package sqlrewrite_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// settings are what the statements of text do, one after the other.
func settings(t testing.TB, text string, o sqlrewrite.Options) []sqlrewrite.Setting {
	t.Helper()
	var all []sqlrewrite.Setting
	for _, s := range split(t, text, o) {
		all = append(all, sqlrewrite.Settings([]byte(text), s, o)...)
	}
	return all
}

func TestSettings(t *testing.T) {
	type setting = sqlrewrite.Setting
	const key, token, tokens = "fence.key", "fence.token", "fence.tokens"
	set := func(name, value string) []setting {
		return []setting{{Kind: sqlrewrite.Set, Name: name, Value: value}}
	}
	local := func(name, value string) []setting {
		return []setting{{Kind: sqlrewrite.Set, Name: name, Value: value, Local: true}}
	}
	unknown := func(name string) []setting { return []setting{{Kind: sqlrewrite.Unknown, Name: name}} }
	reset := func(name string) []setting { return []setting{{Kind: sqlrewrite.Reset, Name: name}} }
	all := []setting{{Kind: sqlrewrite.ResetAll}}
	value := func(p sqlrewrite.Param) sqlrewrite.Bound { return sqlrewrite.Bound{Value: p} }

	for _, c := range []struct {
		text string
		want []setting
	}{
		// SET
		{"SET fence.key = 'order:8472'", set(key, "order:8472")},
		{"set FENCE.Key to 'a''b'", set(key, "a'b")},
		{"SET SESSION fence.token = 42", set(token, "42")},
		{"SET LOCAL fence.token TO '42'", local(token, "42")},
		{"SET fence.token=-042", set(token, "-42")},
		{"SET fence.token = +42", set(token, "42")},
		{"SET fence.token = 9223372036854775807", set(token, "9223372036854775807")},
		{"SET fence.token = 4.50", set(token, "4.50")},
		{"SET fence.token = 0x2A", unknown(token)},
		{"SET fence.token = 1_000", unknown(token)},
		{"SET fence.token = 1e3", unknown(token)},
		{"SET fence.key = E'a\\x41\\102\\n\\u00e9\\'\\q'", set(key, "aAB\né'q")},
		{"SET fence.key = E'\\U0001F600\\ud83d\\ude00'", set(key, "😀😀")},
		{"SET fence.key = E'\\ud83d'", unknown(key)},
		{"SET fence.key = E'a\\000'", unknown(key)},
		{"SET fence.key = 'a\\x41'", set(key, "a\\x41")},
		{"SET fence.key = 'a'\n 'b' -- c\n 'c'", set(key, "abc")},
		{"SET fence.key = $x$a'b$$c$x$", set(key, "a'b$$c")},
		{"SET fence.key = U&'a'", unknown(key)},
		{"SET fence.key = Order_8472", set(key, "order_8472")},
		{"SET fence.key = \"Order\"\"8472\"", set(key, "Order\"8472")},
		{"SET fence.key = on", set(key, "on")},
		{"SET fence.key = " + strings.Repeat("A", 63), set(key, strings.Repeat("a", 63))},
		{"SET fence.key = " + strings.Repeat("A", 64), unknown(key)},
		{"SET fence.key = é", unknown(key)},
		{"SET fence.key = a, b", unknown(key)},
		{"SET fence.key = ''", set(key, "")},
		{"SET fence.key TO DEFAULT", reset(key)},
		{"SET LOCAL fence.key = default", []setting{{Kind: sqlrewrite.Reset, Name: key, Local: true}}},
		{"SET fence.key FROM CURRENT", unknown(key)},
		{"SET fence /* a */ . -- b\n tokens /* c */ = /* d */ '{\"a\": 1}'", set(tokens, `{"a": 1}`)},
		{"SET \"fence\".\"key\" = 'a'", set(key, "a")},
		{"SET \"FENCE.KEY\" = 'a'", set(key, "a")},
		{"SET U&\"fence\".key = 'a'", unknown("")},
		{"SET U&\"\\0066ence\".key = 'a'", unknown("")},
		{"SET fence.other = 'a'", nil},
		{"SET fence.key.more = 'a'", nil},
		{"SET session.fence.key = 'a'", nil},
		{"SET local.x = 'fence.key'", nil},
		{"SET search_path = 'fence.key'", nil},
		{"SET fence.key = 'a'; SET work_mem = 1; SET fence.token = 2", append(set(key, "a"), set(token, "2")...)},
		// RESET, DISCARD
		{"RESET fence.key", reset(key)},
		{"RESET \"Fence\".token", reset(token)},
		{"RESET ALL", all},
		{"RESET fence.keys", nil},
		{"RESET SESSION AUTHORIZATION", nil},
		{"DISCARD ALL", all},
		{"DISCARD PLANS; DEALLOCATE ALL", nil},
		// set_config
		{"SELECT set_config('fence.key', 'a', false)", set(key, "a")},
		{"SELECT Pg_Catalog . Set_Config ( 'FENCE.key' , E'a\\x41' , TRUE ) AS x", local(key, "aA")},
		{"SELECT set_config('fence.key', 'a', false), set_config('fence.token', '42', 't')", append(set(key, "a"), local(token, "42")...)},
		{"SELECT set_config('work_mem', '1MB', false), set_config('fence.token', '42'::text, 'off') token", set(token, "42")},
		{"SELECT set_config('fence.key', $1, false), set_config('fence.token', $12::text, true)", []setting{
			{Kind: sqlrewrite.Unknown, Name: key, Bound: value(sqlrewrite.Param{Number: 1})},
			{Kind: sqlrewrite.Unknown, Name: token, Bound: value(sqlrewrite.Param{Number: 12}), Local: true}}},
		{"SELECT set_config('fence.token', $2::bigint::pg_catalog.text, false), set_config('fence.key', $1::varchar, false)", []setting{
			{Kind: sqlrewrite.Unknown, Name: token, Bound: value(sqlrewrite.Param{Number: 2, Type: sqlrewrite.ParamInteger, Whole: true})},
			{Kind: sqlrewrite.Unknown, Name: key, Bound: value(sqlrewrite.Param{Number: 1})}}},
		{"SELECT set_config('fence.key', 'a', $1)", []setting{{Kind: sqlrewrite.Unknown, Name: key, Value: "a", Bound: sqlrewrite.Bound{Local: sqlrewrite.Param{Number: 1, Type: sqlrewrite.ParamBool}}}}},
		{"SELECT set_config('fence.token', CAST($1 AS bigint)::text, false), set_config('fence.key', cast($2::text AS varchar), false)", []setting{
			{Kind: sqlrewrite.Unknown, Name: token, Bound: value(sqlrewrite.Param{Number: 1, Type: sqlrewrite.ParamInteger, Whole: true})},
			{Kind: sqlrewrite.Unknown, Name: key, Bound: value(sqlrewrite.Param{Number: 2})}}},
		{"SELECT set_config('fence.key', CAST($1 AS text, false)", unknown("")},
		{"SELECT set_config('fence.key', CAST($1), false)", unknown("")},
		{"SELECT set_config('fence.key', CAST('a' AS text), false)", unknown("")},
		{"SELECT set_config('fence.key', $1 AS text, false)", unknown("")},
		{"SELECT set_config('work_mem', $1, false)", nil},
		{"SELECT set_config('fence.key', $1::varchar(2), false)", unknown("")},
		{"SELECT set_config('fence.key', $1::char, false)", unknown("")},
		{"SELECT set_config('fence.key', $1::public.text, false)", unknown("")},
		{"SELECT set_config('fence.key', $1 || 'x', false)", unknown("")},
		{"SELECT set_config($1, $2, false)", []setting{{Kind: sqlrewrite.Unknown, Bound: sqlrewrite.Bound{Name: sqlrewrite.Param{Number: 1}, Value: sqlrewrite.Param{Number: 2}}}}},
		{"SELECT set_config('fence.key', NULL, false)", reset(key)},
		{"SELECT set_config('fence.' || 'key', 'a', false)", unknown("")},
		{"SELECT set_config('fence.key', 'a' || 'b', false)", unknown("")},
		{"SELECT set_config('fence.key', 'a', 1 = 1)", unknown("")},
		{"SELECT set_config('fence.key', 'a', false) FROM t", unknown("")},
		{"SELECT set_config('fence.key', 'a', false) WHERE false", unknown("")},
		{"SELECT set_config('fence.key', 'a', false) UNION SELECT 'b'", unknown("")},
		{"SELECT lower(set_config('fence.key', 'a', false))", unknown("")},
		{"SELECT public.set_config('fence.key', 'a', false)", unknown("")},
		{"SELECT \"set_config\"('fence.key', 'a', false)", unknown("")},
		{"SELECT set_config(E'\\x66ence.key', 'a', false)", set(key, "a")},
		{"SELECT set_config('role', 'a', true)", nil},
		{"WITH x AS (SELECT set_config('fence.key', 'a', false)) SELECT * FROM x", unknown("")},
		{"VALUES (set_config('fence.key', 'a', false))", unknown("")},
		{"EXPLAIN ANALYZE SELECT set_config('fence.key', 'a', false)", unknown("")},
		// other ways, and mentions only
		{"DO $$ BEGIN PERFORM set_config('fence.key', 'a', false); END $$", unknown("")},
		{"DO E'BEGIN EXECUTE ''SET f\\145nce.key = 1''; END'", unknown("")},
		{"CALL tag('fence.key', 'a')", unknown("")},
		{"SELECT tag('fence.key', 'a')", unknown("")},
		{"UPDATE pg_settings SET setting = 'a' WHERE name = 'fence.key'", unknown("")},
		{"INSERT INTO log (what) VALUES (tag('fence.key'))", unknown("")},
		{"INSERT INTO log (what, n) VALUES ('fence.key', lower('X'))", nil},
		{"INSERT INTO s.log (what) SELECT 'fence.key' FROM t", nil},
		{"UPDATE log SET what = 'fence.key' WHERE a IN (1, 2)", nil},
		{"SELECT current_setting('fence.key', true)", nil},
		{"SELECT * FROM t WHERE a = 'fence.key' FOR UPDATE", nil},
		{"SHOW fence.key", nil},
		{"PREPARE p AS SELECT set_config('fence.key', $1, false)", nil},
		{"EXPLAIN SELECT set_config('fence.key', 'a', false)", nil},
		{"CREATE OR REPLACE FUNCTION f() RETURNS int SET fence.key = 'a' LANGUAGE sql AS 'SELECT 1'", nil},
		{"CREATE TABLE t AS SELECT set_config('fence.key', 'a', false)", unknown("")},
		{"ALTER ROLE r SET fence.key = 'a'", nil},
		{"ALTER TABLE t ADD c text DEFAULT set_config('fence.key', 'a', false)", unknown("")},
		{"COMMENT ON TABLE t IS 'fence.key'", nil},
		{"SELECT * FROM fence.status", nil},
	} {
		if diff := cmp.Diff(c.want, settings(t, c.text, sqlrewrite.Options{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestSettings_BackslashQuotes(t *testing.T) {
	o := sqlrewrite.Options{BackslashQuotes: true}
	for text, want := range map[string]string{
		`SET fence.key = 'a\'; RESET ALL --'`:                "a'; RESET ALL --",
		`SELECT set_config('fence.\x6bey', 'a\\b''', false)`: `a\b'`,
	} {
		got := settings(t, text, o)
		if diff := cmp.Diff([]sqlrewrite.Setting{{Kind: sqlrewrite.Set, Name: "fence.key", Value: want}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestMentionsFence(t *testing.T) {
	for _, text := range []string{
		"SET fence.key = 1", "set FENCE.TOKEN = 1", "SET Fence . Tokens = 1", "SET \"fence\".key = 1", "SET \"fence\" . \"Key\" = 1",
		"SET \"fence.key\" = 1", "SET fence/**/.key = 1", "SET fence--\n.key = 1", "SET fence\n.\tkey = 1", "SET fence./**/key = 1",
		"SET U&\"\\0066ence\".key = 1", "SET u&\"fenc\\0065\".key = 1", "SET fence.U&\"\\006bey\" = 1", "RESET fence.tokens",
		"SELECT set_config('fence.key', '', false)", "SELECT set_config('fence' || '.key', '', false)", "SELECT set_config('FENCE.' || $1, '', false)",
		"SELECT set_config($1, $2, false)", "SELECT set_config(name, v, false) FROM t", "SELECT set_config(E'\\x66ence.key', '', false)",
		"SELECT set_config(U&'\\0066ence.key', '', false)", "SELECT set_config($$a$$, '', false)", "SELECT SET_CONFIG (\n $1, '', true)",
		"SELECT \"set_config\"($1, '', true)", "SELECT set_config/**/('a', '', true)", "SELECT set_config(/**/'a', '', true)",
		"SELECT set_config('a' || 'b', '', true)", "SELECT set_config('a'::text, '', true)", "SELECT set_config('\\146ence.key', '', true)",
		"SELECT set_config(setting_name => 'x', new_value => '', is_local => false)", "SELECT set_config('a''b', '', true)",
		"SELECT set_config('a', '', true), set_config($1, '', true)",
		"SELECT E'fence\\056key'", "SELECT E'fence.\\x6bey'", "SELECT E'fence.k\\145y'",
		"DO $$ BEGIN SET fence.key = 1; END $$", "DO E'BEGIN SET \\146ence.key = 1; END'", "do '\\x66ence'",
		"SELECT 1; SELECT 2; SET LOCAL fence.token = 3",
		"-c fence.key=a",
		"SELECT U&\"set\\005Fconfig\"($1, '', true)", "UPDATE pg_settings SET setting = 'a' WHERE name = U&'fence\\+00002ekey'",
		"SET U&\"!0066ence\" UESCAPE '!' .key = 1", "SELECT U&'\\0055&\"\\\\0066ence\".key'", "DO U&'BEGIN SET f\\0065nce.key = 1; END'",
	} {
		if !sqlrewrite.MentionsFence([]byte(text)) {
			t.Errorf("%q: got false, want true", text)
		}
	}
	for _, text := range []string{
		"", "SELECT 1", "SELECT * FROM fences", "SELECT fence FROM garden", "SELECT * FROM fence", "INSERT INTO fence (a) VALUES ('b')",
		"SELECT a FROM fence WHERE fence.height = 3", "SELECT fence.check()", "SELECT * FROM fence.status", "SELECT \"fence\".\"mark\"",
		"SELECT 'the fence'", "SELECT 'a fence, a gate'", "SELECT fence - 1 FROM t", "SELECT fence.keys, fence.key_id, fence.tokens2 FROM fence",
		"SELECT set_config('role', $1, true)", "SELECT pg_catalog.set_config( 'search_path' , '', false)", "SELECT set_configs($1)", "SELECT set_config",
		"SELECT '\\x66656e6365'::bytea", "INSERT INTO window VALUES ('\\x00', 'undo')", "SELECT a & b, u & 'c' FROM t", "RESET ALL", "DISCARD ALL",
		"INSERT INTO t VALUES (U&'\\00E4bc', U&'d\\0061t\\+000061', U&'a\\\\b')", "SELECT U&'fence'", "SELECT 1 AS U&\"key\"", "SELECT U&'wrong: \\061'", "SELECT U&'\\",
	} {
		if sqlrewrite.MentionsFence([]byte(text)) {
			t.Errorf("%q: got true, want false", text)
		}
	}
}

// TestSplit_TouchesTag: one statement's mention is not its neighbour's.
func TestSplit_TouchesTag(t *testing.T) {
	got := split(t, "SELECT 1; SET fence.key = 'a'; UPDATE t SET a = 1; RESET ALL; PREPARE p AS SELECT set_config($1, $2, true)", sqlrewrite.Options{})
	for i, want := range []bool{false, true, false, true, true} {
		if touches := got[i].Flags&sqlrewrite.TouchesTag != 0; touches != want {
			t.Errorf("statement %d: got %t, want %t", i, touches, want)
		}
	}
}
