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
			"CONFIG:3: upstream_password_file: open /nowhere: no such file or directory",
			"CONFIG:4: etcd_password needs --etcd-user",
			"CONFIG:5: admin_token: a token has 16 characters at least, so that nobody finds it by trying; openssl rand -hex 24 makes one",
		}},
		"files": {[]string{"FENCEPROXY_ETCD_CERT=/nowhere/c"}, "upstream: postgres://u@127.0.0.1/app\netcd: http://127.0.0.1:1\netcd_ca: /nowhere/ca\nclient_tls: require\nclient_tls_cert: /nowhere/x\nauth_file: /nowhere/users\n" +
			"admin_tls_cert: /nowhere/a\nadmin_tls_key: /nowhere/b\nadmin_token_file: /nowhere/t\n", []string{
			"CONFIG:3: etcd_ca: open /nowhere/ca: no such file or directory",
			"FENCEPROXY_ETCD_CERT and --etcd-key need each other",
			"FENCEPROXY_ETCD_CERT: open /nowhere/c: no such file or directory",
			"CONFIG:9: admin_token_file: open /nowhere/t: no such file or directory",
			"CONFIG:7: admin_tls_cert: open /nowhere/a: no such file or directory",
			"CONFIG:8: admin_tls_key: open /nowhere/b: no such file or directory",
			"CONFIG:4: client_tls require needs CONFIG:5: client_tls_cert and --client-tls-key",
			"CONFIG:5: client_tls_cert: open /nowhere/x: no such file or directory",
			"CONFIG:6: auth_file: open /nowhere/users: no such file or directory",
		}},
		"halves": {[]string{"FENCEPROXY_ETCD_CERT=/nowhere/c"}, "upstream: postgres://u@127.0.0.1/app\netcd: http://127.0.0.1:1\nclient_tls_ca: /nowhere\nlock_prefix: a\n", []string{
			`CONFIG:4: lock_prefix: "a" must end in /`,
			"FENCEPROXY_ETCD_CERT and --etcd-key need each other",
			"FENCEPROXY_ETCD_CERT: open /nowhere/c: no such file or directory",
			"CONFIG:3: client_tls_ca needs --client-tls require: a client that doesn't encrypt shows no certificate",
			"CONFIG:3: client_tls_ca: open /nowhere: no such file or directory",
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
			tells(t, config, c.env, c.want, "serve", "--check-config", "--config", config)
		})
	}
}

// tells expects that serve ends with these faults, whose file is CONFIG there.
func tells(t *testing.T, config string, env, want []string, args ...string) {
	t.Helper()
	code, stdout, stderr := program(t, env, args...)
	if code != 2 || stdout != "" || strings.Contains(stderr, "canary") {
		t.Errorf("got exit %d, %q, %q, want 2 and no secret", code, stdout, stderr)
	}
	var got []string
	for line := range strings.Lines(strings.ReplaceAll(stderr, config, "CONFIG")) {
		got = append(got, strings.TrimSpace(strings.TrimPrefix(line, "fenceproxy: ")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Bad flags, variables and values are told together with what is wrong with the others;
// what follows from a value that isn't known isn't told.
func TestServe_AllFaultsAtOnce(t *testing.T) {
	config := filepath.Join(t.TempDir(), "fence.yaml")
	const fits = "upstream: postgres://u@127.0.0.1/app\netcd: http://127.0.0.1:1\n"
	for name, c := range map[string]struct {
		args, env []string
		text      string
		want      []string
	}{
		"everywhere": {[]string{"--drain-timeout", "x", "--max-connections=-1"}, []string{"FENCEPROXY_EVICT_AFTER=6s", "FENCEPROXY_LOG_LEVEL=loud"},
			"etcd: http://127.0.0.1:1\nembed_etcd: x\nlogin_timeout: soon\nauth_file: /nowhere\n", []string{
				`--drain-timeout: bad value "x": a duration above 0 such as 200ms or 5s is expected`,
				`--max-connections: bad value "-1": a number is expected, 0 or above`,
				`FENCEPROXY_LOG_LEVEL: bad value "loud": one of debug, info, warn, error is expected`,
				`CONFIG:3: login_timeout: bad value "soon": a duration above 0 such as 200ms or 5s is expected`,
				"--upstream is missing: the DSN of the protected PostgreSQL, such as postgres://fence@127.0.0.1:5432/app",
				"CONFIG:1: etcd and CONFIG:2: embed_etcd exclude each other",
				"FENCEPROXY_EVICT_AFTER (6s) must be below --claim-timeout (5s)",
				"CONFIG:4: auth_file needs --client-tls allow or require: without TLS PostgreSQL verifies passwords itself",
				"CONFIG:4: auth_file: open /nowhere: no such file or directory",
			}},
		"consequences": {nil, []string{"FENCEPROXY_UPSTREM=postgres://u:canary@127.0.0.1/app"},
			"etcd: nonsense://\nclient_tls: requre\nclient_tls_cert: /nowhere\nclaim_timout: 100ms\nlisten: 0.0.0.0:6433\nlock_prefix: a\n", []string{
				"FENCEPROXY_UPSTREM: no such setting; did you mean FENCEPROXY_UPSTREAM?",
				`CONFIG:1: etcd: bad value "nonsense://": URLs joined with commas are expected, such as http://10.0.0.1:2379,http://10.0.0.2:2379`,
				`CONFIG:2: client_tls: bad value "requre": one of disable, allow, require is expected`,
				"CONFIG:4: claim_timout: no such setting; did you mean claim_timeout?",
				`CONFIG:6: lock_prefix: "a" must end in /`,
				"CONFIG:3: client_tls_cert: open /nowhere: no such file or directory",
			}},
		"a flag that isn't one": {[]string{"--evict-after", "6s", "--upstrem", "x"}, nil, "lock_prefix: a\n", []string{
			"unknown flag: --upstrem; did you mean --upstream? fenceproxy serve --help lists the flags",
			`CONFIG:1: lock_prefix: "a" must end in /`,
		}},
		"a file that can't be read": {[]string{"--lock-prefix", "a"}, nil, "etcd: http://127.0.0.1:1\n\tx", []string{
			"CONFIG:2: found a tab character that violates indentation",
			`--lock-prefix: "a" must end in /`,
		}},
		"a second document": {nil, nil, "etcd: http://127.0.0.1:1\nlock_prefix: a\n---\nupstream: x\n", []string{
			"CONFIG:3: a second document, of which nothing would be read: put all settings in one, without ---",
			`CONFIG:2: lock_prefix: "a" must end in /`,
		}},
		"no value": {nil, nil, fits + "evict_after: 6s\nclaim_timeout:\n", []string{"CONFIG:4: claim_timeout: a value or a list of values is expected"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(config, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"serve", "--config", config}, c.args...)
			tells(t, config, c.env, c.want, args...)
			tells(t, config, c.env, c.want, append(args, "--check-config")...)
		})
	}
}

// The log of a reload tells it the same way.
func TestServe_ReloadLocated(t *testing.T) {
	s := newServed(t)
	p := serveReloading(t, s, "max_connections: 0\n")
	p.reload("auth_file: /nowhere\nclient_tls_ca: /nowhere\nclaim_timeout: soon\n", notReloaded)
	for _, want := range []string{"fence.yaml:1: auth_file needs --client-tls allow or require", "fence.yaml:2: client_tls_ca needs --client-tls require",
		"fence.yaml:3: claim_timeout: bad value"} {
		p.says(want)
	}
}
