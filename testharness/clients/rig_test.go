package clients_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/clients"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// playTimeout bounds one run of a program, which takes a few seconds at most
// but for slow machines.
const playTimeout = 2 * time.Minute

// A rig is a stack with a proxy in a process of its own, and the programs.
type rig struct {
	stack *stack.Stack
	proxy *stack.Process
	admin *pgx.Conn // the superuser's, straight to database app
	bin   string    // built programs

	stderr string // of the last program
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{stack: stack.New(t, "app", "restored"), bin: t.TempDir()}
	var err error
	if r.admin, err = pgx.Connect(t.Context(), r.stack.DSN("postgres", "app")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.admin.Close(context.Background()) })
	// So that SCRAM over TLS can be verified, as README says.
	r.exec(t, "GRANT SELECT (rolname, rolpassword) ON pg_authid TO "+stack.RoleFence)
	// The race detector watches the proxy while real drivers talk to it.
	r.build(t, "../..", "-race", "./cmd/fenceproxy")
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	r.proxy, err = r.stack.StartProcess(t.Context(), "app", []string{filepath.Join(r.bin, "fenceproxy")},
		"--sql-locks", "allow", "--client-tls", "allow", "--client-tls-cert", cert, "--client-tls-key", key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// build builds a Go program into the rig's folder.
func (r *rig) build(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", r.bin + "/"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, out)
	}
}

func (r *rig) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := r.admin.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// scalar asks a query of one number.
func (r *rig) scalar(t *testing.T, sql string) (n int) {
	t.Helper()
	if err := r.admin.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// reset leaves an empty table behind and no session that a program forgot.
func (r *rig) reset(t *testing.T) {
	t.Helper()
	poll.Until(t, "the sessions of the last program end", func() bool {
		return r.scalar(t, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == 0
	})
	r.exec(t, "DROP OWNED BY app; GRANT ALL ON SCHEMA public TO app; SET ROLE app; CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL); RESET ROLE")
}

// metric reads a counter from the proxy's admin port, the sum over its labels.
func (r *rig) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	response, err := http.Get("http://" + r.proxy.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// A holder holds a lock until it loses it to another.
type holder struct {
	rig   *rig
	lease *leases.Lease
}

func (r *rig) hold(t *testing.T, key string) *holder {
	t.Helper()
	lease, err := leases.NewLocker(r.stack.Client).TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &holder{rig: r, lease: lease}
}

// lose gives the lock to somebody else, who claims it through the proxy.
func (h *holder) lose(t *testing.T) {
	t.Helper()
	key := h.lease.Key()
	h.release(t)
	*h = *h.rig.hold(t, key)
	config, err := pgx.ParseConfig(h.rig.stack.ProxyDSN(h.rig.proxy.Addr, stack.RoleApp, "app"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams[fencing.SettingKey] = key
	config.RuntimeParams[fencing.SettingToken] = h.lease.Token().String()
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Fatalf("claim as the next holder: %v", err)
	}
}

func (h *holder) release(t *testing.T) {
	t.Helper()
	if err := h.lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// run runs a client's program on a leg. While it waits, meanwhile is called.
func (r *rig) run(t *testing.T, c clients.Client, leg clients.Leg, lock *holder, meanwhile func()) clients.Transcript {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), playTimeout)
	defer cancel()
	argv := c.Command
	if c.GoModule {
		argv = []string{filepath.Join(r.bin, c.Command[0])}
	}
	what := "play"
	if leg == clients.Stale {
		what = "fence"
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], what)...)
	cmd.Dir = filepath.Join("programs", filepath.Dir(c.Source))
	cmd.Env = r.environment(t, leg, lock)
	// Programs have children, which must not outlive them when time is up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go_ := sync.OnceFunc(func() { fmt.Fprintln(stdin, "go"); stdin.Close() })
	var got clients.Transcript
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		got.Add(lines.Text())
		if strings.HasPrefix(lines.Text(), "holder: ") && meanwhile != nil {
			meanwhile()
			go_()
		}
	}
	go_()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v", leg, err)
	}
	r.stderr = stderr.String()
	return got
}

// environment is what a program is told.
func (r *rig) environment(t *testing.T, leg clients.Leg, lock *holder) []string {
	t.Helper()
	addr, sslmode := r.proxy.Addr, "disable"
	switch leg {
	case clients.Straight:
		addr = r.stack.Postgres.Addr()
	case clients.Encrypted:
		sslmode = "require"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(r.stack.DSN(stack.RoleApp, "app"))
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "FENCE") {
			env = append(env, entry)
		}
	}
	env = append(env, "PGHOST="+host, "PGPORT="+port, "PGUSER="+config.User, "PGPASSWORD="+config.Password,
		"PGDATABASE=app", "PGSSLMODE="+sslmode, "PGCONNECT_TIMEOUT=30",
		"PATH="+filepath.Dir(r.stack.Postgres.Program("psql"))+":"+os.Getenv("PATH"))
	if lock != nil {
		env = append(env, "FENCE_KEY="+lock.lease.Key(), "FENCE_TOKEN="+lock.lease.Token().String())
	}
	return env
}
