package proxy_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lib/pq"
)

// lib/pq, with and without parameters, in a transaction, with COPY.
func TestClients_LibPQ(t *testing.T) {
	s := newStack(t, 2)
	for _, tagged := range []bool{false, true} {
		t.Run(fmt.Sprintf("tagged=%v", tagged), func(t *testing.T) {
			s.exec("TRUNCATE t")
			key := t.Name()
			s.holders.hold(key, 1)
			dsn := s.dsn(0)
			if tagged {
				dsn += fmt.Sprintf("&fence.key=%s&fence.token=1", key)
			}
			db, err := sql.Open("postgres", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			db.SetMaxOpenConns(1)
			must := func(_ any, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(db.Exec("INSERT INTO t VALUES (1, 'simple')"))
			must(db.Exec("INSERT INTO t VALUES ($1, $2)", 2, "extended"))
			st, err := db.Prepare("UPDATE t SET v = $2 WHERE id = $1")
			must(nil, err)
			for range 3 {
				must(st.Exec(2, "prepared"))
			}
			tx, err := db.Begin()
			must(nil, err)
			copying, err := tx.Prepare(pq.CopyIn("t", "id", "v"))
			must(nil, err)
			for i := range 100 {
				must(copying.Exec(10+i, "copied"))
			}
			must(copying.Exec())
			must(nil, copying.Close())
			must(nil, tx.Commit())
			var n int
			must(nil, db.QueryRow("SELECT count(*) FROM t WHERE v <> $1", "").Scan(&n))
			if n != 102 {
				t.Errorf("rows: got %d, want 102", n)
			}
			if _, err := db.Exec("INSERT INTO t VALUES ($1, $2)", 1, "again"); pqCode(err) != "23505" {
				t.Errorf("got %v, want 23505", err)
			}
			if !tagged {
				return
			}
			s.raise(1, key, 2)
			for _, stale := range []func() error{
				func() error { _, err := db.Exec("INSERT INTO t VALUES (3, 'stale')"); return err },
				func() error { _, err := db.Exec("INSERT INTO t VALUES ($1, $2)", 3, "stale"); return err },
				func() error { _, err := st.Exec(2, "stale"); return err },
			} {
				if got := pqCode(stale()); got != "LF001" {
					t.Errorf("got %s, want LF001", got)
				}
			}
			if got := s.count("v = 'stale'"); got != 0 {
				t.Errorf("stale rows: %d", got)
			}
		})
	}
}

func pqCode(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return fmt.Sprint(err)
}

// client runs one of PostgreSQL's own programs through a proxy.
func (s *stack) client(proxy int, options string, name string, args ...string) (string, error) {
	s.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = s.pg.Program(name)
	}
	host, port, _ := strings.Cut(s.addrs[proxy], ":")
	cmd := exec.CommandContext(s.t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres", "PGDATABASE=postgres", "PGOPTIONS="+options, "PSQLRC=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestClients_Psql(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	for _, options := range []string{"", "-c fence.key=k -c fence.token=1"} {
		s.exec("TRUNCATE t")
		script := `INSERT INTO t VALUES (1, 'a'), (2, 'b');
			BEGIN; UPDATE t SET v = 'c' WHERE id = 1; COMMIT;
			SELECT v FROM t ORDER BY id;
			SELECT id AS ids FROM t ORDER BY id \gdesc
			\copy t TO STDOUT`
		out, err := s.client(0, options, "psql", "-X", "-v", "ON_ERROR_STOP=1", "-At", "-c", "SELECT 1", "-f", writeFile(t, script))
		if err != nil || !strings.Contains(out, "1\tc\n") {
			t.Errorf("options %q: %v\n%s", options, err, out)
		}
	}
	s.raise(1, "k", 2)
	out, err := s.client(0, "-c fence.key=k -c fence.token=1", "psql", "-X", "-v", "VERBOSITY=verbose", "-c", "INSERT INTO t VALUES (9, 'stale')")
	if err == nil || !strings.Contains(out, "LF001: stale_token: k token 1 was superseded by 2") {
		t.Errorf("stale psql: %v\n%s", err, out)
	}
	if got := s.count("v = 'stale'"); got != 0 {
		t.Errorf("stale rows: %d", got)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/script.sql"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClients_Pgbench(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	if out, err := s.client(0, "", "pgbench", "-i", "-q", "-s", "1"); err != nil {
		t.Fatalf("pgbench -i: %v\n%s", err, out)
	}
	failures := regexp.MustCompile(`number of failed transactions: ([0-9]+)`)
	for _, options := range []string{"", "-c fence.key=k -c fence.token=1"} {
		for _, mode := range []string{"simple", "extended", "prepared"} {
			t.Run(fmt.Sprintf("%s/%v", mode, options != ""), func(t *testing.T) {
				out, err := s.client(0, options, "pgbench", "-n", "-M", mode, "-c", "4", "-t", "50")
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if m := failures.FindStringSubmatch(out); m == nil || m[1] != "0" || !strings.Contains(out, "200/200") {
					t.Errorf("got\n%s", out)
				}
			})
		}
	}
}
