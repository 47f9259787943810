package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is wrong with several settings together, or with a file that one names, is told
// by where they were set; all of it at once.
func TestCheckConfig_Located(t *testing.T) {
	config := filepath.Join(t.TempDir(), "fence.yaml")
	for name, c := range map[string]struct {
		env  []string
		text string
		want []string // each line, without what it begins with
	}{
		"secrets": {nil, "upstream: postgres://u@127.0.0.1/app\nupstream_password: canary\nupstream_password_file: /nowhere\netcd_password: canary\nadmin_token: canary\nembed_etcd: x\n", []string{
			"CONFIG:2: upstream_password and CONFIG:3: upstream_password_file exclude each other",
			"CONFIG:4: etcd_password needs --etcd-user",
			"CONFIG:5: admin_token: a token has 16 characters at least, so that nobody finds it by trying; openssl rand -hex 24 makes one",
		}},
		"files": {[]string{"FENCEPROXY_ETCD_CERT=/nowhere/c"}, "upstream: postgres://u@127.0.0.1/app\netcd: http://127.0.0.1:1\netcd_ca: /nowhere/ca\nclient_tls: require\nclient_tls_cert: /nowhere/x\nauth_file: /nowhere/users\n" +
			"admin_tls_cert: /nowhere/a\nadmin_tls_key: /nowhere/b\nadmin_token_file: /nowhere/t\n", []string{
			"CONFIG:3: etcd_ca: open /nowhere/ca: no such file or directory",
			"CONFIG:9: admin_token_file: open /nowhere/t: no such file or directory",
			"CONFIG:7: admin_tls_cert, CONFIG:8: admin_tls_key: open /nowhere/a: no such file or directory",
			"CONFIG:4: client_tls require needs CONFIG:5: client_tls_cert and --client-tls-key",
			"CONFIG:6: auth_file: open /nowhere/users: no such file or directory",
		}},
		"halves": {[]string{"FENCEPROXY_ETCD_CERT=/nowhere/c"}, "upstream: postgres://u@127.0.0.1/app\netcd: http://127.0.0.1:1\nclient_tls_ca: /nowhere\nlock_prefix: a\n", []string{
			`CONFIG:4: lock_prefix: "a" must end in /`,
			"FENCEPROXY_ETCD_CERT and --etcd-key need each other",
			"CONFIG:3: client_tls_ca needs --client-tls require: a client that doesn't encrypt shows no certificate",
		}},
		"rules": {nil, "upstream: postgres://u@127.0.0.1/app\nembed_etcd: x\npolicies:\n  - {role: a, fencing: live}\n  - rolle: b\n    fencing: alive\n  - {role: c}\n", []string{
			"CONFIG:5: policies: rule 2: rolle: no such setting; did you mean role?",
			`CONFIG:6: policies: rule 2: fencing: "alive" is none of accepted, issued, live`,
			"CONFIG:7: policies: rule 3: it sets neither untagged_writes nor fencing",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(config, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := program(t, c.env, "serve", "--check-config", "--config", config)
			if code != 2 || stdout != "" || strings.Contains(stderr, "canary") {
				t.Errorf("got exit %d, %q, %q, want 2 and no secret", code, stdout, stderr)
			}
			var got []string
			for line := range strings.Lines(strings.ReplaceAll(stderr, config, "CONFIG")) {
				got = append(got, strings.TrimSpace(strings.TrimPrefix(line, "fenceproxy: ")))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// The log of a reload tells it the same way.
func TestServe_ReloadLocated(t *testing.T) {
	s := newServed(t)
	p := serveReloading(t, s, "max_connections: 0\n")
	p.reload("auth_file: /nowhere\nclient_tls_ca: /nowhere\n", notReloaded)
	for _, want := range []string{"fence.yaml:1: auth_file needs --client-tls allow or require", "fence.yaml:2: client_tls_ca needs --client-tls require"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
