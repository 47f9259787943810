package cases_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// beMember is what the process of an etcd member does. It ends by a kill.
func beMember(context.Context) error {
	flags := flag.NewFlagSet("member", flag.ContinueOnError)
	name, dir := flags.String("name", "", ""), flags.String("dir", "", "")
	client, peer := flags.String("client", "", ""), flags.String("peer", "", "")
	initial := flags.String("cluster", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialCluster = *name, *dir, *initial
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: *client}}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: *peer}}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = config.ListenClientUrls, config.ListenPeerUrls
	config.TickMs, config.ElectionMs = 50, 500
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	<-etcd.Server.ReadyNotify()
	fmt.Println("ready")
	return <-etcd.Err()
}

// A member of a cluster is a process that can be frozen and killed.
type member struct {
	cmd      *exec.Cmd
	endpoint string
	gone     bool
}

type cluster struct {
	t       *testing.T
	members []*member
}

// newCluster starts a cluster of three.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	clients, peers, initial := [3]string{}, [3]string{}, ""
	for i := range clients {
		clients[i], peers[i] = freeAddr(t), freeAddr(t)
		initial += fmt.Sprintf(",m%d=http://%s", i, peers[i])
	}
	var outs []*bufio.Reader
	for i := range clients {
		cmd := exec.Command(os.Args[0], "--name", fmt.Sprintf("m%d", i), "--dir", t.TempDir(),
			"--client", clients[i], "--peer", peers[i], "--cluster", initial[1:])
		cmd.Env = append(os.Environ(), asMember+"=1")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = child.Attributes()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m := &member{cmd: cmd, endpoint: "http://" + clients[i]}
		c.members = append(c.members, m)
		t.Cleanup(func() { c.kill(m) })
		outs = append(outs, bufio.NewReader(out))
	}
	for i, out := range outs {
		if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("member %d said %q, %v, want it to get ready", i, line, err)
		}
	}
	return c
}

// freeAddr is that of a port which nobody listens on at the moment.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func (c *cluster) endpoints() (all []string) {
	for _, m := range c.members {
		all = append(all, m.endpoint)
	}
	return all
}

// freeze stops a member where it is.
func (c *cluster) freeze(m *member) {
	c.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	poll.Until(c.t, "the member stops", func() bool {
		stopped, err := child.Stopped(m.cmd.Process.Pid)
		return err == nil && stopped
	})
}

func (c *cluster) thaw(m *member) {
	c.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kill(m *member) {
	if !m.gone {
		m.gone = true
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait() // it was killed
	}
}

// roles tells the leader from the others.
func (c *cluster) roles(client *clientv3.Client) (leader *member, followers []*member) {
	c.t.Helper()
	poll.Until(c.t, "a leader", func() bool {
		leader, followers = nil, nil
		for _, m := range c.members {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			status, err := client.Status(ctx, m.endpoint)
			cancel()
			if err != nil {
				return false
			}
			if status.Leader == status.Header.MemberId {
				leader = m
			} else {
				followers = append(followers, m)
			}
		}
		return leader != nil
	})
	return leader, followers
}

// An outage is a stack whose proxies ask a cluster of three: a holder with a
// session, and locks that are held and not claimed yet.
type outage struct {
	*rig
	*cluster
	holder fencing.Token
	spare  []*leases.Lease
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{rig: &rig{Stack: stack.New(t, "app"), t: t}, cluster: newCluster(t)}
	o.Client.Close()
	var err error
	if o.Client, err = leases.NewClient(o.endpoints(), nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []**stack.Proxy{&o.first, &o.other} {
		if *p, err = o.StartProxy("app", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	o.admin("CREATE TABLE t (id int, v text)")
	o.holder = o.hold("held", time.Minute).Token()
	for i := range 6 {
		o.spare = append(o.spare, o.hold(fmt.Sprintf("spare:%d", i), time.Minute))
	}
	return o
}

// next is a lock that was not claimed yet.
func (o *outage) next() *leases.Lease {
	lease := o.spare[0]
	o.spare = o.spare[1:]
	return lease
}

// Case 8: members of etcd are frozen and killed, one after the other. Whoever
// has claimed goes on; a new claim is carried out as long as two members are
// there, and is refused otherwise, as is all that its session tries.
func TestCase8_EtcdOutages(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	leader, followers := o.roles(o.Client)
	held := o.tagged(o.first, "held", o.holder)
	n := 0
	goesOn := func(when string) {
		t.Helper()
		n++
		accepted(t, when+": the holder's write", extended.run(held, fmt.Sprintf("INSERT INTO t VALUES (%d, 'held')", n)))
		accepted(t, when+": a new session of the holder", simple.run(o.tagged(o.first, "held", o.holder), "SELECT * FROM t"))
	}
	claims := func(when string) {
		t.Helper()
		lease := o.next()
		conn := o.session(o.other)
		poll.Until(t, when+": a claim", func() bool { return tag(conn, lease.Key(), lease.Token()) == nil })
		n++
		accepted(t, when+": a new holder's write", extended.run(conn, fmt.Sprintf("INSERT INTO t VALUES (%d, 'held')", n)))
		o.wantMark(lease.Key(), lease.Token())
	}
	refuses := func(when string) (retry func()) {
		t.Helper()
		lease := o.next()
		conn := o.session(o.other)
		refused(t, when+": a claim", tag(conn, lease.Key(), lease.Token()), fencing.CodeUnverified, "Retry")
		for _, p := range protocols() {
			refused(t, when+": a write", p.run(conn, "INSERT INTO t VALUES (-1, 'unverified')"), fencing.CodeUnverified)
		}
		o.wantMark(lease.Key(), 0)
		return func() {
			t.Helper()
			poll.Until(t, "a claim once etcd is back", func() bool { return tag(conn, lease.Key(), lease.Token()) == nil })
			n++
			accepted(t, "a write once etcd is back", simple.run(conn, fmt.Sprintf("INSERT INTO t VALUES (%d, 'held')", n)))
		}
	}

	o.freeze(followers[0])
	goesOn("a follower is frozen")
	claims("a follower is frozen")
	o.freeze(leader)
	goesOn("two of three are frozen")
	retry := refuses("two of three are frozen")
	o.thaw(followers[0])
	goesOn("the leader is frozen")
	claims("the leader is frozen")
	retry()
	o.thaw(leader)
	o.kill(leader)
	claims("one of three is killed")
	o.kill(followers[0])
	goesOn("two of three are killed")
	refuses("two of three are killed")
	o.kill(followers[1])
	goesOn("all are killed")
	refuses("all are killed")

	if got := text(t, held, "SELECT count(*) || ' of ' || max(id) || ' ' || string_agg(DISTINCT v, ',') FROM t"); got != fmt.Sprintf("%d of %d held", n, n) {
		t.Errorf("rows: got %s, want %d", got, n)
	}
}
