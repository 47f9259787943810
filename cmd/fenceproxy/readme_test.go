package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
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
// refused until the owner of schema fence has run what the README says, and no
// token of the old etcd counts afterwards.
func TestReadme_EtcdReplaced(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	for range 20 { // so that the new etcd's tokens are lower
		if _, err := s.Client.Put(t.Context(), "elsewhere", ""); err != nil {
			t.Fatal(err)
		}
	}
	old := hold(t, s.Client, "order:1").Token()
	before := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", old)...)
	exec1(t, before, "CREATE TABLE t (i int)")

	addr := strings.TrimPrefix(s.Etcd.Endpoint(), "http://")
	s.Etcd.Close()
	s.Etcd = leases.NewEmbedded(t.TempDir())
	s.Etcd.Addr = addr
	if err := s.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := hold(t, etcdClient(t, s.Etcd), "order:1")
	if lease.Token() >= old {
		t.Fatalf("got token %d after %d: this proves nothing", lease.Token(), old)
	}
	insert := func(token fencing.Token) *pgconn.PgError {
		conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", token)...)
		_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		var refusal *pgconn.PgError
		if err != nil && !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		return refusal
	}
	refusal := insert(lease.Token())
	if refusal == nil || refusal.Code != string(fencing.CodeLineage) || !strings.Contains(refusal.Hint, `"When etcd is replaced"`) {
		t.Fatalf("got %+v, want %s and where to read on", refusal, fencing.CodeLineage)
	}
	cluster := regexp.MustCompile(`etcd cluster ([0-9a-f]+) `).FindStringSubmatch(refusal.Message)
	if cluster == nil {
		t.Fatalf("got %q, want the cluster in it", refusal.Message)
	}

	sql := strings.Replace(readmeBlock(t, "sql"), "CLUSTER", cluster[1], 1)
	exec1(t, open(t, s.DSN(stack.RoleFence, "app")), sql)
	if refusal := insert(lease.Token()); refusal != nil {
		t.Errorf("the new holder: got %v", refusal)
	}
	if refusal := insert(old); refusal == nil || refusal.Code != string(fencing.CodeNotHolder) {
		t.Errorf("a new session with the old token: got %v, want %s", refusal, fencing.CodeNotHolder)
	}
	if _, err := before.Exec(t.Context(), "INSERT INTO t VALUES (2)"); !strings.HasPrefix(code(err), "LF") && !before.IsClosed() {
		t.Errorf("the old session: got %v, want a refusal", err)
	}
	var n int
	if err := open(t, s.DSN(stack.RoleApp, "app")).QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d rows, %v, want the new holder's", n, err)
	}
}
