package console

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A column of a view, with what people are told of it.
type column struct {
	name  string
	typ   uint32
	about string
}

// takes are the options that a SHOW may have, as a set.
type takes uint8

const (
	takesPrefix takes = 1 << iota // 'prefix' of keys
	takesAfter                    // AFTER 'key'
	takesLimit                    // LIMIT n
)

// A query is what a SHOW asks for.
type query struct {
	prefix, after string
	limit         int // 0: none was given
}

// An answer is what it gets: rows with a value for each column, and what the
// client is told besides.
type answer struct {
	rows    [][]any
	notices []wire.Report
}

// A view is what SHOW shows of one thing.
type view struct {
	name    string
	about   string
	takes   takes
	columns []column
	show    func(context.Context, query) (answer, error)
}

func (v *view) fields() []field {
	all := make([]field, len(v.columns))
	for i, c := range v.columns {
		all[i] = field{c.name, c.typ}
	}
	return all
}

// usage is how it is called.
func (v *view) usage() string {
	text := "SHOW " + strings.ToUpper(v.name)
	if v.takes&takesPrefix != 0 {
		text += " ['prefix']"
	}
	if v.takes&takesAfter != 0 {
		text += " [AFTER 'key']"
	}
	if v.takes&takesLimit != 0 {
		text += " [LIMIT n]"
	}
	return text
}

// views are those that there are, in the order in which HELP lists them.
func (c *Console) views() []view {
	return []view{
		c.keysView(), c.sessionsView(), c.marksView(), c.rejectionsView(),
		c.statsView(), c.configView(), c.versionView(), c.helpView(),
	}
}

func (c *Console) view(name string) *view {
	for _, v := range c.views() {
		if v.name == name {
			return &v
		}
	}
	return nil
}

func (c *Console) viewNames() []string {
	var names []string
	for _, v := range c.views() {
		names = append(names, v.name)
	}
	return names
}

// Documented is the part of docs/console.md that lists what SHOW shows.
func (c *Console) Documented() string {
	var b strings.Builder
	for _, v := range c.views() {
		fmt.Fprintf(&b, "### SHOW %s\n\n`%s`: %s.\n\n| column | type | |\n|---|---|---|\n", strings.ToUpper(v.name), v.usage(), v.about)
		for _, col := range v.columns {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", col.name, typeName(col.typ), col.about)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// limited cuts an answer to the limit, and says so.
func (q query) limited(a answer) answer {
	if q.limit > 0 && len(a.rows) > q.limit {
		left := "1 more row is not shown"
		if n := len(a.rows) - q.limit; n > 1 {
			left = fmt.Sprintf("%d more rows are not shown", n)
		}
		a.notices = append(a.notices, notice("NOTICE", "%s", left))
		a.rows = a.rows[:q.limit]
	}
	return a
}

// number is a value that may not be known: 0 is NULL.
func number[N ~int64 | ~uint64 | ~uint32](n N) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// text is one that may not be known: "" is NULL.
func text(s string) any {
	if s == "" {
		return nil
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "�")
}
