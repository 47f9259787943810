package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// restored is a proxy before a database and an etcd that is to be replaced: a
// session that was claimed under it is open, and idle.
type restored struct {
	*stack.Stack
	proxy  *stack.Process
	etcd   *clientv3.Client // of the new one
	old    fencing.Token    // of a holder of order:1
	before *pgx.Conn        // its session
}

func newRestored(t *testing.T) *restored {
	t.Helper()
	s := stack.New(t, "app")
	r := &restored{Stack: s, proxy: serveOn(t, s)}
	r.work(t, 20) // so that the new etcd's tokens are lower
	r.old = hold(t, s.Client, "order:1").Token()
	r.before = open(t, s.ProxyDSN(r.proxy.Addr, stack.RoleApp, "app"), tagged("order:1", r.old)...)
	exec1(t, r.before, "CREATE TABLE t (i int)")
	return r
}

// work moves etcd's revision on.
func (r *restored) work(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := r.Client.Put(t.Context(), "elsewhere", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts an etcd in the place of the old one, which must be closed.
func (r *restored) start(t *testing.T, dir string) {
	t.Helper()
	addr := strings.TrimPrefix(r.Etcd.Endpoint(), "http://")
	r.Etcd = embedded.New(dir)
	r.Etcd.Addr = addr
	if err := r.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.etcd = etcdClient(t, r.Etcd)
}

// insert writes with a token in a session of its own.
func (r *restored) insert(t *testing.T, token fencing.Token) error {
	t.Helper()
	conn := open(t, r.ProxyDSN(r.proxy.Addr, stack.RoleApp, "app"), tagged("order:1", token)...)
	_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)")
	var refusal *pgconn.PgError
	if err != nil && !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	return err
}

// alarm waits for the proxy to show the metric.
func (r *restored) alarm(t *testing.T, want int) {
	t.Helper()
	line := fmt.Sprintf("fenceproxy_lineage_mismatch{database=\"app\"} %d\n", want)
	poll.Until(t, line, func() bool {
		_, body := get(t, r.proxy, "/metrics")
		return strings.Contains(body, line)
	})
}

func (r *restored) adopt(t *testing.T, args []string, status int, says ...string) {
	t.Helper()
	got, stdout, stderr := programAnswering(t, "yes\n", args...)
	for _, text := range says {
		if !strings.Contains(stdout+stderr, text) {
			t.Errorf("got %q, %q, want it to say %q", stdout, stderr, text)
		}
	}
	if got != status {
		t.Fatalf("got exit %d, %q, %q, want %d", got, stdout, stderr, status)
	}
}

// adoptArgs is the command line for the stack's database and etcd.
func (r *restored) adoptArgs(more ...string) []string {
	return append([]string{"adopt-lineage", "--upstream", r.DSN(stack.RoleFence, "app"), "--etcd", r.Etcd.Endpoint()}, more...)
}

// programAnswering runs the program with an answer on its standard input.
func programAnswering(t *testing.T, answer string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(answer), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// oldEnded checks that the session of the old etcd hears of it and wrote nothing.
func (r *restored) oldEnded(t *testing.T) {
	t.Helper()
	if _, err := r.before.Exec(t.Context(), "INSERT INTO t VALUES (2)"); code(err) != string(fencing.CodeLineage) {
		t.Errorf("the old session: got %v, want %s", err, fencing.CodeLineage)
	}
	var n int
	if err := open(t, r.DSN(stack.RoleApp, "app")).QueryRow(t.Context(), "SELECT count(*) FROM t WHERE i = 2").Scan(&n); err != nil || n != 0 {
		t.Errorf("got %d rows of the old session, %v, want none", n, err)
	}
}

// save saves a snapshot of etcd, with the real etcdctl.
func (r *restored) save(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "snapshot")
	etcdctl := exec.CommandContext(t.Context(), "etcdctl", "--endpoints="+r.Etcd.Endpoint(), "snapshot", "save", file)
	etcdctl.Env = append(os.Environ(), "ETCDCTL_API=3")
	if out, err := etcdctl.CombinedOutput(); err != nil {
		t.Fatalf("etcdctl snapshot save: %v\n%s", err, out)
	}
	return file
}

// restore puts what etcdutl snapshot restore makes of a snapshot in etcd's place.
// Of the same initial cluster token it makes the same cluster id.
func (r *restored) restore(t *testing.T, file, token string, bump uint64) {
	t.Helper()
	r.Etcd.Close()
	dir := filepath.Join(t.TempDir(), "etcd")
	const peer = "http://127.0.0.1:2380"
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: "fenceproxy", PeerURLs: []string{peer},
		InitialCluster: "fenceproxy=" + peer, InitialClusterToken: token,
		RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.start(t, dir)
}

// etcd restored from a snapshot that doesn't know the last holder: yesterday's is
// one again, and never gets anywhere.
func TestAdoptLineage_SnapshotRestore(t *testing.T) {
	for _, c := range []struct {
		name  string
		token string
		bump  uint64
		fits  bool
	}{
		{"plain", "token", 0, false},
		{"as another cluster", "another token", 0, false},
		{"with --bump-revision", "token", 1000000, true},
		{"with --bump-revision as another cluster", "another token", 1000000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRestored(t)
			// So that the cluster's id is made of a token that is known.
			lose(t, r.Client, "order:1")
			r.restore(t, r.save(t), "token", 0)
			r.adopt(t, r.adoptArgs("--yes"), 0, "adopted: epoch 2")
			yesterday := hold(t, r.etcd, "order:1").Token()
			file := r.save(t)
			r.work(t, 30)
			lose(t, r.etcd, "order:1")
			last := hold(t, r.etcd, "order:1").Token()
			if err := r.insert(t, last); err != nil {
				t.Fatal(err)
			}
			r.restore(t, file, c.token, c.bump)
			if !c.fits {
				r.alarm(t, 1)
			}
			if err := r.insert(t, yesterday); code(err) != string(fencing.CodeLineage) {
				t.Errorf("yesterday's holder, which is one again in etcd: got %v, want %s", err, fencing.CodeLineage)
			}
			r.alarm(t, 1) // that claim alone is reason enough
			if c.fits {
				r.adopt(t, r.adoptArgs(), 0, "nothing to adopt")
			} else {
				r.adopt(t, r.adoptArgs("--yes"), 0, "adopted: epoch 3", "so ")
				r.alarm(t, 0)
			}
			lose(t, r.etcd, "order:1")
			next := hold(t, r.etcd, "order:1").Token()
			if above := next > last; above != (c.bump > 0) {
				t.Errorf("got token %d after %d", next, last)
			}
			if err := r.insert(t, next); err != nil {
				t.Errorf("the new holder: got %v", err)
			}
			for _, token := range []fencing.Token{yesterday, last} {
				if err := r.insert(t, token); code(err) != "LF001" && code(err) != "LF002" {
					t.Errorf("token %d of before: got %v, want LF001 or LF002", token, err)
				}
			}
		})
	}
}

func TestAdoptLineage_Asks(t *testing.T) {
	r := newRestored(t)
	r.adopt(t, r.adoptArgs(), 0, "nothing to adopt", "--force")
	exec1(t, r.before, "INSERT INTO t VALUES (1)")
	for _, answer := range []string{"", "no\n", "y\n"} {
		if status, _, stderr := programAnswering(t, answer, r.adoptArgs("--force")...); status != 1 || !strings.Contains(stderr, "nothing was changed") {
			t.Errorf("answer %q: got exit %d, %q, want 1 and that nothing was changed", answer, status, stderr)
		}
	}
	exec1(t, r.before, "INSERT INTO t VALUES (1)")
	r.adopt(t, r.adoptArgs("--force"), 0, "marks came from", "Type yes", "adopted: epoch 2", "1 mark removed")
	r.oldEnded(t)
	var by string
	if err := open(t, r.DSN(stack.RoleFence, "app")).QueryRow(context.Background(),
		"SELECT adopted_by FROM fence.lineage WHERE epoch = 2").Scan(&by); err != nil || by != "fence ("+operator()+")" {
		t.Errorf("recorded is %q, %v, want the role and %s", by, err, operator())
	}
	if status, _, stderr := program(t, []string{"FENCEPROXY_YES=true"}, r.adoptArgs()...); status != 2 || !strings.Contains(stderr, "FENCEPROXY_YES: no such setting") {
		t.Errorf("consent in the environment: got exit %d, %q, want it refused", status, stderr)
	}
}
