package check_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

func TestCheck_Durable(t *testing.T) {
	s := takeover()
	s.Tables.Marks[key] = 10
	broken(t, s, check.Durable, "claim order:1 token 20 → ok")
	s.Tables.Marks = map[string]fencing.Token{} // all of them
	broken(t, s, check.Durable, "claim order:1 token 10 → ok")
	s.Tables.Marks = nil // nobody looked
	right(t, s)
}

// A mark that was lost in between and is there again at the end.
func TestCheck_DurableMeanwhile(t *testing.T) {
	s := takeover()
	s.Marks = []history.MarksSeen{{Asked: s.tick(), Marks: map[string]fencing.Token{key: 20}}}
	right(t, s)
	s.Marks[0].Marks[key] = 10
	broken(t, s, check.Durable, "claim order:1 token 20 → ok")
	s.Marks[0].Asked = 1 // before anybody was told of it
	right(t, s)
}

// A mark that was seen is never lower again, whoever was told of it.
func TestCheck_DurableSeen(t *testing.T) {
	s := takeover()
	s.unheard(30)
	for _, mark := range []fencing.Token{20, 30, 30} {
		s.Marks = append(s.Marks, history.MarksSeen{Asked: s.tick(), Marks: map[string]fencing.Token{key: mark}})
	}
	right(t, s)
	s.Marks[2].Marks[key] = 20
	broken(t, s, check.Durable)
	s.Marks = s.Marks[:2]
	s.Tables.Marks[key] = 20
	broken(t, s, check.Durable)
}

// A row is there, and its mark isn't, though nobody was told of its claim.
func TestCheck_DurableRows(t *testing.T) {
	s := takeover()
	s.unheard(30)
	s.write(30)
	right(t, s)
	s.Tables.Marks[key] = 20
	broken(t, s, check.Durable, "write order:1 token 30: row 5 → ok", "row 5 of order:1, token 30")
}

// A session that was claimed hears that nobody did.
func TestCheck_DurableTold(t *testing.T) {
	s := takeover()
	op := s.refused(history.KindWrite, 20)
	op.Code = fencing.CodeNotHolder
	right(t, s) // its claim may be what was refused
	op.Claimed = true
	broken(t, s, check.Durable, "write order:1 token 20: row 5 → refused LF002")
}
