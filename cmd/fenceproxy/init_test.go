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

// breakSchema makes a database whose schema fence has lost its marks.
func breakSchema(t *testing.T, s *stack.Stack, database string) {
	t.Helper()
	if err := s.CreateDatabase(context.Background(), database); err != nil {
		t.Fatal(err)
	}
	if err := s.Install(context.Background(), database); err != nil {
		t.Fatal(err)
	}
	exec1(t, open(t, s.DSN(stack.RoleFence, database)), "DROP TABLE fence.mark CASCADE")
}

func TestInit_Errors(t *testing.T) {
	s := stack.New(t, "app")
	breakSchema(t, s, "broken")
	for name, c := range map[string]struct {
		dsn  string
		want []string
	}{
		"away":           {"postgres://u:hunter2@127.0.0.1:1/app", []string{"127.0.0.1:1", "refused", "--upstream"}},
		"wrong password": {"postgres://fence:hunter2@" + s.Postgres.Addr() + "/app", []string{"password authentication failed", "28P01"}},
		"no database":    {s.DSN(stack.RoleFence, "nowhere"), []string{"nowhere", "3D000"}},
		"damaged":        {s.DSN(stack.RoleFence, "broken"), []string{"database broken", "damaged: table fence.mark is missing", "DROP SCHEMA fence CASCADE"}},
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
