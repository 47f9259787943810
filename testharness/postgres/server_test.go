package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// parentEnv turns the test binary into a parent that starts a server, prints
// its process id and data folder, and waits to be killed.
const parentEnv = "FENCEPROXY_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		s, err := postgres.Start(context.Background(), postgres.Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.PID(), s.DataDir(), s.SocketDir())
		select {}
	}
	os.Exit(m.Run())
}

func show(t *testing.T, conn *pgx.Conn, setting string) (value string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&value); err != nil {
		t.Fatalf("show %s: %v", setting, err)
	}
	return value
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestNew_Settings(t *testing.T) {
	cases := []struct {
		name, setting, want string
		options             postgres.Options
	}{
		{"fast by default", "fsync", "off", postgres.Options{}},
		{"durable", "fsync", "on", postgres.Options{Durable: true}},
		{"extra line", "work_mem", "7MB", postgres.Options{Config: []string{"work_mem = 7MB"}}},
		{"extra line wins", "max_connections", "20", postgres.Options{Config: []string{"max_connections = 20"}}},
		{"commits as usual", "synchronous_commit", "on", postgres.Options{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := postgres.New(t, c.options)
			if got := show(t, dial.Connect(t, s.DSN(postgres.Superuser, "postgres")), c.setting); got != c.want {
				t.Errorf("%s: got %s, want %s", c.setting, got, c.want)
			}
		})
	}
}

func TestNew_UnixSocket(t *testing.T) {
	s := postgres.New(t, postgres.Options{})
	dial.Connect(t, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", s.SocketDir(), s.Port()))
}

func TestNew_SCRAM(t *testing.T) {
	s := postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM})
	dial.Connect(t, s.DSN(postgres.Superuser, "postgres"))
	conn, err := pgx.Connect(t.Context(), strings.Replace(s.DSN(postgres.Superuser, "postgres"), ":test@", ":wrong@", 1))
	if err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
}

func TestStart_SCRAMRandomPassword(t *testing.T) {
	s, err := postgres.Start(t.Context(), postgres.Options{Auth: postgres.AuthSCRAM})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dial.Connect(t, s.DSN(postgres.Superuser, "postgres"))
}

func TestServer_RestartKeepsCommits(t *testing.T) {
	cases := []struct {
		name string
		end  func(*postgres.Server) error
	}{
		{"while running", func(*postgres.Server) error { return nil }},
		{"after Stop", (*postgres.Server).Stop},
		{"after Kill", (*postgres.Server).Kill},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := postgres.New(t, postgres.Options{})
			dsn := s.DSN(postgres.Superuser, "postgres")
			before := dial.Connect(t, dsn)
			if _, err := before.Exec(t.Context(), "create table kept as select 42 as n"); err != nil {
				t.Fatal(err)
			}
			if err := c.end(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := before.Ping(t.Context()); err == nil {
				t.Error("a session outlived the restart")
			}
			var got int
			if err := dial.Connect(t, dsn).QueryRow(t.Context(), "select n from kept").Scan(&got); err != nil || got != 42 {
				t.Errorf("got %d, %v, want 42", got, err)
			}
		})
	}
}

func TestServer_KillEndsBackends(t *testing.T) {
	s := postgres.New(t, postgres.Options{})
	conn := dial.Connect(t, s.DSN(postgres.Superuser, "postgres"))
	backend := int(conn.PgConn().PID())
	// A stopped backend can't notice its postmaster's death by itself.
	if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the backend's end", func() bool { return !alive(backend) })
	if got := s.PID(); got != 0 {
		t.Errorf("pid after Kill: got %d, want 0", got)
	}
}

func TestServer_CloseLeavesNothing(t *testing.T) {
	s, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if alive(pid) {
		t.Error("the postmaster is still there")
	}
	for _, dir := range []string{s.DataDir(), s.SocketDir()} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want it gone", dir, err)
		}
	}
}

func TestServer_DiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var data, sockets string
	if _, err := fmt.Sscan(line, &pid, &data, &sockets); err != nil {
		t.Fatalf("the parent said %q", line)
	}
	defer os.RemoveAll(filepath.Dir(data))
	defer os.RemoveAll(sockets)
	if !alive(pid) {
		t.Fatal("the server isn't running")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed", as meant
	poll.Until(t, "the server's end", func() bool { return !alive(pid) })
}

func TestStart_PortTaken(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := postgres.Start(t.Context(), postgres.Options{Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil {
		s.Close()
		t.Fatal("started on a taken port")
	}
	if got, want := err.Error(), "the port is taken"; !strings.Contains(got, want) {
		t.Errorf("got %q, want it to say %q", got, want)
	}
}

func TestStart_BadSetting(t *testing.T) {
	s, err := postgres.Start(t.Context(), postgres.Options{Config: []string{"no_such_setting = 1"}})
	if err == nil {
		s.Close()
		t.Fatal("started with a setting that doesn't exist")
	}
	if got, want := err.Error(), "no_such_setting"; !strings.Contains(got, want) {
		t.Errorf("got %q, want it to name %q", got, want)
	}
}

func TestFindBinaries(t *testing.T) {
	fake := func(t *testing.T, programs ...string) string {
		dir := t.TempDir()
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	t.Run("the environment comes first", func(t *testing.T) {
		want := fake(t, "initdb", "postgres")
		t.Setenv("PATH", fake(t, "initdb", "postgres"))
		t.Setenv(postgres.EnvBinaries, want)
		if got, err := postgres.FindBinaries(); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	})
	t.Run("the environment is not guessed around", func(t *testing.T) {
		t.Setenv(postgres.EnvBinaries, fake(t, "initdb"))
		if got, err := postgres.FindBinaries(); err == nil || !strings.Contains(err.Error(), "no program postgres") {
			t.Errorf("got %s, %v, want an error that names postgres", got, err)
		}
	})
	t.Run("then PATH, both programs in one folder", func(t *testing.T) {
		want := fake(t, "initdb", "postgres")
		t.Setenv(postgres.EnvBinaries, "")
		t.Setenv("PATH", fake(t, "postgres")+":"+want)
		if got, err := postgres.FindBinaries(); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	})
	t.Run("then the version folders", func(t *testing.T) {
		t.Setenv(postgres.EnvBinaries, "")
		t.Setenv("PATH", t.TempDir())
		if got, err := postgres.FindBinaries(); err == nil {
			if _, err := os.Stat(filepath.Join(got, "initdb")); err != nil {
				t.Error(err)
			}
		} else if !strings.Contains(err.Error(), "install the server package") {
			t.Errorf("got %v, want an error that names the package", err)
		}
	})
}
