package check_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// nobodys is a key that no operation names.
const nobodys = "order:3"

// What stands in the tables though nobody put it there is found, under keys that
// no operation names too.
func TestCheck_Nobody(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*story)
		want   check.Invariant
		piece  []string
	}{
		{"a counter", func(s *story) { s.Tables.Counters[nobodys] = 1 }, check.Exact, nil},
		{"a row", func(s *story) { s.Tables.Rows = append(s.Tables.Rows, history.Row{ID: 77, Key: nobodys, Token: 20}) },
			check.Exact, []string{"row 77 of order:3"}},
		{"a balance", func(s *story) { s.Tables.Balances[nobodys] = opening + 5 }, check.Several, nil},
		{"a mark of no holder's", func(s *story) { s.Tables.Marks[nobodys] = 20 }, check.Issued, nil},
		{"a mark of no holder's, meanwhile", func(s *story) {
			s.Marks = []history.MarksSeen{{Asked: s.tick(), Marks: map[string]fencing.Token{nobodys: 20}}}
		}, check.Issued, nil},
		{"a mark of a holder who presented nothing", func(s *story) { s.holds(nobodys, 30); s.Tables.Marks[nobodys] = 30 },
			check.Issued, []string{"etcd: token 30 held order:3 to the end"}},
		{"a mark of a holder who has got its lock, and not claimed", func(s *story) {
			s.holds(key, 30)
			s.do(history.Op{Kind: history.KindAcquire, Tag: tag(key, 30)})
			s.Tables.Marks[key] = 30
		}, check.Issued, []string{"etcd: token 30 held order:1 to the end"}},
		{"a mark of a claim that never left its client", func(s *story) {
			s.holds(key, 30)
			s.refused(history.KindClaim, 30).Code = ""
			s.Tables.Marks[key] = 30
		}, check.Issued, []string{"etcd: token 30 held order:1 to the end"}},
		{"an account that is gone", func(s *story) {
			s.refused(history.KindWrite, 10).Move = &history.Move{From: key, To: other, Amount: 5}
			delete(s.Tables.Balances, other)
		}, check.Several, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := takeover()
			c.change(s)
			broken(t, s, c.want, c.piece...)
		})
	}
	t.Run("what was there from the beginning", func(t *testing.T) {
		s := takeover()
		s.Tables.Counters[nobodys], s.Tables.Balances[nobodys] = 0, opening
		right(t, s)
	})
	t.Run("a mark of a claim that nobody was told of", func(t *testing.T) {
		s := takeover()
		s.unheard(30)
		right(t, s)
	})
}
