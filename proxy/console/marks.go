package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// The marks that one SHOW MARKS shows.
const (
	defaultMarks = 100
	mostMarks    = 1000
)

// marksWithin bounds how long PostgreSQL is asked.
const marksWithin = 10 * time.Second

func (c *Console) marksView() view {
	return view{
		name: "marks", takes: takesPrefix | takesAfter | takesLimit,
		about: fmt.Sprintf("the marks in PostgreSQL, in the bytewise order of their keys: %d unless LIMIT says otherwise, and %d at most; "+
			"a NOTICE says how to go on", defaultMarks, mostMarks),
		columns: []column{
			{"database", wire.TypeText, "one of those that sessions have claimed in since the proxy started, or that of `--upstream`"},
			{"key", wire.TypeText, "resource key"},
			{"token", wire.TypeInt8, "the highest that was accepted"},
			{"lock_key", wire.TypeText, "etcd key of its holder"},
			{"claimed", wire.TypeTimestamptz, ""},
			{"claimed_by", wire.TypeText, "host of the proxy"},
			{"epoch", wire.TypeInt8, "of its lineage"},
			{"current", wire.TypeBool, "the lineage is the current one: the token counts"},
		},
		show: c.showMarks,
	}
}

func (c *Console) showMarks(ctx context.Context, q query) (a answer, err error) {
	what := fencing.Listing{Prefix: q.prefix, After: q.after, Most: min(cmp.Or(q.limit, defaultMarks), mostMarks)}
	marks, more, err := c.listMarks(ctx, what, &a)
	if err != nil {
		return answer{}, err
	}
	for _, m := range marks {
		a.rows = append(a.rows, []any{text(m.Database), text(m.Key), int64(m.Token), text(m.LockKey), moment(m.ClaimedAt),
			text(m.ClaimedBy), int64(m.Epoch), m.Current})
	}
	if more {
		a.notices = append(a.notices, notice("NOTICE", "there are more: %s", q.marksAfter(marks[len(marks)-1].Key)))
	}
	return a, nil
}

// marksAfter is how to go on behind a key. What terminals take for something else than
// text isn't repeated.
func (q query) marksAfter(last string) string {
	if strings.ContainsFunc(q.prefix+last, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "SHOW MARKS … AFTER $1, with the last key as the parameter"
	}
	next := "SHOW MARKS"
	if q.prefix != "" {
		next += " " + literal(q.prefix)
	}
	next += " AFTER " + literal(last)
	if q.limit > 0 {
		next += fmt.Sprintf(" LIMIT %d", q.limit)
	}
	return next
}

// listMarks puts the marks of all databases in the order of their keys. Those of
// one key stand on one page. A database that doesn't answer is told of, unless all
// are silent.
func (c *Console) listMarks(ctx context.Context, what fencing.Listing, told *answer) (all []fencing.ListedMark, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, marksWithin)
	defer cancel()
	databases := c.Marks.Databases()
	var failed []error
	for _, database := range databases {
		marks, further, err := c.Marks.ListMarks(ctx, database, what)
		if err != nil {
			failed = append(failed, c.whyNoMarks(err))
			continue
		}
		all, more = append(all, marks...), more || further
	}
	if len(failed) == len(databases) && len(failed) > 0 {
		return nil, false, failed[0]
	}
	for _, err := range failed {
		w := notice("WARNING", "%v", err)
		w.Hint = asFault(err).Hint
		told.notices = append(told.notices, w)
	}
	slices.SortFunc(all, func(a, b fencing.ListedMark) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Database, b.Database))
	})
	n := what.Most
	for n < len(all) && all[n].Key == all[n-1].Key {
		n++
	}
	if n < len(all) {
		return all[:n], true, nil
	}
	return all, more, nil
}

func (c *Console) whyNoMarks(err error) error {
	f := asFault(err)
	switch {
	case errors.Is(err, fencing.ErrMayNotList):
		f.Code = codeDenied
		return f.hint("As the owner of schema fence, in that database: %s", c.Marks.GrantListing())
	case fencing.NotInstalled(err):
		f.Code = string(fencing.CodeNotInstalled)
		return f.hint("The database has no schema fence: run fenceproxy init.")
	}
	return f
}

// literal is a text as it stands in a statement.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
