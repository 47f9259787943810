package check

import (
	"cmp"
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// facts is a history, sorted for the checkers.
type facts struct {
	*history.History
	keys    []string
	rows    map[string][]history.Row        // by key, as they stand at the end, in the order of their ids
	there   map[int64]history.Row           // the same, by id
	twice   []history.Row                   // those whose id another one has
	writer  map[int64]*history.Op           // who wrote, or meant to write, a row
	claims  map[string][]*history.Op        // by key, in the order of Invoke
	mine    map[string][]*history.Op        // the operations of a worker, in its own order
	highest map[string][]fencing.Token      // by key, the highest token that the first i of those claims may have raised the mark to
	lastly  map[asking]history.Moment       // when a worker presented a pair for the last time, or was answered
	holding map[fencing.Pair]history.Tenure // who was a holder, and when
	faults  []history.Fault                 // in the order of Begin
	end     history.Moment                  // when the last operation began or was answered
	first   map[fencing.Pair]history.Moment // when a pair was claimed first, whatever came of it
	shown   map[fencing.Pair]bool           // what anybody presented to the database
}

// An asking is a worker that presents a pair.
type asking struct {
	worker string
	pair   fencing.Pair
}

func learn(h *history.History, limits Limits) *facts {
	f := &facts{
		History: h, rows: map[string][]history.Row{}, there: map[int64]history.Row{}, writer: map[int64]*history.Op{},
		claims: map[string][]*history.Op{}, mine: map[string][]*history.Op{}, first: map[fencing.Pair]history.Moment{},
		highest: map[string][]fencing.Token{}, lastly: map[asking]history.Moment{}, shown: map[fencing.Pair]bool{},
		holding: history.Holdings(history.Tenures(h.Locks)),
		faults:  slices.SortedFunc(slices.Values(h.Faults), func(a, b history.Fault) int { return cmp.Compare(a.Begin, b.Begin) }),
	}
	known := tabled(h)
	for _, r := range h.Tables.Rows {
		f.rows[r.Key] = append(f.rows[r.Key], r)
		if _, ok := f.there[r.ID]; ok {
			f.twice = append(f.twice, r)
		}
		f.there[r.ID] = r
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		f.mine[op.Worker] = append(f.mine[op.Worker], op)
		f.end = max(f.end, op.Invoke, op.Return)
		for _, p := range op.Tag {
			known[p.Key] = true
			a := asking{op.Worker, p}
			f.lastly[a] = max(f.lastly[a], op.Invoke, op.Return)
			f.shown[p] = f.shown[p] || op.Asks() && !op.Unsent()
			if op.Kind == history.KindClaim && !op.Unsent() {
				f.claims[p.Key] = append(f.claims[p.Key], op)
				if _, ok := f.first[p]; !ok {
					f.first[p] = op.Invoke
				}
			}
		}
		for _, r := range op.Rows {
			f.writer[r.ID] = op
		}
		if op.Move != nil {
			known[op.Move.From], known[op.Move.To] = true, true
		}
	}
	for key := range known {
		f.keys = append(f.keys, key)
	}
	slices.Sort(f.keys)
	for _, key := range f.keys {
		highest := []fencing.Token{0}
		for i, op := range f.claims[key] {
			token := op.Token(key)
			if answered := op.Outcome == history.OutcomeOK; answered && !f.held(key, token) || !answered && !f.mayRaise(op, fencing.Pair{Key: key, Token: token}, limits) {
				token = 0
			}
			highest = append(highest, max(highest[i], token))
		}
		f.highest[key] = highest
	}
	for _, rows := range f.rows {
		slices.SortFunc(rows, func(a, b history.Row) int { return cmp.Compare(a.ID, b.ID) })
	}
	for _, ops := range f.mine {
		slices.SortFunc(ops, func(a, b *history.Op) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return f
}

// tabled are the keys of all that stands in the database or was seen there,
// whether or not anybody ever named them: what came out of nowhere is wrong too.
func tabled(h *history.History) map[string]bool {
	known := map[string]bool{}
	for _, r := range h.Tables.Rows {
		known[r.Key] = true
	}
	for key := range h.Tables.Counters {
		known[key] = true
	}
	for key := range h.Tables.Balances {
		known[key] = true
	}
	for _, seen := range append(slices.Clone(h.Marks), history.MarksSeen{Marks: h.Tables.Marks}) {
		for key := range seen.Marks {
			known[key] = true
		}
	}
	return known
}

// held reports whether a token ever was a lock's holder's.
func (f *facts) held(key string, token fencing.Token) bool {
	_, ok := f.holding[fencing.Pair{Key: key, Token: token}]
	return ok
}

// committed reports whether a write is in the tables, whatever its worker was
// told.
func (f *facts) committed(op *history.Op) bool {
	for _, r := range op.Rows {
		if _, ok := f.there[r.ID]; ok {
			return true
		}
	}
	return false
}
