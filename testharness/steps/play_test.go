package steps_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// A plan is what one play is about. A step below 0 is none.
type plan struct {
	form    form
	first   int // the step of the first try at which something is broken
	firstK  kind
	second  int // and of the second try
	secondK kind
	// succeeds says that the second try is the next holder's, by the other proxy;
	// otherwise it is the worker's own, in a new session.
	succeeds bool
}

func (p plan) String() string {
	who := "the worker again"
	if p.succeeds {
		who = "the next holder"
	}
	text := fmt.Sprintf("%s, %s at step %d, then %s", p.form.name, p.firstK, p.first, who)
	if p.second >= 0 {
		text += fmt.Sprintf(", %s at step %d of that", p.secondK, p.second)
	}
	return text
}

// A play is a plan carried out, and what is written down of it.
type play struct {
	lane   *lane
	plan   plan
	ids    atomic.Int64
	turns  int
	keys   []string
	places map[string]string
	holds  map[string]fencing.Token
	locks  []history.LockEvent
	faults []history.Fault
	names  [2][]string // of the steps of either try
	hit    [2]bool
	next   []*attempt // those who took over while a message was held up

	mu  sync.Mutex
	ops []*history.Op
}

// carry carries a plan out.
func (l *lane) carry(plan plan) (*play, error) {
	l.plays++
	p := &play{lane: l, plan: plan, places: map[string]string{}, holds: map[string]fencing.Token{}}
	p.ids.Store(l.plays * 1000)
	l.now = p
	for i := range plan.form.keys {
		p.keys = append(p.keys, fmt.Sprintf("%s-%d-%d", l.name, l.plays, i))
	}
	if _, err := l.admin.Exec(l.t.Context(), "INSERT INTO counter SELECT k, 0 FROM unnest($1::text[]) AS k", p.keys); err != nil {
		return p, err
	}
	stale, err := p.tries()
	if err != nil {
		return p, errors.Join(err, p.judge())
	}
	last := p.attempt("last", plain(), p.take()[:1])
	if err := p.takesOver(last, l.sides[l.plays%2], last.simple(1)); err != nil {
		return p, fmt.Errorf("the last holder: %w", err)
	}
	for _, a := range stale {
		a.goOn()
	}
	for _, a := range append(stale, last) {
		a.close()
	}
	if err := l.quiet(); err != nil {
		return p, err
	}
	return p, p.judge()
}

// tries has both tries made. It returns them, and those who took over meanwhile.
func (p *play) tries() (made []*attempt, err error) {
	tag := p.take()
	first := p.attempt("first", p.plan.form, tag)
	if err := p.try(0, first, p.lane.sides[0], p.plan.first, p.plan.firstK); err != nil {
		return nil, err
	}
	side, lost := p.lane.sides[0], len(p.next) > 0
	if p.plan.succeeds {
		tag, side, lost = p.take(), p.lane.sides[1], false
	}
	second := p.attempt("second", p.plan.form, tag)
	if err := p.try(1, second, side, p.plan.second, p.plan.secondK); err != nil {
		return nil, err
	}
	switch err := p.went(second); {
	case lost && err == nil:
		return nil, fmt.Errorf("another one had taken over, and the second try went through")
	case !lost && err != nil && !p.hit[1]:
		return nil, fmt.Errorf("nothing was broken any more, and the second try failed: %w", err)
	}
	return append([]*attempt{first, second}, p.next...), nil
}

// succeed has the next holder take a lock, claim it by a proxy, look, and write,
// while a message is held up. It writes by COPY, which waits for nobody's counter.
func (p *play) succeed(by *side) error {
	key := p.keys[int(p.lane.plays)%len(p.keys)]
	next := p.attempt(fmt.Sprintf("next %d", len(p.next)+1), plain(), []fencing.Pair{{Key: key, Token: p.hold(key)}})
	p.next = append(p.next, next)
	if err := p.takesOver(next, by, next.copies()); err != nil {
		return fmt.Errorf("the next holder, while the message was held up: %w", err)
	}
	return nil
}

// takesOver has an attempt claim, look at what those before it left, and write.
func (p *play) takesOver(a *attempt, by *side, write flight) error {
	a.run(by)
	if !a.broken {
		a.look()
	}
	if !a.broken {
		a.fly(write)
	}
	return p.went(a)
}

// record takes an operation in, of whichever attempt.
func (p *play) record(op *history.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops = append(p.ops, op)
}

// nextID numbers a row.
func (p *play) nextID() int64 { return p.ids.Add(1) }

// take takes the play's locks for their next holder.
func (p *play) take() (tag []fencing.Pair) {
	for _, key := range p.keys {
		tag = append(tag, fencing.Pair{Key: key, Token: p.hold(key)})
	}
	return tag
}

func (p *play) attempt(name string, f form, tag []fencing.Pair) *attempt {
	return &attempt{play: p, form: f, name: name, tag: tag}
}

// plain is how those claim who look before they write.
func plain() form {
	return form{"plain", 1, false, false, func(a *attempt) []flight { return []flight{a.set()} }}
}

// try has an attempt made, in which something is broken at a step. Only a tag
// at startup has the login counted, and so has a second try.
func (p *play) try(which int, a *attempt, s *side, at int, k kind) error {
	if which == 0 && !a.form.startup && !a.open(s, nil) {
		return fmt.Errorf("nothing is broken yet, and the login failed")
	}
	m := p.lane.steps
	m.arm(at, k)
	a.run(s)
	names, hit, err := m.disarm()
	p.names[which], p.hit[which] = names, hit
	p.faults = append(p.faults, m.faults...)
	return err
}

// went says why an attempt did not succeed.
func (p *play) went(a *attempt) error {
	if !a.broken {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range p.ops {
		if op.Worker == a.name && op.Outcome != history.OutcomeOK {
			return fmt.Errorf("%s: %s", op, a.said)
		}
	}
	return fmt.Errorf("its login failed")
}

// judge holds what was written down against what is in the tables.
func (p *play) judge() error {
	h := &history.History{Locks: p.locks, Faults: p.faults}
	for _, op := range p.ops {
		h.Ops = append(h.Ops, *op)
	}
	slices.SortStableFunc(h.Ops, func(a, b history.Op) int { return cmp.Compare(a.Invoke, b.Invoke) })
	if err := p.tables(&h.Tables); err != nil {
		return err
	}
	limits := check.NewLimits()
	limits.Recovery, limits.Claim = 0, 5*time.Second
	report := check.Check(h, limits)
	if report.OK() {
		return nil
	}
	var text bytes.Buffer
	report.Print(&text)
	for i := range h.Ops {
		fmt.Fprintf(&text, "  %s\n", &h.Ops[i])
	}
	return fmt.Errorf("%v:\n%s", report.Broken(), &text)
}

func (p *play) tables(to *history.Tables) error {
	*to = history.Tables{Counters: map[string]int64{}, Marks: map[string]fencing.Token{}}
	rows, err := p.lane.admin.Query(p.lane.t.Context(), `
		SELECT 'row', key, id, token, coalesce(n, 0) FROM entry WHERE key = ANY ($1)
		UNION ALL SELECT 'counter', key, n, 0, 0 FROM counter WHERE key = ANY ($1)
		UNION ALL SELECT 'mark', resource_key, token, 0, 0 FROM fence.mark WHERE resource_key = ANY ($1)`, p.keys)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var what, key string
		var a, b, c int64
		if err := rows.Scan(&what, &key, &a, &b, &c); err != nil {
			return err
		}
		switch what {
		case "row":
			to.Rows = append(to.Rows, history.Row{ID: a, Key: key, Token: fencing.Token(b), N: c})
		case "counter":
			to.Counters[key] = a
		case "mark":
			to.Marks[key] = fencing.Token(a)
		}
	}
	return rows.Err()
}

// story is what happened, for people.
func (p *play) story(err error) string {
	return fmt.Sprintf("%v: %v\nits steps: %s\nof the second try: %s", p.plan, err, strings.Join(p.names[0], ", "), strings.Join(p.names[1], ", "))
}
