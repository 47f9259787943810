package proxy_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeCacheStatement,
}

func TestSession_Untagged(t *testing.T) {
	s := newStack(t, 1)
	for i, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			c := s.session(0, "", 0)
			if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES ($1, $2)", mode, i, "x"); err != nil {
				t.Fatal(err)
			}
			var v string
			if err := c.QueryRow(t.Context(), "SELECT v FROM t WHERE id = $1", mode, i).Scan(&v); err != nil || v != "x" {
				t.Fatalf("got %q, %v", v, err)
			}
		})
	}
}

func TestSession_TaggedWrites(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 7)
	for i, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			c := s.session(0, "k", 7)
			for round := range 3 {
				if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES ($1, $2)", mode, 10*i+round, "x"); err != nil {
					t.Fatal(err)
				}
			}
			tx, err := c.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "UPDATE t SET v = $2 WHERE id = $1", mode, 10*i, "y"); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			var v string
			if err := c.QueryRow(t.Context(), "SELECT v FROM t WHERE id = $1", mode, 10*i).Scan(&v); err != nil || v != "y" {
				t.Fatalf("got %q, %v", v, err)
			}
		})
	}
}

// A stale session's statements are refused and leave nothing behind, in every
// protocol form; the mark was raised through another proxy, so only the check
// in the database can tell.
func TestSession_StaleWrites(t *testing.T) {
	s := newStack(t, 2)
	statements := []string{
		"INSERT INTO t VALUES (1, 'stale')",
		"/* c */ INSERT INTO t VALUES (1, 'stale') -- end",
		"WITH x AS (INSERT INTO t VALUES (1, 'stale') RETURNING id) SELECT * FROM x",
		"SELECT * FROM sneaky",
		"SELECT writes()",
	}
	token := 10
	for _, mode := range protocols {
		for n, sql := range statements {
			t.Run(fmt.Sprintf("%v/%d", mode, n), func(t *testing.T) {
				key := fmt.Sprintf("k%d", token)
				s.holders.hold(key, 1)
				auto, block := s.session(0, key, 1), s.session(0, key, 1)
				tx, err := block.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := mode.run(t.Context(), block, "SELECT count(*) FROM t"); err != nil {
					t.Fatal(err)
				}
				token++
				s.raise(1, key, 2)

				err = mode.run(t.Context(), auto, sql)
				if got, want := code(err), "LF001"; got != want {
					t.Errorf("autocommit: got %s, want %s", got, want)
				}
				err = mode.run(t.Context(), block, sql)
				if err == nil {
					err = tx.Commit(t.Context())
				} else {
					tx.Rollback(t.Context())
				}
				if got, want := code(err), "LF001"; got != want {
					t.Errorf("block: got %s, want %s", got, want)
				}
				if got := block.PgConn().TxStatus(); got != 'I' {
					t.Errorf("status after the refusal: got %q, want 'I'", got)
				}
				if got := s.count("true"); got != 0 {
					t.Errorf("rows left behind: %d", got)
				}
			})
		}
	}
}
