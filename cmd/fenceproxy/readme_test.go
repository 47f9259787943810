package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// freePort is a port that nothing listens on.
func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// readmeBlock is the README's one block in a language.
func readmeBlock(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```"+language+"\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatalf("README.md has no block of %s", language)
	}
	return block
}

// The README's quick start works as it stands, but for ports and paths.
func TestReadme_QuickStart(t *testing.T) {
	block := readmeBlock(t, "sh")
	s := stack.New(t)
	if err := s.CreateDatabase(context.Background(), "app"); err != nil {
		t.Fatal(err)
	}
	dir, listen, etcd := t.TempDir(), freePort(t), freePort(t)
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "bin", "fenceproxy")); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(
		"5432", strconv.Itoa(s.Postgres.Port()), "6433", listen, "2379", etcd,
		"ROLE fence LOGIN PASSWORD", "ROLE fence2 LOGIN PASSWORD", "TO fence\"", "TO fence2\"", "//fence:", "//fence2:",
	).Replace(block) + "\nkill $!\nwait $!\n"

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asProgram+"=1",
		"PATH="+filepath.Dir(s.Postgres.Program("psql"))+":"+os.Getenv("PATH"),
		"PGUSER="+postgres.Superuser, "PGPASSWORD=test",
		"FENCEPROXY_LISTEN=127.0.0.1:"+listen, "FENCEPROXY_ADMIN_LISTEN=127.0.0.1:0", "FENCEPROXY_ETCD_LISTEN=127.0.0.1:"+etcd)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("got %v\n%s", err, out)
	}
	var n int
	conn := open(t, s.DSN(postgres.Superuser, "app"))
	if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM report").Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d, %v, want the report that was made under the lock", n, err)
	}
	if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM fence.status WHERE resource_key = 'report:2026-07'").Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d, %v, want its mark", n, err)
	}
}

// An etcd with an empty data folder in the place of the old one: new claims are
// refused until the README's command was run, and nothing of the old etcd's
// counts afterwards, not even a session whose very number the new one gives out.
func TestReadme_EtcdReplaced(t *testing.T) {
	r := newRestored(t)
	r.Etcd.Close()
	r.start(t, t.TempDir())
	lease := hold(t, r.etcd, "order:1")
	refusal := r.insert(t, lease.Token())
	if code(refusal) != string(fencing.CodeLineage) || !strings.Contains(refusal.(*pgconn.PgError).Hint, "adopt-lineage") {
		t.Fatalf("got %v, want %s and what to run", refusal, fencing.CodeLineage)
	}
	r.alarm(t, 1)
	_, command, _ := strings.Cut(strings.TrimSpace(readmeBlock(t, "shell")), " ")
	args := strings.Fields(strings.NewReplacer("postgres://fence:secret@127.0.0.1:5432/app", r.DSN(stack.RoleFence, "app"),
		"http://127.0.0.1:2379", r.Etcd.Endpoint()).Replace(command))
	r.adopt(t, args, 0, "adopted: epoch 2")
	if err := r.insert(t, lease.Token()); err != nil {
		t.Errorf("the new holder: got %v", err)
	}
	r.alarm(t, 0)
	if err := r.insert(t, r.old); code(err) != string(fencing.CodeNotHolder) {
		t.Errorf("a new session with the old token: got %v, want %s", err, fencing.CodeNotHolder)
	}
	r.oldEnded(t)
}
