package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// startDev starts dev, called name, and returns when it has said what to type.
func startDev(t *testing.T, name string, env ...string) *process {
	t.Helper()
	p := startAs(t, name, env, "dev")
	poll.Until(t, "the guide", func() bool { return strings.Contains(p.stdout.String(), "Ctrl-C") || p.ended() })
	return p
}

// What dev prints can be pasted into a shell, word for word, in any folder.
func TestDev_Guide(t *testing.T) {
	t.Setenv(asProgram, "1") // for the commands that are pasted
	p := startDev(t, "bin/fenceproxy")
	var commands []string
	for line := range strings.Lines(p.stdout.String()) {
		if strings.HasPrefix(line, "  ") {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	page := regexp.MustCompile(`(?m)^dashboard +(http://127\.0\.0\.1:\d+)/$`).FindStringSubmatch(p.stdout.String())
	if page == nil {
		t.Fatalf("got no address of the dashboard: %s", p.stdout.String())
	}
	wants := []string{"new", "UPDATE 1", "LF001: stale_token: order:8472 token 1", "UPDATE 1", "LF001"}
	if len(commands) != len(wants) {
		t.Fatalf("got %d commands, want %d: %s", len(commands), len(wants), p.stdout.String())
	}
	for i, command := range commands {
		pasted := exec.Command("sh", "-c", command)
		pasted.Dir = t.TempDir()
		out, _ := pasted.CombinedOutput() // a refused one fails
		if !strings.Contains(string(out), wants[i]) {
			t.Errorf("%s\ngot %s, want %q in it", command, out, wants[i])
		}
	}
	asked := exec.Command("sh", "-c", strings.Replace(commands[len(commands)-1], "SHOW REJECTIONS", "RELOAD", 1))
	if out, _ := asked.CombinedOutput(); !strings.Contains(string(out), "no settings to read") {
		t.Errorf("RELOAD on the console: got %s", out)
	}
	poll.Until(t, "the dashboard has counted the refusal", func() bool {
		_, body := fetch(t, http.DefaultClient, page[1]+"/api/state", "")
		return strings.Contains(body, `"claims":2,"refused":`) && !strings.Contains(body, `"refused":0`)
	})
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 || !strings.Contains(p.stdout.String(), "Removed.") {
		t.Errorf("got exit %d, %s, %s", code, p.stdout.String(), p.stderr.String())
	}
	for _, at := range regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindAllString(p.stdout.String(), -1) {
		if conn, err := net.Dial("tcp", at); err == nil {
			conn.Close()
			t.Errorf("something still listens at %s", at)
		}
	}
}

// A terminal that closes sends SIGHUP.
func TestDev_HangUp(t *testing.T) {
	folder, err := os.MkdirTemp("", "fenceproxy-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o711); err != nil { // PostgreSQL's user passes through
		t.Fatal(err)
	}
	p := startDev(t, "fenceproxy", "TMPDIR="+folder)
	if during, err := os.ReadDir(folder); err != nil || len(during) == 0 {
		t.Fatalf("got %v, %v in the folder for temporary files: this proves nothing", during, err)
	}
	p.signal(syscall.SIGHUP)
	if code := p.wait(); code != 0 || !strings.Contains(p.stdout.String(), "Removed.") {
		t.Errorf("got exit %d, %s, %s", code, p.stdout.String(), p.stderr.String())
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v left, want nothing", left, err)
	}
}

func TestDev_PortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	_, number, _ := net.SplitHostPort(addr)
	for flag, value := range map[string]string{"--listen": addr, "--etcd-listen": addr, "--postgres-port": number} {
		t.Run(flag, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, "dev", flag, value)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit %d, %q, %q, want 1 and one line", code, stdout, stderr)
			}
			for _, want := range []string{flag, value, "stop what", "choose another"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
		})
	}
}

func TestOwnCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	linked, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(linked, "fenceproxy")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "fenceproxy"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, called, want string }{
		"on PATH":            {linked, "fenceproxy", "fenceproxy"},
		"a path to it":       {linked, "bin/fenceproxy", "fenceproxy"},
		"not on PATH":        {t.TempDir(), "bin/fenceproxy", self},
		"another is on PATH": {other, "bin/fenceproxy", self},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			if got := ownCommand(c.called); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
