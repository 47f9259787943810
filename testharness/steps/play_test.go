package steps_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	ids    int64
	turns  int
	keys   []string
	places map[string]string
	holds  map[string]fencing.Token
	ops    []*history.Op
	locks  []history.LockEvent
	faults []history.Fault
	names  [2][]string // of the steps of either try
	hit    [2]bool
}

// carry carries a plan out.
func (l *lane) carry(plan plan) (*play, error) {
	l.plays++
	p := &play{lane: l, plan: plan, ids: l.plays * 1000, places: map[string]string{}, holds: map[string]fencing.Token{}}
	for i := range plan.form.keys {
		p.keys = append(p.keys, fmt.Sprintf("%s-%d-%d", l.name, l.plays, i))
	}
	if _, err := l.admin.Exec(l.t.Context(), "INSERT INTO counter SELECT k, 0 FROM unnest($1::text[]) AS k", p.keys); err != nil {
		return p, err
	}
	tag := p.take()
	first := p.attempt("first", plan.form, tag)
	if err := p.try(0, first, l.sides[0], plan.first, plan.firstK); err != nil {
		return p, err
	}
	side := l.sides[0]
	if plan.succeeds {
		tag, side = p.take(), l.sides[1]
	}
	second := p.attempt("second", plan.form, tag)
	if err := p.try(1, second, side, plan.second, plan.secondK); err != nil {
		return p, err
	}
	if err := p.went(second); err != nil && !p.hit[1] {
		return p, fmt.Errorf("nothing was broken any more, and the second try failed: %w", err)
	}
	last := p.attempt("last", plain(), p.take()[:1])
	last.run(l.sides[l.plays%2])
	if err := p.went(last); err != nil {
		return p, fmt.Errorf("the last holder: %w", err)
	}
	for _, stale := range []*attempt{first, second} {
		stale.goOn()
	}
	for _, a := range []*attempt{first, second, last} {
		a.close()
	}
	if err := l.quiet(); err != nil {
		return p, err
	}
	return p, p.judge()
}

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

// plain is how the last holder does it: it looks before it writes.
func plain() form {
	return form{"last", 1, false, false, func(a *attempt) []flight { return []flight{a.set()} }}
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
	if a.form.name == "last" && !a.broken {
		a.look()
		if !a.broken {
			a.fly(a.simple(1))
		}
	}
	if !a.broken {
		return nil
	}
	for _, op := range p.ops {
		if op.Worker == a.name && op.Outcome != history.OutcomeOK {
			return fmt.Errorf("%s", op)
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
