package proxy

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A plan says where the checks go in the text of a Query, and what each of
// the statements of the new text is for.
type plan struct {
	insertions []sqlrewrite.Insertion
	purposes   []queue.Purpose
	// lateCommit: a check stands before a COMMIT and may fail it.
	lateCommit bool
}

// planQuery walks the statements of a text of size bytes and follows the
// transactions that they begin and end. own are the checks of the session.
func planQuery(t *txn, own checks, stmts []sqlrewrite.Statement, size int) plan {
	p := plan{purposes: make([]queue.Purpose, 0, 2*len(stmts)+1)}
	for _, st := range stmts {
		switch c := t.step(st.Class, st.Flags); c {
		case checkEarly:
			p.insert(st.Start, own.early+";", queue.Early)
		case checkLate, checkFull:
			why := lateFor(st.Class)
			p.insert(st.Start, own.text(c)+";", why)
			p.lateCommit = p.lateCommit || why == queue.LateCommit
		}
		p.purposes = append(p.purposes, queue.Client)
	}
	// A statement that needs a block fails when it is alone, and not beside
	// another.
	fails := len(stmts) == 1 && t.block == blockNone && stmts[0].Flags&sqlrewrite.NeedsBlock != 0
	if t.needsLate() && !fails && len(stmts) > 0 {
		p.insert(size, sqlrewrite.Separator+own.text(t.late()), queue.Late)
	}
	if len(p.insertions) == 0 {
		p.purposes = nil
	}
	return p
}

// lateFor returns the purpose of a late check before a statement: a COMMIT, or
// a change of the tag.
func lateFor(class sqlrewrite.Class) queue.Purpose {
	if class == sqlrewrite.Commit {
		return queue.LateCommit
	}
	return queue.Late
}

// begin puts a text before the first and only statement, and before its check.
func (p *plan) begin(at int, text string, why queue.Purpose) {
	if p.purposes == nil {
		p.purposes = []queue.Purpose{queue.Client}
	}
	p.insertions = slices.Insert(p.insertions, 0, sqlrewrite.Insertion{At: at, Text: text})
	p.purposes = slices.Insert(p.purposes, 0, why)
}

func (p *plan) insert(at int, text string, why queue.Purpose) {
	p.insertions = append(p.insertions, sqlrewrite.Insertion{At: at, Text: text})
	p.purposes = append(p.purposes, why)
}
