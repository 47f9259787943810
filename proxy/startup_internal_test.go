package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

func TestIsFalse(t *testing.T) {
	for _, v := range []string{"0", "f", "false", "FALSE", "fals", "n", "no", "No", "of", "off", "OFF"} {
		if !isFalse(v) {
			t.Errorf("%q: got true, want false", v)
		}
	}
	for _, v := range []string{"1", "t", "true", "y", "yes", "on", "o", "database", "falsey", "nope", "offf", " off", ""} {
		if isFalse(v) {
			t.Errorf("%q: got false, want true", v)
		}
	}
}

func TestMentionsFence(t *testing.T) {
	for _, c := range []struct {
		params map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"user": "fence", "database": "fence", "application_name": "fence.key"}, false},
		{map[string]string{"fence.key": "a"}, true},
		{map[string]string{"FENCE.Token": "1"}, true},
		{map[string]string{"fence.tokens": ""}, true},
		{map[string]string{"options": "-c fence.key=a"}, true},
		{map[string]string{"options": "-cfence.key=a"}, true},
		{map[string]string{"options": "--fence.key=a"}, true},
		{map[string]string{"options": "-c Fence.Key=a"}, true},
		{map[string]string{"options": `-c fen\ce.key=a`}, true},
		{map[string]string{"options": `-c search_path=a\ b`}, false},
		{map[string]string{"options": "-c geqo=off"}, false},
	} {
		if got := mentionsFence(c.params); got != c.want {
			t.Errorf("%q: got %v, want %v", c.params, got, c.want)
		}
	}
}

// TestHidesASCII: these are the encodings that PostgreSQL takes from clients
// and can't be a server's, for the very reason that is asked for here.
func TestHidesASCII(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	conn, err := pgx.Connect(t.Context(), pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT pg_encoding_to_char(n) FROM generate_series(0, 99) AS n WHERE pg_encoding_to_char(n) <> ''")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 40 {
		t.Errorf("PostgreSQL knows %d encodings, want 40 and more", len(names))
	}
	for _, name := range names {
		// CREATE DATABASE refuses client-only encodings before all else.
		_, err := conn.Exec(t.Context(), "CREATE DATABASE x ENCODING '"+name+"' LOCALE 'C' TEMPLATE nobody")
		want := err != nil && strings.Contains(err.Error(), "not a valid encoding name")
		if got := hidesASCII(name); got != want {
			t.Errorf("%s: got %v, want %v (%v)", name, got, want, err)
		}
	}
	if !slices.Contains(names, "SHIFT_JIS_2004") || !hidesASCII("sjis") {
		t.Error("names of encodings have no case")
	}
}

// FuzzMentionsFence reads options as PostgreSQL does (pg_split_opts in
// postinit.c, process_postgres_switches in postgres.c): no spelling of a tag
// is missed.
func FuzzMentionsFence(f *testing.F) {
	for _, options := range []string{
		"-c fence.key=a", "-cfence.key=a", "--fence.key=a", "-c Fence.KEY=a", `-c fen\ce.key=a`, `--fen\c\e.tokens={}`, "-c geqo=off -c fence.token=1", `-c search_path=a\ b`, "-c\tfence.key=a", `\-\-fence.key=x`,
	} {
		f.Add(options)
	}
	f.Fuzz(func(t *testing.T, options string) {
		for _, name := range settingsOf(options) {
			if strings.HasPrefix(name, "fence.") && !mentionsFence(map[string]string{"options": options}) {
				t.Errorf("%q sets %s, and that was missed", options, name)
			}
		}
	})
}

// settingsOf returns the names of what options set, in lower case.
func settingsOf(options string) (names []string) {
	var words []string
	word, escaped, inside := []byte(nil), false, false
	for i := range len(options) {
		c := options[i]
		switch {
		case escaped:
			word, escaped = append(word, c), false
		case c == '\\':
			escaped, inside = true, true
		case strings.IndexByte(" \t\n\v\f\r", c) >= 0:
			if inside {
				words = append(words, string(word))
			}
			word, inside = nil, false
		default:
			word, inside = append(word, c), true
		}
	}
	words = append(words, string(word))
	for i, w := range words {
		setting, ok := strings.CutPrefix(w, "--")
		if !ok {
			if setting, ok = strings.CutPrefix(w, "-c"); ok && setting == "" && i+1 < len(words) {
				setting = words[i+1]
			}
		}
		if name, _, found := strings.Cut(setting, "="); ok && found {
			names = append(names, strings.ReplaceAll(strings.ToLower(name), "-", "_"))
		}
	}
	return names
}
