package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// The times of an etcd whose members are processes. A lease can't be shorter
// than one and a half elections, rounded up to whole seconds.
const (
	memberTickMS     = 50
	memberElectionMS = 500
)

// MemberConfig says which member of which etcd cluster a process is to be.
type MemberConfig struct {
	Name    string `json:"name"`
	Dir     string `json:"dir"`     // its data, which outlives the process
	Peer    string `json:"peer"`    // URL that the other members dial, such as a link's
	Cluster string `json:"cluster"` // name=URL of all members, joined with commas
	Token   string `json:"token"`   // of the cluster
}

// memberAddrs is what a member says on standard output once it listens.
type memberAddrs struct{ Client, Peer string }

// ServeMember is a member of an etcd cluster until ctx or in ends; it says its
// addresses on out. It is what the process of a Member does with its last argument.
// It doesn't sync to disk: a process that is killed loses nothing by that.
func ServeMember(ctx context.Context, arg string, in io.Reader, out io.Writer) error {
	var config MemberConfig
	if err := json.Unmarshal([]byte(arg), &config); err != nil {
		return fmt.Errorf("read the member's config: %w", err)
	}
	peer, err := url.Parse(config.Peer)
	if err != nil {
		return fmt.Errorf("parse peer URL: %w", err)
	}
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster, c.InitialClusterToken = config.Name, config.Dir, config.Cluster, config.Token
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{free}, []url.URL{*peer}
	c.TickMs, c.ElectionMs = memberTickMS, memberElectionMS
	c.UnsafeNoFsync, c.EnableGRPCGateway = true, false
	c.LogLevel, c.LogOutputs = "fatal", []string{"stderr"}
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	addrs := memberAddrs{etcd.Clients[0].Addr().String(), etcd.Peers[0].Addr().String()}
	if err := json.NewEncoder(out).Encode(addrs); err != nil {
		return fmt.Errorf("say the member's addresses: %w", err)
	}
	ended := make(chan struct{})
	go func() { // until the parent closes its end, or this process is over
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	select {
	case err := <-etcd.Err():
		return err
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// A Member is a member of an etcd cluster, in a process of its own that can be
// paused, killed and started again.
type Member struct {
	Client string // host:port of the present process, for clients
	Peer   string // and for the other members

	config  MemberConfig
	command []string
	cmd     *exec.Cmd // nil while it doesn't run
	in      io.Closer
}

// NewMember returns a member that doesn't run yet. command is a program that
// calls ServeMember with its last argument, the MemberConfig as JSON.
func NewMember(command []string, config MemberConfig) *Member {
	return &Member{config: config, command: command}
}

// Start starts the process and returns when it listens; it serves as soon as a
// majority does.
func (m *Member) Start() error {
	config, err := json.Marshal(m.config)
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", m.config.Name, err)
	}
	cmd := exec.Command(m.command[0], append(m.command[1:len(m.command):len(m.command)], string(config))...)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", m.config.Name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", m.config.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd member %s: %w", m.config.Name, err)
	}
	m.cmd, m.in = cmd, in
	var addrs memberAddrs
	if err := json.NewDecoder(out).Decode(&addrs); err != nil {
		return errors.Join(fmt.Errorf("start etcd member %s: it said no addresses: %w", m.config.Name, err), m.Kill())
	}
	m.Client, m.Peer = addrs.Client, addrs.Peer
	return nil
}

// PID is the id of its process, which must run.
func (m *Member) PID() int { return m.cmd.Process.Pid }

// Signal sends a signal, such as SIGSTOP and SIGCONT.
func (m *Member) Signal(sig os.Signal) error {
	if m.cmd == nil {
		return os.ErrProcessDone
	}
	return m.cmd.Process.Signal(sig)
}

// Kill ends the process at once, paused or not, and keeps its data. A member
// that doesn't run is left alone.
func (m *Member) Kill() error {
	if m.cmd == nil {
		return nil
	}
	err := m.cmd.Process.Kill()
	_ = m.cmd.Wait() // "signal: killed", as meant
	m.in.Close()
	m.cmd = nil
	return err
}
