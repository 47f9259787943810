package main

import (
	"fmt"
	"strings"
)

// An invariant is one of the promises that docs/proof.md lists.
type invariant string

// The invariants.
const (
	order       invariant = "I1 order"
	barrier     invariant = "I2 barrier"
	readBarrier invariant = "I3 read barrier"
	durable     invariant = "I4 durable"
	noPoisoning invariant = "I5 no poisoning"
	nothingLost invariant = "I6 nothing lost"
	progress    invariant = "I7 progress"
	failClosed  invariant = "I8 fail closed"
	etcdAway    invariant = "I9 holder survives etcd"
	severalLock invariant = "I10 several locks"
)

// invariants are all there are, in the order of docs/proof.md.
func invariants() []invariant {
	return []invariant{order, barrier, readBarrier, durable, noPoisoning, nothingLost, progress, failClosed, etcdAway, severalLock}
}

// A mutant is the source without one protection.
type mutant struct {
	name    string
	breaks  invariant
	without string // the protection that is taken out, for docs/proof.md
	edits   []edit
	test    test // that must go red
}

// An edit replaces what stands in a file exactly once.
type edit struct {
	file     string // from the root of the repository
	old, new string
}

// A test is named as docs/proof.md names it.
type test struct {
	folder string // of its package, from the root of the repository
	name   string
	says   string // what it must say when it goes red, or it did so for another reason
}

func (t test) String() string { return t.folder + "." + t.name }

// pattern is what go test -run takes for this test and no other.
func pattern(names ...string) string { return "^(" + strings.Join(names, "|") + ")$" }

// apply makes the edit in the text of its file.
func (e edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.old); n != 1 {
		return "", fmt.Errorf("%s: what is to be replaced stands there %d times, want once:\n%s", e.file, n, e.old)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// parts are the mutants as they are listed.
func parts() [][]mutant {
	return [][]mutant{inChecks(), inClaims(), inSessions(), inNames(), inPolicies(), inLoans()}
}

// all returns every mutant, by invariant.
func all() []mutant {
	var listed []mutant
	for _, some := range parts() {
		listed = append(listed, some...)
	}
	var sorted []mutant
	for _, i := range invariants() {
		for _, m := range listed {
			if m.breaks == i {
				sorted = append(sorted, m)
			}
		}
	}
	return sorted
}

// table is what docs/proof.md says of the mutants.
func table(mutants []mutant) string {
	var b strings.Builder
	b.WriteString("| invariant | protection taken out | test that goes red | mutant |\n|---|---|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | %s | `%v` | `%s` |\n", m.breaks, m.without, m.test, m.name)
	}
	return b.String()
}
