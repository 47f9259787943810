package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// commented is a setting of the file that is commented out.
var commented = regexp.MustCompile(`^#([a-z_]+): (.+)$`)

// The commented file has each setting of serve and lock once, with its default
// where there is one, tells which can be reloaded, and can be used as it stands and
// with every # taken away.
func TestDeploy_SettingsFile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/fenceproxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(environment{lookup: os.LookupEnv})
	flags := pflag.NewFlagSet("all", pflag.ContinueOnError)
	for _, name := range []string{"serve", "lock"} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		flags.AddFlagSet(cmd.LocalNonPersistentFlags())
	}
	exclusive := []string{"embed-etcd", "upstream-password", "etcd-password", "admin-token"} // with what stands there besides
	seen := map[string]bool{}
	var uncommented strings.Builder
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		for line := range strings.Lines(paragraph) {
			m := commented.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			name := strings.ReplaceAll(m[1], "_", "-")
			f := flags.Lookup(name)
			switch {
			case f == nil:
				t.Errorf("%s is no setting", m[1])
				continue
			case seen[name]:
				t.Errorf("%s stands there twice", m[1])
			case f.DefValue != "" && f.DefValue != m[2]:
				t.Errorf("%s: got %s, want its default %s", m[1], m[2], f.DefValue)
			}
			if got, want := strings.Contains(paragraph, "[reload]"), reloadable(name); got != want {
				t.Errorf("%s: says of a reload %v, want %v", m[1], got, want)
			}
			seen[name] = true
			if !slices.Contains(exclusive, name) {
				uncommented.WriteString(strings.TrimSpace(line)[1:] + "\n")
			}
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] && !slices.Contains([]string{"config", "help", checkConfigFlag}, f.Name) {
			t.Errorf("%s is missing", fileKey(f.Name))
		}
	})
	for name, file := range map[string]string{"as it stands": string(text), "all of it": uncommented.String()} {
		if _, err := configured(t, nil, file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The chart's settings become a ConfigMap, which isn't for secrets.
func TestDeploy_ChartRefusesSecrets(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/fenceproxy/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Settings struct {
				Properties map[string]struct{ Not *struct{} }
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range secretFlags {
		if schema.Properties.Settings.Properties[fileKey(name)].Not == nil {
			t.Errorf("values.schema.json takes %s", fileKey(name))
		}
	}
}

// A README's reader finds each flag of serve in its table.
func TestReadme_Settings(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, err := newRoot(environment{lookup: os.LookupEnv}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !strings.Contains(string(text), "`--"+f.Name+"`") {
			t.Errorf("README.md lacks --%s", f.Name)
		}
	})
}
