package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// configured parses a command line of serve and fills it up from an
// environment and a file.
func configured(t *testing.T, env map[string]string, file string, args ...string) (*cobra.Command, error) {
	t.Helper()
	var all []string
	for k, v := range env {
		all = append(all, k+"="+v)
	}
	from := environment{lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok }, all: all}
	root := newRoot(from)
	cmd, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "fence.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := cmd.ParseFlags(args); err != nil {
		return cmd, flagError(cmd, err)
	}
	return cmd, configure(cmd, from)
}

func TestConfigure_Precedence(t *testing.T) {
	env := map[string]string{"FENCEPROXY_CLAIM_TIMEOUT": "2s", "FENCEPROXY_EVICT_AFTER": "20ms"}
	cmd, err := configured(t, env, "claim_timeout: 3s\nevict_after: 30ms\nverify_timeout: 300ms\n", "--claim-timeout", "1s")
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"claim-timeout":  "1s",    // command line
		"evict-after":    "20ms",  // variable
		"verify-timeout": "300ms", // file
		"drain-timeout":  "30s",   // default
		"log-level":      "info",  // default
		"lock-prefix":    "/fenceproxy/locks/",
	} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("%s: got %s, want %s", flag, got, want)
		}
	}
}

func TestConfigure_File(t *testing.T) {
	for name, c := range map[string]struct{ text, flag, want string }{
		"list":      {"etcd: [http://a:1, b:2]", "etcd", "http://a:1,http://b:2"},
		"scalar":    {"etcd: http://a:1", "etcd", "http://a:1"},
		"empty":     {"", "listen", defaultListen},
		"comments":  {"# nothing\n", "listen", defaultListen},
		"lock's":    {"ttl: 5s\nwait: 1m", "listen", defaultListen},
		"variable":  {"admin_listen: '[::1]:9'", "admin-listen", "[::1]:9"},
		"a dsn too": {"upstream: postgres://u:hunter2@h/app", "upstream", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := configured(t, nil, c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := cmd.Flags().Lookup(c.flag).Value.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestConfigure_Errors(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		want string
	}{
		"unknown key":      {nil, "listen: 127.0.0.1:1\nclaim_timout: 5s", "fence.yaml:2: claim_timout: no such setting; did you mean claim_timeout?"},
		"unlike any":       {nil, "colour_of_the_sky: 5s", "fence.yaml:1: colour_of_the_sky: no such setting"},
		"key with dash":    {nil, "claim-timeout: 5s", "fence.yaml:1: claim-timeout: no such setting; did you mean claim_timeout?"},
		"demo's flag":      {nil, "all: true", "fence.yaml:1: all: no such setting"},
		"config in file":   {nil, "config: x", "fence.yaml:1: config: the file is named by --config or FENCEPROXY_CONFIG only"},
		"like config":      {nil, "confg: x", "fence.yaml:1: confg: no such setting"},
		"bad value":        {nil, "\n\nclaim_timeout: soon", `fence.yaml:3: claim_timeout: bad value "soon": a duration`},
		"null":             {nil, "claim_timeout:", "fence.yaml:1: claim_timeout: a value"},
		"mapping":          {nil, "etcd: {a: b}", "fence.yaml:1: etcd: a value or a list"},
		"twice":            {nil, "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", "line"},
		"not a mapping":    {nil, "- listen", "fence.yaml:1: a mapping"},
		"not YAML":         {nil, "listen: 127.0.0.1:1\na: b: c", "fence.yaml:2: mapping values are not allowed"},
		"not YAML, first":  {nil, "\tlisten: 127.0.0.1:1", "fence.yaml:1: found character"},
		"two documents":    {nil, "ttl: 5s\n---\nttl: 6s", "fence.yaml:2: a second document"},
		"not YAML, second": {nil, "ttl: 5s\n---\na: b: c", "fence.yaml:3: mapping values are not allowed"},
		"etcd's password":  {nil, "etcd: http://root:hunter2@a:1", "fence.yaml:1: etcd: bad value: URLs without a password are expected"},
		"an etcd's of two": {nil, "etcd: [a:1, 'root:hunter2@b']", "fence.yaml:1: etcd: bad value: URLs joined with commas"},
		"collector's":      {nil, "otlp_endpoint: http://u:hunter2@a:1", "fence.yaml:1: otlp_endpoint: bad value: a URL without a password"},
		"collector's key":  {nil, "otlp_endpoint: http://a:1/?key=hunter2", "fence.yaml:1: otlp_endpoint: bad value: a URL without a password"},
		"like an alias":    {nil, "etcd_password: *hunter2", "fence.yaml: a value that begins with * must stand in quotes"},
		"lines of one":     {nil, "etcd_password: \"a\\nhunter2\"", "fence.yaml:1: etcd_password: bad value: it is empty, or more than one line"},
		"lines, variable":  {map[string]string{"FENCEPROXY_UPSTREAM_PASSWORD": "a\nhunter2"}, "", "FENCEPROXY_UPSTREAM_PASSWORD: bad value: it is empty, or"},
		"only a newline":   {map[string]string{"FENCEPROXY_ETCD_PASSWORD": "\n"}, "", "FENCEPROXY_ETCD_PASSWORD: bad value: it is empty, or"},
		"secret":           {nil, "upstream: 'postgres://u:hunter2@h:port/app'", "fence.yaml:1: upstream: bad value: port: a number"},
		"unknown variable": {map[string]string{"FENCEPROXY_CLAIM_TIMOUT": "5s"}, "", "FENCEPROXY_CLAIM_TIMOUT: no such setting; did you mean FENCEPROXY_CLAIM_TIMEOUT?"},
		"bad variable":     {map[string]string{"FENCEPROXY_CLAIM_TIMEOUT": "5"}, "", `FENCEPROXY_CLAIM_TIMEOUT: bad value "5"`},
		"secret variable":  {map[string]string{"FENCEPROXY_UPSTREAM": "postgres://u:hunter2@h:port/app"}, "", "FENCEPROXY_UPSTREAM: bad value: port: a number"},
		"no file":          {map[string]string{"FENCEPROXY_CONFIG": "/nowhere/fence.yaml"}, "", "/nowhere/fence.yaml: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configured(t, c.env, c.file)
			var usage *usageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a usage error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "mean config?") {
				t.Errorf("got %q, which proposes what isn't allowed", err)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line without the password", err)
			}
		})
	}
}

func TestConfigure_ForeignVariables(t *testing.T) {
	_, err := configured(t, map[string]string{
		"FENCEPROXY_PG_BIN":                "/usr/bin",
		"FENCEPROXY_TTL":                   "5s", // of lock
		"FENCEPROXY_SERVICE_HOST":          "10.0.0.1",
		"FENCEPROXY_SERVICE_PORT_POSTGRES": "6433",
		"FENCEPROXY_PORT":                  "tcp://10.0.0.1:6433",
		"FENCEPROXY_PORT_6433_TCP_ADDR":    "10.0.0.1",
		"FENCEPROXY_ADMIN_SERVICE_HOST":    "10.0.0.2",
		"FENCEPROXY_ADMIN_PORT_6434_TCP":   "tcp://10.0.0.2:6434",
		"NOT_FENCEPROXY_AT_ALL":            "x",
	}, "")
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestFlagError_HidesSecrets(t *testing.T) {
	_, err := configured(t, nil, "", "--upstream", "postgres://u:hunter2@h:port/app")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want an error without the password", err)
	}
}
