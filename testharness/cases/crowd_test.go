package cases_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// The crowd of case 25.
const (
	crowdProcesses  = 5
	crowdWorkers    = 10 // in each process
	crowdTTL        = time.Second
	crowdLongest    = 3 * time.Second // pause
	crowdPauseOneIn = 6
	crowdKey        = "counter"
)

// What became of a worker's increment.
const (
	resultAcked   = "acked"
	resultRefused = "refused" // by a code of fenceproxy's
	resultLost    = "lost"    // the connection went; it may have been committed
	resultPausing = "pausing" // its process is about to stop itself
)

// A result is one line that a process of the crowd writes.
type result struct {
	Worker string `json:"worker"`
	Seq    int    `json:"seq"`
	What   string `json:"what"`
	Text   string `json:"text,omitempty"`
}

// A clerk is one worker of the crowd: it takes the lock again and again, and
// adds one to the counter by reading it, thinking, and writing the sum.
type clerk struct {
	name   string
	client *clientv3.Client
	dsn    string
	tell   func(result)

	conn *pgx.Conn
	seq  int
}

// beCrowd is what a process of the crowd does until its standard input ends.
func beCrowd(ctx context.Context) error {
	flags := flag.NewFlagSet("crowd", flag.ContinueOnError)
	etcd, dsn, name := flags.String("etcd", "", ""), flags.String("dsn", "", ""), flags.String("name", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	client, err := leases.NewClient([]string{*etcd}, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	var all sync.WaitGroup
	for i := range crowdWorkers {
		c := &clerk{name: fmt.Sprintf("%s.%d", *name, i), client: client, dsn: *dsn, tell: tell}
		all.Add(1)
		go func() {
			defer all.Done()
			c.work(ctx)
		}()
	}
	all.Wait()
	return nil
}

func (c *clerk) work(ctx context.Context) {
	for ctx.Err() == nil {
		locker := leases.NewLocker(c.client)
		locker.TTL = crowdTTL
		lease, err := locker.Acquire(ctx, crowdKey)
		if err != nil {
			continue // its lease died in line; or the end
		}
		c.seq++
		err = c.increment(lease.Token())
		// A careful worker would have asked lease.Err: here the fence is to hold
		// without it.
		_ = lease.Release(context.Background())
		r := result{Worker: c.name, Seq: c.seq, What: resultAcked}
		if err != nil {
			r.What, r.Text = resultLost, err.Error()
			if strings.HasPrefix(codeOf(err), "LF") {
				r.What = resultRefused
			}
			c.close()
		}
		c.tell(r)
	}
	c.close()
}

func (c *clerk) close() {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
		c.conn = nil
	}
}

// increment adds one to the counter in one transaction, in a connection that
// is kept over locks. Now and then the whole process stops in the middle.
func (c *clerk) increment(token fencing.Token) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c.conn == nil {
		var err error
		if c.conn, err = pgx.Connect(ctx, c.dsn); err != nil {
			return err
		}
	}
	if _, err := c.conn.Exec(ctx, fmt.Sprintf("BEGIN; SET LOCAL fence.key = '%s'; SET LOCAL fence.token = %d", crowdKey, token)); err != nil {
		return err
	}
	var n int
	if err := c.conn.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	early := rand.IntN(2) == 0 // in a checked transaction, or in one that is not
	if !early {
		c.pause()
	}
	if _, err := c.conn.Exec(ctx, "UPDATE counter SET n = $1", n+1); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, "INSERT INTO ledger (n, token, worker, seq) VALUES ($1, $2, $3, $4)", n+1, int64(token), c.name, c.seq); err != nil {
		return err
	}
	if early {
		c.pause()
	}
	_, err := c.conn.Exec(ctx, "COMMIT")
	return err
}

// pause stops the process now and then, as a garbage collection or a busy
// machine would. Whoever reads what it says wakes it up.
func (c *clerk) pause() {
	if rand.IntN(crowdPauseOneIn) == 0 {
		c.tell(result{Worker: c.name, Seq: c.seq, What: resultPausing})
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// A crowd is the processes, and what their workers said.
type crowd struct {
	t     *testing.T
	stdin []io.Closer
	ended sync.WaitGroup

	mu      sync.Mutex
	results []result
}

// count is how many results of a kind there are.
func (c *crowd) count(what string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.results {
		if r.What == what {
			n++
		}
	}
	return n
}

func (c *crowd) start(name, etcd, dsn string) {
	c.t.Helper()
	cmd := exec.Command(os.Args[0], "--name", name, "--etcd", etcd, "--dsn", dsn)
	cmd.Env = append(os.Environ(), asCrowd+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = child.Attributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.stdin = append(c.stdin, stdin)
	c.ended.Add(1)
	go c.listen(cmd, stdout)
}

// listen takes what a process says and wakes it up after its pauses. It returns
// when the process has ended.
func (c *crowd) listen(cmd *exec.Cmd, stdout io.Reader) {
	defer c.ended.Done()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			c.t.Errorf("a process of the crowd said %q", lines.Text())
			continue
		}
		c.mu.Lock()
		c.results = append(c.results, r)
		c.mu.Unlock()
		if r.What == resultPausing {
			time.AfterFunc(rand.N(crowdLongest), func() { _ = cmd.Process.Signal(syscall.SIGCONT) })
		}
	}
	_ = cmd.Wait() // what it did is in its results
}

// stop has the workers finish what they are at.
func (c *crowd) stop() {
	for _, in := range c.stdin {
		_ = in.Close()
	}
	c.stdin = nil
	c.ended.Wait()
}

// Case 25: fifty workers in five processes add to one counter under one lock,
// with leases of a second, and are stopped in the middle of it for up to three.
func TestCase25_FiftyWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.admin(`CREATE TABLE counter (n int); INSERT INTO counter VALUES (0);
		CREATE TABLE ledger (n int, token bigint, worker text, seq int)`)
	c := &crowd{t: t}
	defer c.stop()
	for i := range crowdProcesses {
		via := r.first
		if i%2 == 1 {
			via = r.other
		}
		c.start(fmt.Sprint(i), r.Etcd.Endpoint(), r.ProxyDSN(via.Addr(), stack.RoleApp, "app"))
	}
	poll.Until(t, "increments", func() bool { return c.count(resultAcked) >= 50 })
	poll.Until(t, "stale increments", func() bool { return c.count(resultRefused) >= 2 })
	c.stop()
	c.check(stack.Connect(t, r.DSN(stack.RoleApp, "app")))
	t.Logf("%d acknowledged, %d refused, %d lost, %d pauses",
		c.count(resultAcked), c.count(resultRefused), c.count(resultLost), c.count(resultPausing))
}

// check compares what the workers were told with what stands in the database.
func (c *crowd) check(conn *pgx.Conn) {
	c.t.Helper()
	written := map[string]int{}
	rows, err := conn.Query(context.Background(), "SELECT worker || ' ' || seq FROM ledger")
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		written[name]++
	}
	for _, r := range c.results {
		switch n := written[fmt.Sprintf("%s %d", r.Worker, r.Seq)]; {
		case r.What == resultAcked && n != 1:
			c.t.Errorf("an acknowledged increment of %s is there %d times", r.Worker, n)
		case r.What == resultRefused && n != 0:
			c.t.Errorf("a refused increment of %s is there: %s", r.Worker, r.Text)
		case r.What == resultLost && n > 1:
			c.t.Errorf("an increment of %s is there %d times", r.Worker, n)
		}
	}
	for what, query := range map[string]string{
		"increments that were overwritten":            "SELECT (SELECT count(*) FROM ledger) - n FROM counter",
		"numbers that were given twice":               "SELECT count(*) - count(DISTINCT n) FROM ledger",
		"tokens that went back in the commits' order": "SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY n) AS back FROM ledger) AS l WHERE back",
	} {
		if got := text(c.t, conn, query); got != "0" {
			c.t.Errorf("%s: got %s, want 0", what, got)
		}
	}
}
