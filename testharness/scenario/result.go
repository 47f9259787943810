package scenario

import "fmt"

// A Result is what the two runs of a story amount to.
type Result struct {
	Scenario    string  `json:"scenario"`
	Unprotected Verdict `json:"unprotected"`
	Protected   Verdict `json:"protected"`
}

// Check returns nil if the pair of runs shows what it is to show: a stale
// write that PostgreSQL alone commits, and that is refused through the proxy.
func (r Result) Check() error {
	switch {
	case r.Unprotected.StaleCommits == 0:
		return fmt.Errorf("%s: the run without the proxy shows no stale write", r.Scenario)
	case r.Protected.StaleCommits > 0:
		return fmt.Errorf("%s: %d stale writes were committed through the proxy", r.Scenario, r.Protected.StaleCommits)
	case len(r.Protected.Rejections) == 0:
		return fmt.Errorf("%s: nothing was refused through the proxy", r.Scenario)
	}
	return nil
}
