package main

import (
	"context"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func TestInit(t *testing.T) {
	s := stack.New(t)
	if err := s.CreateDatabase(context.Background(), "app"); err != nil {
		t.Fatal(err)
	}
	upstream := "FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, "app")
	code, stdout, stderr := program(t, []string{upstream}, "init")
	if code != 0 || !strings.Contains(stdout, "(database app): installed schema fence, version ") || stderr != "" {
		t.Errorf("first: got exit %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = program(t, []string{upstream}, "init")
	if code != 0 || !strings.Contains(stdout, "nothing to do") || stderr != "" {
		t.Errorf("second: got exit %d, %q, %q", code, stdout, stderr)
	}
	// What init has installed is what serve asks for.
	serveOn(t, s)
}

func TestInit_Errors(t *testing.T) {
	s := stack.New(t, "app")
	if err := s.CreateDatabase(context.Background(), "bare"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dsn  string
		want []string
	}{
		"away":           {"postgres://u:hunter2@127.0.0.1:1/app", []string{"127.0.0.1:1", "refused", "--upstream"}},
		"wrong password": {"postgres://fence:hunter2@" + s.Postgres.Addr() + "/app", []string{"password authentication failed", "28P01"}},
		"no database":    {s.DSN(stack.RoleFence, "nowhere"), []string{"nowhere", "3D000"}},
		"not its schema": {s.DSN(stack.RoleApp, "app"), []string{"database app", "fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, "init", "--upstream", c.dsn)
			if code != 1 || stdout != "" {
				t.Errorf("got exit %d, %q, want 1 and nothing", code, stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
			if strings.Contains(stderr, "hunter2") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got %q, want one line without the password", stderr)
			}
		})
	}
}
