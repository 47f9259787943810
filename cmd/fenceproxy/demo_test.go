package main

import (
	"encoding/json"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

func TestDemo_JSON(t *testing.T) {
	code, stdout, stderr := program(t, nil, "demo", "--all", "--json")
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d, %q, want 0", code, stderr)
	}
	type verdict struct {
		StaleCommits *int `json:"stale_commits"`
		Rejections   []struct{ Actor, Code, Name string }
	}
	wantCodes := map[string][]string{
		"paused-holder":         {"LF001", "LF001"},
		"paused-in-transaction": {"LF005"},
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != len(wantCodes) {
		t.Fatalf("got %d lines, want one a scenario", len(lines))
	}
	for _, line := range lines {
		var got struct {
			Scenario               string
			Unprotected, Protected verdict
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got.Unprotected.StaleCommits == nil || *got.Unprotected.StaleCommits == 0 || len(got.Unprotected.Rejections) > 0 {
			t.Errorf("%s unprotected: got %s, want stale commits", got.Scenario, line)
		}
		if got.Protected.StaleCommits == nil || *got.Protected.StaleCommits != 0 {
			t.Errorf("%s protected: got %s, want no stale commit", got.Scenario, line)
		}
		var codes []string
		for _, r := range got.Protected.Rejections {
			codes = append(codes, r.Code)
		}
		if want := wantCodes[got.Scenario]; strings.Join(codes, " ") != strings.Join(want, " ") {
			t.Errorf("%s protected: got %v, want %v", got.Scenario, codes, want)
		}
	}
}

func TestDemo_Timeline(t *testing.T) {
	code, stdout, stderr := program(t, nil, "demo")
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d, %q, want 0", code, stderr)
	}
	for _, want := range []string{
		"paused-holder: ", "1. Straight to PostgreSQL", "2. Through fenceproxy",
		"is paused (SIGSTOP)", "the lock is taken from it", "wakes up (SIGCONT)",
		"a STALE WRITE", "CORRUPTED", "REFUSED LF001 stale_token: account:7",
		"in the database: account 7: balance 110, last written by A",
		"in the database: account 7: balance 150, last written by B",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got\n%s\nwant %q in it", stdout, want)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("got colour though it is no terminal")
	}
}

func TestDemo_List(t *testing.T) {
	code, stdout, _ := program(t, nil, "demo", "--list")
	if lines := strings.Count(stdout, "\n"); code != 0 || lines != len(scenario.Stories()) {
		t.Errorf("got exit %d, %d lines, want one a scenario", code, lines)
	}
}

// What dev prints can be pasted into a shell, word for word.
func TestDev_Guide(t *testing.T) {
	t.Setenv(asProgram, "1") // for the commands that are pasted
	p := start(t, nil, "dev")
	eventually(t, "the guide", func() bool { return strings.Contains(p.stdout.String(), "Ctrl-C") || p.ended() })
	var commands []string
	for line := range strings.Lines(p.stdout.String()) {
		if strings.HasPrefix(line, "  ") {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	wants := []string{"new", "UPDATE 1", "LF001: stale_token: order:8472 token 1"}
	if len(commands) != len(wants) {
		t.Fatalf("got %d commands, want %d: %s", len(commands), len(wants), p.stdout.String())
	}
	for i, command := range commands {
		out, _ := exec.Command("sh", "-c", command).CombinedOutput() // the last one fails
		if !strings.Contains(string(out), wants[i]) {
			t.Errorf("%s\ngot %s, want %q in it", command, out, wants[i])
		}
	}
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
