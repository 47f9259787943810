package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/leases"
)

const (
	// DefaultAddr is etcd's own: holders find it after a restart, and
	// etcdctl without being told.
	DefaultAddr = "127.0.0.1:2379"
	// DefaultStartTimeout bounds how long an embedded etcd may take until it
	// serves.
	DefaultStartTimeout = 30 * time.Second
	// lockFile, in the data folder, is locked while an Etcd runs on it.
	lockFile = "fenceproxy.lock"
	// placeholderPeer is the peer URL that a single node must name and never
	// listens on.
	placeholderPeer = "http://127.0.0.1:2380"
	// historyKept is how much of etcd's past outlives compaction; nothing
	// here reads the past, but its watches resume from a recent one.
	historyKept = "1h"
	// heartbeatMS and electionMS are a fifth of etcd's own: there
	// is nobody to hold an election with, and a start waits for one. It also
	// makes 1 s the shortest lease.
	heartbeatMS, electionMS = 20, 200
)

// An Etcd is one node, which is a cluster of its own.
type Etcd struct {
	// Addr is the loopback address to listen on, DefaultAddr; port 0
	// takes a free one, another one at each start.
	Addr string
	// StartTimeout is DefaultStartTimeout.
	StartTimeout time.Duration
	// Log takes what etcd has to say of level error and above, os.Stderr.
	Log io.Writer

	dir    string
	lock   *fileutil.LockedFile
	level  zap.AtomicLevel
	server *embed.Etcd

	endpoint string
	closing  sync.Once
}

// New returns an etcd that keeps its data in folder dir, which Start
// makes if need be.
func New(dir string) *Etcd {
	return &Etcd{
		Addr:         DefaultAddr,
		StartTimeout: DefaultStartTimeout,
		Log:          os.Stderr,
		dir:          dir,
		level:        zap.NewAtomicLevelAt(zap.ErrorLevel),
	}
}

// Start returns once etcd serves. It is called once; after an error there is
// nothing to close.
//
// Errors: leases.ErrInvalid for an address that isn't loopback, ErrDirLocked,
// ErrAddrInUse, ctx's own, and what the file system says of the folder.
func (e *Etcd) Start(ctx context.Context) error {
	listen, err := loopbackURL(e.Addr)
	if err != nil {
		return err
	}
	if err := e.probe(); err != nil {
		return err
	}
	if err := e.lockDir(); err != nil {
		return err
	}
	config, err := e.config(listen)
	if err != nil {
		e.unlockDir()
		return err
	}
	e.server, err = embed.StartEtcd(config)
	if err != nil {
		e.unlockDir()
		if errors.Is(err, syscall.EADDRINUSE) {
			return e.taken()
		}
		return fmt.Errorf("start embedded etcd in %s: %w", e.dir, err)
	}
	e.endpoint = "http://" + e.server.Clients[0].Addr().String()
	if err := e.ready(ctx); err != nil {
		e.Close()
		return fmt.Errorf("start embedded etcd in %s: %w", e.dir, err)
	}
	return nil
}

// probe looks for somebody else on the address before a folder is made for
// nothing. With a folder that is there, that it is in use says more.
func (e *Etcd) probe() error {
	if _, err := os.Stat(e.dir); err == nil {
		return nil
	}
	ln, err := net.Listen("tcp", e.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return e.taken()
	}
	if err == nil {
		ln.Close()
	}
	return nil // whatever else there is, etcd says
}

func (e *Etcd) taken() error {
	return fmt.Errorf("start embedded etcd: %w: %s: stop what listens there or choose another port", ErrAddrInUse, e.Addr)
}

// ready waits until the node is its own leader.
func (e *Etcd) ready(ctx context.Context) error {
	timer := time.NewTimer(e.StartTimeout)
	defer timer.Stop()
	select {
	case <-e.server.Server.ReadyNotify():
		return nil
	case err := <-e.server.Err():
		return err
	case <-e.server.Server.StopNotify():
		return errors.New("it stopped")
	case <-timer.C:
		return fmt.Errorf("not ready within %v", e.StartTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Endpoint returns the URL that clients connect to. It is set by Start.
func (e *Etcd) Endpoint() string { return e.endpoint }

// Err reports that a running etcd stopped serving. Start makes the channel,
// Close closes it.
func (e *Etcd) Err() <-chan error { return e.server.Err() }

// Close ends etcd and unlocks the folder. Requests under way are cut off, as
// they would be if the machine went down. It does nothing on an etcd that
// didn't start, or when it is called again.
func (e *Etcd) Close() {
	if e.server != nil {
		e.closing.Do(e.close)
	}
}

func (e *Etcd) close() {
	// etcd logs the end of its own listeners as errors.
	e.level.SetLevel(zap.FatalLevel)
	e.server.Close()
	e.unlockDir()
}

// config is etcd's own defaults but for what a single node in somebody else's
// process needs.
func (e *Etcd) config(listen url.URL) (*embed.Config, error) {
	peer, err := url.Parse(placeholderPeer)
	if err != nil {
		return nil, fmt.Errorf("make embedded etcd's config: %w", err)
	}
	c := embed.NewConfig()
	c.Name = "fenceproxy"
	c.Dir = e.dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{listen}, []url.URL{listen}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// The cluster ID, by which a proxy knows which history a token belongs
	// to, is made of the peer URL and this. etcd's default would give every
	// new folder the same ID. A folder that has data keeps its own.
	c.InitialClusterToken = rand.Text()
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, historyKept
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = heartbeatMS, electionMS
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(newLogCore(e.Log, e.level)))
	return c, nil
}

// lockDir makes the folder and takes it for this process. etcd itself, on a
// folder that is in use, would wait without end.
func (e *Etcd) lockDir() error {
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return fmt.Errorf("make etcd's data folder: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(e.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return e.lockError(err)
	}
	e.lock = lock
	// An etcd that isn't ours has its write-ahead log locked.
	logs, err := filepath.Glob(filepath.Join(e.dir, "member", "wal", "*.wal"))
	if err != nil {
		e.unlockDir()
		return fmt.Errorf("look into etcd's data folder: %w", err)
	}
	for _, name := range logs {
		probe, err := fileutil.TryLockFile(name, os.O_RDWR, 0o600)
		if err != nil {
			e.unlockDir()
			return e.lockError(err)
		}
		probe.Close()
	}
	return nil
}

func (e *Etcd) lockError(err error) error {
	if errors.Is(err, fileutil.ErrLocked) {
		return fmt.Errorf("start embedded etcd: %w: %s: stop that one or choose another folder", ErrDirLocked, e.dir)
	}
	return fmt.Errorf("lock etcd's data folder: %w", err)
}

func (e *Etcd) unlockDir() {
	e.lock.Close()
	e.lock = nil
}

// loopbackURL refuses addresses that other machines could reach: there is no
// password on this etcd, and who can write to it can take any lock.
func loopbackURL(addr string) (url.URL, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return url.URL{}, fmt.Errorf("%w: embedded etcd's address %q is not host:port", leases.ErrInvalid, addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return url.URL{}, fmt.Errorf("%w: embedded etcd listens on loopback only, not on %q", leases.ErrInvalid, addr)
	}
	return url.URL{Scheme: "http", Host: addr}, nil
}
