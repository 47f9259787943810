package chaos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// tellProgressEvery is how often a run says how it goes.
const tellProgressEvery = 3 * time.Second

// tell says how it goes, until ctx ends.
func (r *run) tell(ctx context.Context) {
	tick := time.NewTicker(tellProgressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t := r.crew.done()
		fmt.Fprintf(r.options.Out, "%5.0fs  %8d writes  %6d claims  %6d takeovers  unknown %d  refused%s  faults: %s\n",
			time.Since(r.began).Seconds(), t.Writes, t.Claims, t.Takeovers, t.Unknown, codes(t.Refused), strings.Join(r.faults.Active(), ", "))
	}
}

// codes is how often each code was heard.
func codes(refused map[fencing.Code]int) string {
	var b strings.Builder
	for _, code := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&b, " %s %d", code, refused[code])
	}
	return cmp.Or(b.String(), " none")
}

// Print writes the summary of a run.
func (r Result) Print(to io.Writer) {
	kind := "fenced"
	if r.Straight {
		kind = "unfenced"
	}
	t := r.Tally
	fmt.Fprintf(to, "\nseed %d: %d acknowledged %s writes in %d transactions in %.0f s (%.0f writes a second), %d claims, %d takeovers\n",
		r.Seed, t.Writes, kind, t.Commits, r.Took.Seconds(), float64(t.Writes)/r.Took.Seconds(), t.Claims, t.Takeovers)
	fmt.Fprintf(to, "without an answer: %d operations; refused:%s\n", t.Unknown, codes(t.Refused))
	kinds := slices.Sorted(maps.Keys(r.Faults))
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", kind, r.Faults[kind])
	}
	fmt.Fprintf(to, "faults: %s\n\n", strings.Join(kinds, ", "))
	r.Report.Print(to)
	fmt.Fprintf(to, "\nviolations: %d; checked in %.0f s\n", r.Report.Violations(), r.Checked.Seconds())
}

// Missing returns those invariants that stale holders break when nobody fences
// them, and that a report doesn't show to be broken. A run without fencing in
// which some are missing says nothing of a run with it.
func Missing(report check.Report) []check.Invariant {
	broken := report.Broken()
	return slices.DeleteFunc([]check.Invariant{check.Order, check.Barrier, check.Read, check.Several, check.Linear}, func(i check.Invariant) bool {
		return slices.Contains(broken, i)
	})
}
