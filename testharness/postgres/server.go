package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Superuser is the name of every server's superuser.
const Superuser = "postgres"

// DefaultStartTimeout bounds Start and Restart where the context doesn't.
const DefaultStartTimeout = 30 * time.Second

// portTries is how often Start looks for a free port: another process may take
// the port between the look and the server's own bind.
const portTries = 5

// Auth is how the server authenticates its clients, on every address.
type Auth int

const (
	// AuthTrust lets everybody in on loopback. Any local user may then run
	// programs as the server's user (COPY … TO PROGRAM): for tests only.
	AuthTrust Auth = iota
	// AuthSCRAM asks for a password, by SCRAM-SHA-256.
	AuthSCRAM
)

func (a Auth) String() string {
	switch a {
	case AuthTrust:
		return "trust"
	case AuthSCRAM:
		return "scram-sha-256"
	default:
		return "Auth(" + strconv.Itoa(int(a)) + ")"
	}
}

// Options say what kind of server to start. The zero value is a fast server
// that trusts every local client.
type Options struct {
	// Binaries is the folder of initdb and postgres; "" finds it.
	Binaries string
	// Auth is how clients are authenticated.
	Auth Auth
	// Password is the superuser's; "" makes a random one for AuthSCRAM.
	Password string
	// Durable leaves fsync on, as a real server has it.
	Durable bool
	// Port to listen on; 0 takes a free one.
	Port int
	// Config holds further lines of postgresql.conf, each `name = value`.
	// They win over the lines that Start writes itself.
	Config []string
	// HBA holds lines of pg_hba.conf that come before those that Auth makes.
	HBA []string
	// StandbyOf makes the server a streaming standby of a running one, which
	// must have the same Auth and Password. Template is not used then.
	StandbyOf *Server
	// StreamFrom is the host:port that a standby streams from instead of its
	// primary's own, such as that of a link which can be cut.
	StreamFrom string
	// Template is a folder to keep initialised data folders in, to be copied
	// by later servers with the same binaries, Auth and Password (which then
	// share their system identifier). "" runs initdb each time.
	Template string
}

// A Server is one PostgreSQL server and the folders it lives in. Its methods
// are not for concurrent use, but for DSN, Port, PID and the names of folders.
type Server struct {
	options Options
	owner   *owner
	base    string // holds data and log
	sockets string
	port    int
	process *process // nil while stopped
}

// Start makes a data folder and starts a server on it. It returns when the
// server accepts connections.
func Start(ctx context.Context, options Options) (*Server, error) {
	s := &Server{options: options}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.launchAnywhere(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// create makes the folders and fills the data folder.
func (s *Server) create(ctx context.Context) (err error) {
	if s.options.Binaries == "" {
		if s.options.Binaries, err = FindBinaries(); err != nil {
			return err
		}
	}
	if s.options.Auth == AuthSCRAM && s.options.Password == "" {
		s.options.Password = randomPassword()
	}
	if s.owner, err = serverOwner(); err != nil {
		return err
	}
	if s.base, err = s.owner.makeTemp("", "fenceproxy-postgres-"); err != nil {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	// A socket's path has room for 107 bytes (sun_path), which a long
	// TMPDIR would eat up.
	if s.sockets, err = s.owner.makeTemp("/tmp", "fpg"); err != nil {
		return fmt.Errorf("make the socket folder: %w", err)
	}
	if err := s.fillData(ctx); err != nil {
		return err
	}
	if err := s.writeHBA(); err != nil {
		return err
	}
	return s.writeConfig()
}

// writeHBA puts the options' lines before those of initdb.
func (s *Server) writeHBA() error {
	path := filepath.Join(s.DataDir(), "pg_hba.conf")
	rest, err := os.ReadFile(path)
	if err == nil && len(s.options.HBA) > 0 {
		err = os.WriteFile(path, append([]byte(strings.Join(s.options.HBA, "\n")+"\n"), rest...), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the server's pg_hba.conf: %w", err)
	}
	return nil
}

func (s *Server) writeConfig() error {
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = '" + s.sockets + "'",
		"max_connections = 300",
		"shared_buffers = 32MB",
		"max_wal_size = 1GB",
		"log_line_prefix = '%m [%p] %a '",
	}
	if !s.options.Durable {
		lines = append(lines, "fsync = off", "full_page_writes = off")
	}
	lines = append(lines, s.options.Config...)
	text := "\n# This server's own lines.\n" + strings.Join(lines, "\n") + "\n"
	return appendTo(filepath.Join(s.DataDir(), "postgresql.conf"), text)
}

// appendTo adds to a file of settings.
func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return nil
}

// launchAnywhere launches on the port asked for, or on a free one.
func (s *Server) launchAnywhere(ctx context.Context) error {
	if s.options.Port != 0 {
		s.port = s.options.Port
		return s.launch(ctx)
	}
	var err error
	for range portTries {
		if s.port, err = FreePort(); err != nil {
			return err
		}
		if err = s.launch(ctx); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}

// DSN returns the connection string of user in database. The superuser's
// carries its password; other users' carry none.
func (s *Server) DSN(user, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(user),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if user == Superuser && s.options.Password != "" {
		u.User = url.UserPassword(user, s.options.Password)
	}
	return u.String()
}

// Port returns the port on 127.0.0.1. It stays the same across Restart.
func (s *Server) Port() int { return s.port }

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// SocketDir returns the folder of the Unix socket.
func (s *Server) SocketDir() string { return s.sockets }

// DataDir returns the data folder (PGDATA).
func (s *Server) DataDir() string { return filepath.Join(s.base, "data") }

// Password returns the superuser's, "" where none is asked for.
func (s *Server) Password() string { return s.options.Password }

// LogFile returns the file that the server logs to.
func (s *Server) LogFile() string { return filepath.Join(s.base, "log") }

// Program returns the path of a program that stands beside the server's own,
// such as pg_basebackup or pgbench; it may not be installed.
func (s *Server) Program(name string) string { return filepath.Join(s.options.Binaries, name) }

// PID returns the postmaster's process id, 0 while the server is stopped.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.pid()
}

// Stop ends the server by an immediate shutdown (as a crash, but orderly): open
// sessions are cut, and the next start replays the log. A stopped server is
// left alone.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	err := s.process.stop()
	s.process = nil
	return err
}

// Kill ends the postmaster and all backends with SIGKILL at once, as a crash
// of the machine would (less the loss of what the kernel had yet to write).
func (s *Server) Kill() error {
	if s.process == nil {
		return nil
	}
	err := s.process.kill()
	s.process = nil
	return err
}

// Restart starts the server again on the same port and data, after Stop if it
// is running.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Close stops the server and removes its folders. It may be called twice.
func (s *Server) Close() error {
	err := s.Stop()
	for _, dir := range []string{s.base, s.sockets} {
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// FreePort returns a port of 127.0.0.1 that nothing listens on now; another
// process may take it any time.
func FreePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
