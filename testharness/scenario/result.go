package scenario

import (
	"fmt"
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Result is what the runs of a story amount to.
type Result struct {
	Scenario string `json:"scenario"`
	Title    string `json:"title"`
	Case     int    `json:"case,omitempty"`
	// Unprotected is the run with a lock in etcd, or the first control run
	// of a story that has none with that; Others are the further ones.
	Unprotected Verdict   `json:"unprotected"`
	Others      []Verdict `json:"others,omitempty"`
	Protected   Verdict   `json:"protected"`

	Story Story `json:"-"`
}

// NewResult sorts the verdicts of a story's runs.
func NewResult(story Story, verdicts []Verdict) Result {
	r := Result{Scenario: story.Name, Title: story.Title, Case: story.Case, Story: story}
	controls := slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.Arm == ArmFenced })
	for _, v := range verdicts {
		if v.Arm == ArmFenced {
			r.Protected = v
		}
	}
	main := max(0, slices.IndexFunc(controls, func(v Verdict) bool { return v.Arm == ArmEtcd }))
	r.Unprotected = controls[main]
	r.Others = slices.Delete(controls, main, main+1)
	return r
}

// Controls are the runs without fencing, from the least to the most.
func (r Result) Controls() []Verdict {
	all := append(slices.Clone(r.Others), r.Unprotected)
	slices.SortFunc(all, func(a, b Verdict) int { return int(a.Arm) - int(b.Arm) })
	return all
}

// Check returns nil if the runs show what they are to show: damage in each
// control run, in the rows that it leaves behind, since a stale write that nobody
// sees any more convinces nobody; through the proxy none, and refusals with the codes that the
// story is about, and of nobody who holds the lock.
func (r Result) Check() error {
	for _, v := range r.Controls() {
		if len(v.Wrong) == 0 {
			return fmt.Errorf("%s: the run %q shows no damage in its rows", r.Scenario, v.Arm)
		}
	}
	p := r.Protected
	switch {
	case p.StaleCommits > 0:
		return fmt.Errorf("%s: %d stale writes were committed through the proxy", r.Scenario, p.StaleCommits)
	case p.ForgedCommits > 0:
		return fmt.Errorf("%s: %d writes under numbers that no lock gave were committed through the proxy", r.Scenario, p.ForgedCommits)
	case len(p.Wrong) > 0:
		return fmt.Errorf("%s: wrong through the proxy: %s", r.Scenario, p.Wrong[0])
	case p.Unfounded > 0 && !r.Story.Live:
		return fmt.Errorf("%s: %d times a holder was told of a higher token through the proxy that nobody had shown", r.Scenario, p.Unfounded)
	}
	return r.checkCodes()
}

func (r Result) checkCodes() error {
	refused := map[fencing.Code]bool{}
	for _, rejection := range r.Protected.Rejections {
		if !slices.Contains(r.Story.Codes, rejection.Code) {
			return fmt.Errorf("%s: %s was refused with %s, want %v", r.Scenario, rejection.Actor, rejection.Code, r.Story.Codes)
		}
		refused[rejection.Code] = true
	}
	if len(r.Story.Codes) > 0 && len(refused) == 0 {
		return fmt.Errorf("%s: nothing was refused through the proxy", r.Scenario)
	}
	if must := r.Story.Must; must != "" && !refused[must] {
		return fmt.Errorf("%s: nothing was refused with %s", r.Scenario, must)
	}
	return nil
}
