package proxy_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
)

func TestPolicies_For(t *testing.T) {
	reject, observe := proxy.Policy{UntaggedWrites: proxy.RejectUntagged}, proxy.Policy{UntaggedWrites: proxy.ObserveUntagged}
	live := proxy.Policy{Fencing: proxy.FenceLive}
	p := proxy.Policies{Default: live, Rules: []proxy.Rule{
		{Role: "migrator"},
		{Database: "app", Role: "billing", Policy: reject},
		{Database: "app_*_eu", Policy: observe},
		{Role: "*svc*", Policy: reject},
	}}
	for name, c := range map[string]struct {
		database, role string
		want           proxy.Policy
	}{
		"the first that fits":        {"app", "migrator", proxy.Policy{}},
		"both names":                 {"app", "billing", reject},
		"one of them only":           {"other", "billing", live},
		"a longer name":              {"app", "billing2", live},
		"another case":               {"app", "Billing", live},
		"a pattern":                  {"app_1_eu", "x", observe},
		"a pattern with nothing":     {"app__eu", "x", observe},
		"a pattern that overlaps":    {"app_eu", "x", live},
		"a pattern on both sides":    {"z", "the_svc_role", reject},
		"a pattern on the whole":     {"z", "svc", reject},
		"an order that doesn't fit":  {"app_1_eu_", "x", live},
		"a name that has a wildcard": {"z", "s*vc", live},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.For(c.database, c.role); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestCheckPattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"app":                               "",
		"*" + strings.Repeat("a", 63) + "*": "",
		strings.Repeat("a", 64):             "no name in PostgreSQL has over 63 bytes",
		"a\x00b":                            "no name in PostgreSQL has a zero byte",
	} {
		got := ""
		if err := proxy.CheckPattern(pattern); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", pattern, got, want)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	for u := proxy.AllowUntagged; u <= proxy.RejectUntagged; u++ {
		if got, err := proxy.ParseUntaggedWrites(u.String()); err != nil || got != u {
			t.Errorf("%v: got %v, %v", u, got, err)
		}
	}
	for f := proxy.FenceAccepted; f <= proxy.FenceLive; f++ {
		if got, err := proxy.ParseFencing(f.String()); err != nil || got != f {
			t.Errorf("%v: got %v, %v", f, got, err)
		}
	}
	if _, err := proxy.ParseFencing("reject"); err == nil || err.Error() != `"reject" is none of accepted, issued, live` {
		t.Errorf("got %v", err)
	}
}
