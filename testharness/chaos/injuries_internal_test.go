package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
)

func linked(t *testing.T, o *Options) *cluster {
	t.Helper()
	c := &cluster{options: o, links: map[string]*fault.Link{}}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.openLinks(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Every link that a plan wants to break is there, and every link is broken by
// some plan, but for the harness's own.
func TestCluster_PlannedLinks(t *testing.T) {
	for _, straight := range []bool{false, true} {
		o := NewOptions(nil, nil)
		o.Straight, o.Duration = straight, 2*time.Hour
		c := linked(t, &o)
		broken := map[string]bool{}
		for _, e := range Plan(o) {
			i := slices.IndexFunc(linkModes(), func(m fault.Mode) bool { return m.String() == e.Kind })
			if i < 0 {
				continue
			}
			modes := c.modes(e.Target, linkModes()[i])
			if len(modes) == 0 {
				t.Fatalf("no link is called %s", e.Target)
			}
			for name := range modes {
				broken[name] = true
			}
		}
		for _, name := range c.linksTo("", "") {
			if own := strings.HasPrefix(name, "harness"); broken[name] == own {
				t.Errorf("straight %v: %s is broken: %v", straight, name, broken[name])
			}
		}
	}
}

func TestCluster_Modes(t *testing.T) {
	o := NewOptions(nil, nil)
	c := linked(t, &o)
	for _, tc := range []struct {
		target string
		mode   fault.Mode
		want   map[string]fault.Mode
	}{
		{"etcd-1→etcd-2", fault.Silent, map[string]fault.Mode{"etcd-1→etcd-2": fault.Silent}},
		{"etcd-1↔etcd", fault.SilentThere, map[string]fault.Mode{
			"etcd-1→etcd-2": fault.SilentThere, "etcd-1→etcd-3": fault.SilentThere,
			"etcd-2→etcd-1": fault.SilentBack, "etcd-3→etcd-1": fault.SilentBack}},
		{"etcd-2↔etcd-3", fault.SilentBack, map[string]fault.Mode{"etcd-2→etcd-3": fault.SilentBack, "etcd-3→etcd-2": fault.SilentThere}},
		{"etcd-2↔etcd-3", fault.Cut, map[string]fault.Mode{"etcd-2→etcd-3": fault.Cut, "etcd-3→etcd-2": fault.Cut}},
		{"proxy-1→pg", fault.Slow, map[string]fault.Mode{"proxy-1→pg-a": fault.Slow, "proxy-1→pg-b": fault.Slow}},
		{"nobody→pg", fault.Slow, map[string]fault.Mode{}},
	} {
		if diff := cmp.Diff(tc.want, c.modes(tc.target, tc.mode)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.mode, tc.target, diff)
		}
	}
}
