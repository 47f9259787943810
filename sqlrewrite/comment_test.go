package sqlrewrite_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceparent(t *testing.T) {
	field := "traceparent='" + parent + "'"
	for name, c := range map[string]struct {
		text, want string
		options    sqlrewrite.Options
	}{
		"behind":               {text: "UPDATE t SET a = 1 /*" + field + "*/", want: parent},
		"before":               {text: "/*" + field + "*/ UPDATE t SET a = 1", want: parent},
		"in the middle":        {text: "UPDATE t /* " + field + " */ SET a = 1;", want: parent},
		"among others":         {text: "SELECT 1 /*db_driver='pg',route='%2Forders',traceparent='" + parent + "',tracestate='a%3Db'*/", want: parent},
		"the second comment":   {text: "SELECT 1 -- one\n/* two */ /*" + field + "*/", want: parent},
		"several statements":   {text: "SELECT 1; SELECT 2 /*" + field + "*/; SELECT 3", want: parent},
		"nested":               {text: "SELECT 1 /* a /* b */ " + field + "*/", want: parent},
		"none":                 {text: "SELECT 1"},
		"in a string":          {text: "SELECT '/*" + field + "*/'"},
		"doubled in a string":  {text: "SELECT '/*traceparent=''" + parent + "''*/'"},
		"in an escape string":  {text: `SELECT E'\'/*traceparent=\'x\'*/'`},
		"in dollar quotes":     {text: "SELECT $q$/*" + field + "*/$q$"},
		"in a name":            {text: `SELECT 1 AS "/*` + field + `*/"`},
		"in a line comment":    {text: "SELECT 1 -- /*" + field + "*/"},
		"no comment":           {text: "SELECT traceparent='" + parent + "'"},
		"unterminated":         {text: "SELECT 1 /*" + field},
		"unterminated string":  {text: "SELECT ' /*" + field + "*/"},
		"a longer name":        {text: "SELECT 1 /*xtraceparent='x'*/"},
		"a longer name first":  {text: "SELECT 1 /*my_traceparent='x'," + field + "*/", want: parent},
		"a value without end":  {text: "SELECT 1 /*traceparent='00-*/"},
		"an empty value":       {text: "SELECT 1 /*traceparent=''*/"},
		"any value":            {text: "SELECT 1 /*traceparent='; DROP TABLE t'*/", want: "; DROP TABLE t"},
		"backslash is a quote": {text: `SELECT '\' /*` + field + `*/'`, options: sqlrewrite.Options{BackslashQuotes: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(sqlrewrite.Traceparent([]byte(c.text), c.options)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// What is found stands in the text, and a long comment costs what it has to.
func FuzzTraceparent(f *testing.F) {
	f.Add([]byte("SELECT 1 /*traceparent='" + parent + "'*/"))
	f.Add([]byte("/*/**/traceparent='x'*/--\n/*traceparent='"))
	f.Add([]byte("'/*traceparent=''x'*/"))
	f.Add([]byte(strings.Repeat("/*traceparent='", 1000)))
	f.Add([]byte("SELECT 1 /*" + strings.Repeat("xtraceparent='", 10000) + "*/"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := sqlrewrite.Traceparent(text, sqlrewrite.Options{})
		if got != nil && !bytes.Contains(text, append([]byte("traceparent='"), append(got, '\'')...)) {
			t.Errorf("got %q, which isn't there", got)
		}
	})
}
