package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A move is what may come next in a session.
type move uint8

const (
	read move = iota // may write all the same, through a view
	write
	begin
	commit
	commitChain
	rollback
	rollbackChain
	savepoint
	rollbackTo
	release
	prepareTransaction
	setTag
	callSetTag // SELECT set_config(…)
	lockTable
	unseen       // a portal that the proxy never saw bound
	segmentEnd   // the segment ends, its replies come in
	segmentPiped // the segment ends, the next begins before they do
	moves
)

var moveNames = [...]string{
	"read", "write", "BEGIN", "COMMIT", "COMMIT AND CHAIN", "ROLLBACK", "ROLLBACK AND CHAIN", "SAVEPOINT",
	"ROLLBACK TO", "RELEASE", "PREPARE TRANSACTION", "SET tag", "set_config(tag)", "LOCK", "unseen", "sync", "sync, pipelined",
}

func (m move) String() string { return moveNames[m] }

// statement returns what the splitter says of the move.
func (m move) statement() (sqlrewrite.Class, sqlrewrite.Flags) {
	switch m {
	case read:
		return sqlrewrite.Read, 0
	case begin:
		return sqlrewrite.Begin, 0
	case commit:
		return sqlrewrite.Commit, 0
	case commitChain:
		return sqlrewrite.Commit, sqlrewrite.Chain
	case rollback:
		return sqlrewrite.Rollback, 0
	case rollbackChain:
		return sqlrewrite.Rollback, sqlrewrite.Chain
	case savepoint:
		return sqlrewrite.Savepoint, sqlrewrite.NeedsBlock
	case rollbackTo:
		return sqlrewrite.RollbackTo, sqlrewrite.NeedsBlock
	case release:
		return sqlrewrite.Release, sqlrewrite.NeedsBlock
	case prepareTransaction:
		return sqlrewrite.Prepare2PC, 0
	case setTag:
		return sqlrewrite.SetOrShow, sqlrewrite.TouchesTag
	case callSetTag:
		return sqlrewrite.MayWrite, sqlrewrite.TouchesTag
	case lockTable:
		return sqlrewrite.MayWrite, sqlrewrite.NeedsBlock
	}
	return sqlrewrite.MayWrite, 0
}

// A history is what a transaction did, in order: w for a write, c for a check,
// t for a change of the tag, s for a savepoint. It is a value, so that paths
// can share their beginnings without copies on the heap.
type history struct {
	n   int
	did [32]byte
}

func done(text string) history {
	h := history{n: len(text)}
	copy(h.did[:], text)
	return h
}

func (h *history) add(what byte) {
	h.did[h.n] = what
	h.n++
}

func (h *history) bytes() []byte { return h.did[:h.n] }

// A server is the plainest account of a transaction. Every statement succeeds;
// a move that can't is the end of the path.
type server struct {
	block block // never unknown
	history
}

// covered reports whether every write in the transaction is followed by a
// check before the tag changes, or comes after one under the tag that stands.
// It is all that is asked of the request side, at every commit.
func (s *server) covered() bool {
	good := false // a check under this tag
	open := false // a write that no check covers
	for _, d := range s.bytes() {
		switch d {
		case 't':
			if open {
				return false
			}
			good = false
		case 'c':
			good, open = true, false
		case 'w':
			open = open || !good
		}
	}
	return !open
}

// run takes a statement. alive is false where PostgreSQL would refuse it.
func (s *server) run(m move) (commits, alive bool) {
	if s.block == blockFailed {
		switch m {
		case commit, rollback, prepareTransaction:
			*s = server{}
		case commitChain, rollbackChain:
			*s = server{block: blockOpen}
		case rollbackTo:
			return false, s.back()
		default:
			return false, false
		}
		return false, true
	}
	switch m {
	case read, write:
		s.add('w')
	case setTag:
		s.add('t')
	case callSetTag: // and whatever else the same SELECT does
		s.add('w')
		s.add('t')
	case begin:
		s.block = blockOpen
	case commit, prepareTransaction:
		return true, true
	case commitChain:
		return s.block == blockOpen, s.block == blockOpen
	case rollback:
		*s = server{}
	case rollbackChain:
		s.n = 0
		return false, s.block == blockOpen
	case savepoint:
		s.add('s')
		return false, s.block == blockOpen
	case rollbackTo:
		return false, s.block == blockOpen && s.back()
	case release:
		at := bytes.IndexByte(s.bytes(), 's')
		if s.block != blockOpen || at < 0 {
			return false, false
		}
		s.did[at] = ' '
	}
	return false, true
}

// back goes back to the last savepoint.
func (s *server) back() bool {
	at := bytes.LastIndexByte(s.bytes(), 's')
	if at < 0 {
		return false
	}
	s.n, s.block = at+1, blockOpen
	return true
}

// ended begins anew after a commit by the given move.
func (s *server) ended(m move) {
	next := server{}
	if m == commitChain {
		next.block = blockOpen
	}
	*s = next
}

// A path is a session at some point: the prediction, and what it predicts.
type path struct {
	txn    txn
	server server
	unseen bool  // the segment ran something unseen
	ran    bool  // what the end of the last segment said of txn.ran
	covers bool  // and of txn.checked
	start  block // of the segment
	trace  [6]move
	length int
}

// walk tries every sequence of moves from p on and reports each commit of a
// write that no check covers.
func walk(t *testing.T, p path, depth int) {
	if depth == 0 {
		return
	}
	for m := range moves {
		next := p
		next.trace[p.length] = m
		next.length++
		switch m {
		case segmentEnd, segmentPiped:
			next.endSegment(t, m == segmentPiped)
			walk(t, next, depth-1)
		case unseen:
			if next.txn.unknown() != checkNone {
				next.server.add('c')
			}
			next.unseen = true
			for _, was := range []move{write, begin, commit, rollback, rollbackTo, setTag} {
				if q := next; q.execute(t, was) {
					walk(t, q, depth-1)
				}
			}
		default:
			next.learn(m)
			checked := next.txn.step(m.statement()) != checkNone
			if checked {
				next.server.add('c')
			}
			failed := next.server.block == blockFailed
			if !next.execute(t, m) {
				continue
			}
			if failed && checked && !next.unseen {
				t.Errorf("%v: a check in a failed block, which would have listened", next.trace[:next.length])
			}
			walk(t, next, depth-1)
		}
	}
}

// learn is session.learnBlock: where the block matters and was unknown, the
// replies to the segments before are waited for.
func (p *path) learn(m move) {
	if p.txn.block == blockUnknown && !p.unseen && blockMatters(m.statement()) {
		p.txn.learn(p.start, p.covers, p.ran)
	}
}

// execute lets the server run a move, and looks at the transaction where it
// commits.
func (p *path) execute(t *testing.T, m move) (alive bool) {
	commits, alive := p.server.run(m)
	if alive && commits {
		p.commits(t)
		p.server.ended(m)
	}
	return alive
}

func (p *path) commits(t *testing.T) {
	if !p.server.covered() {
		t.Errorf("%v commits %q (w: write, c: check, t: tag, s: savepoint)", p.trace[:p.length], p.server.bytes())
	}
}

// endSegment is session.guardSync, and session.settle before the next one.
func (p *path) endSegment(t *testing.T, pipelined bool) {
	if p.server.block != blockFailed && p.txn.needsLate() {
		p.server.add('c')
	}
	p.txn.sync()
	checked := p.txn.checked && p.txn.block == blockOpen
	if p.server.block == blockNone {
		p.commits(t)
		p.server = server{}
	}
	p.unseen, p.start, p.ran, p.covers = false, p.server.block, p.txn.ran, checked
	if pipelined {
		p.txn = txn{block: blockUnknown, uncovered: true, ran: true, guess: true}
		return
	}
	p.txn = txn{guess: true}
	p.txn.learn(p.server.block, checked, p.ran)
}

// TestTxn_NothingCommitsUnchecked tries every sequence of statements and ends
// of segments, from every state that a transaction can be in, and assumes that
// each statement writes if it can.
func TestTxn_NothingCommitsUnchecked(t *testing.T) {
	starts := map[string]path{
		"no block":       {},
		"open":           {txn: txn{block: blockOpen, uncovered: true, ran: true}, server: server{block: blockOpen, history: done("w")}},
		"open, checked":  {txn: txn{block: blockOpen, checked: true}, server: server{block: blockOpen, history: done("cw")}},
		"failed":         {txn: txn{block: blockFailed}, server: server{block: blockFailed, history: done("wsw")}},
		"unknown: none":  {txn: txn{block: blockUnknown, uncovered: true, ran: true, guess: true}},
		"unknown: open":  {ran: true, txn: txn{block: blockUnknown, uncovered: true, ran: true, guess: true}, server: server{block: blockOpen, history: done("wsw")}},
		"unknown: fails": {ran: true, txn: txn{block: blockUnknown, uncovered: true, ran: true, guess: true}, server: server{block: blockFailed, history: done("wsw")}},
	}
	for name, p := range starts {
		t.Run(name, func(t *testing.T) {
			p.start = p.server.block
			depth := 4 // the states are what one or two more statements lead to
			if name == "no block" {
				depth = 5
			}
			walk(t, p, depth)
		})
	}
}

// A transaction pays for no more checks than it needs.
func TestTxn_Checks(t *testing.T) {
	for _, c := range []struct {
		moves string
		want  string // a check before each: e early, l late, f in full; after a ;: before the Sync
	}{
		{"read", "-;l"},
		{"write", "e;-"},
		{"write write read", "e--;-"},
		{"read write", "-e;-"},
		{"read read", "--;l"},
		{"BEGIN write write COMMIT", "-e--;-"},
		{"BEGIN read COMMIT", "--l;-"},
		{"BEGIN COMMIT", "--;-"},
		{"BEGIN read ROLLBACK", "---;-"},
		{"BEGIN write ROLLBACK write", "-e-e;-"},
		{"BEGIN write", "-e;-"},
		{"BEGIN read", "--;-"},
		{"BEGIN SET-tag SET-tag write COMMIT", "---e-;-"},
		{"SET-tag", "-;-"},
		{"SET-tag write", "-e;-"},
		{"write SET-tag write", "e-e;-"},
		{"write SET-tag", "e-;f"},
		{"BEGIN write SET-tag COMMIT", "-e-f;-"},
		{"BEGIN SAVEPOINT write ROLLBACK-TO write COMMIT", "-e--e-;-"},
		{"BEGIN write SAVEPOINT ROLLBACK-TO COMMIT", "-e--f;-"},
		{"BEGIN write SAVEPOINT write RELEASE COMMIT", "-e---f;-"},
		{"BEGIN write COMMIT-AND-CHAIN write COMMIT", "-e-e-;-"},
		{"write COMMIT write", "e-e;-"},
		{"read COMMIT", "-l;-"},
		{"write BEGIN write COMMIT", "e---;-"},
		{"SAVEPOINT", "-;l"},
		{"LOCK", "-;l"},
		{"BEGIN LOCK write COMMIT", "-e--;-"},
		{"unseen", "e;f"},
		{"unseen write", "ee;-"},
	} {
		var tx txn
		got := ""
		for name := range strings.FieldsSeq(c.moves) {
			m := move(slices.Index(moveNames[:], strings.ReplaceAll(name, "-", " ")))
			if m == unseen {
				got += letter(tx.unknown())
			} else {
				got += letter(tx.step(m.statement()))
			}
		}
		late := checkNone
		if tx.needsLate() {
			late = tx.late()
		}
		if got += ";" + letter(late); got != c.want {
			t.Errorf("%s: got %s, want %s", c.moves, got, c.want)
		}
	}
}

// At the end of a segment an implicit transaction is over, and a block is not.
func TestTxn_Sync(t *testing.T) {
	var tx txn
	tx.step(write.statement())
	tx.sync()
	if want := (txn{}); tx != want {
		t.Errorf("outside a block: got %+v, want %+v", tx, want)
	}
	tx.step(begin.statement())
	tx.step(write.statement())
	tx.sync()
	if want := (txn{block: blockOpen, checked: true, held: true}); tx != want {
		t.Errorf("in a block: got %+v, want %+v", tx, want)
	}
}

func letter(c check) string { return [...]string{"-", "e", "l", "f"}[c] }

// Nothing hidden goes into a failed block: only PostgreSQL answers there.
func TestTxn_FailedBlock(t *testing.T) {
	for m := range segmentEnd {
		tx := txn{block: blockFailed}
		var c check
		if m == unseen {
			c = tx.unknown()
		} else {
			c = tx.step(m.statement())
		}
		if c != checkNone {
			t.Errorf("%v: got check %s", m, letter(c))
		}
		want := blockFailed
		switch m {
		case commit, rollback, prepareTransaction:
			want = blockNone
		case commitChain, rollbackChain, rollbackTo:
			want = blockOpen
		case unseen:
			want = blockUnknown
		}
		if tx.block != want {
			t.Errorf("%v: got block %v, want %v", m, tx.block, want)
		}
	}
}

func TestTxn_Ends(t *testing.T) {
	for names, want := range map[string]ends{
		"write":                              0,
		"COMMIT":                             endCommit,
		"BEGIN write ROLLBACK":               endRollback,
		"COMMIT BEGIN SAVEPOINT ROLLBACK-TO": endCommit | endRollbackTo,
		"COMMIT-AND-CHAIN ROLLBACK":          endCommit | endRollback,
		"unseen":                             endCommit | endRollback,
	} {
		var tx txn
		for name := range strings.FieldsSeq(names) {
			m := move(slices.Index(moveNames[:], strings.ReplaceAll(name, "COMMIT-AND-CHAIN", "COMMIT AND CHAIN")))
			if name == "ROLLBACK-TO" {
				m = rollbackTo
			}
			if m == unseen {
				tx.unknown()
			} else {
				tx.step(m.statement())
			}
		}
		if got := tx.sync(); got != want {
			t.Errorf("%s: got %b, want %b", names, got, want)
		}
		if got := tx.sync(); got != 0 {
			t.Errorf("%s, a second time: got %b, want 0", names, got)
		}
	}
}

func TestBlockOf(t *testing.T) {
	for status, want := range map[byte]block{'I': blockNone, 'T': blockOpen, 'E': blockFailed, 'x': blockUnknown} {
		if got := blockOf(status); got != want {
			t.Errorf("%q: got %v, want %v", status, got, want)
		}
	}
	if got := fmt.Sprint(blockNone, blockOpen, blockFailed, blockUnknown); got != "none open failed unknown" {
		t.Errorf("got %s", got)
	}
}
