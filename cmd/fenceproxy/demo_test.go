package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

func TestDemo_JSON(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	code, stdout, stderr := program(t, nil, "demo", "paused-in-transaction", "monthly-invoices", "--json", "--report", page)
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d, %q, want 0", code, stderr)
	}
	type verdict struct {
		Arm          string
		StaleCommits *int `json:"stale_commits"`
		Rejections   []struct{ Actor, Code, Name string }
	}
	wantCodes := map[string][]string{
		"paused-in-transaction": {"LF005"},
		"monthly-invoices":      {"LF005"},
	}
	wantOthers := map[string]int{"monthly-invoices": 2}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != len(wantCodes) {
		t.Fatalf("got %d lines, want one a scenario", len(lines))
	}
	for _, line := range lines {
		var got struct {
			Scenario               string
			Unprotected, Protected verdict
			Others                 []verdict
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got.Unprotected.Arm != "etcd" || got.Protected.Arm != "fenced" || len(got.Others) != wantOthers[got.Scenario] {
			t.Errorf("%s: got %q, %q and %d others, want etcd, fenced and %d", got.Scenario,
				got.Unprotected.Arm, got.Protected.Arm, len(got.Others), wantOthers[got.Scenario])
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

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<h2 id="paused-in-transaction">`, `<h2 id="monthly-invoices">`, "All as promised", "LF005"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("want %q in the report", want)
		}
	}
}

// What can't be done is said before anything is started.
func TestDemo_Usage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown":              {[]string{"demo", "no-such-story"}, "no scenario \"no-such-story\"; fenceproxy demo --list lists them"},
		"all and one":          {[]string{"demo", "--all", "waiter"}, "exclude each other"},
		"the same twice":       {[]string{"demo", "waiter", "counter", "waiter"}, "waiter is named twice"},
		"a report for nowhere": {[]string{"demo", "--report", filepath.Join(t.TempDir(), "no", "report.html")}, "--report: open "},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, c.args...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("got exit %d, %q, %q, want 2 and %q", code, stdout, stderr, c.want)
			}
		})
	}
}

// An interrupt ends all that was started, whenever it comes, and is told in one
// line. A page that was asked for says that something is missing.
func TestDemo_Interrupted(t *testing.T) {
	for name, servers := range map[string]int{"while PostgreSQL is made": 1, "while the story's own servers are made": 2} {
		t.Run(name, func(t *testing.T) {
			page, dir := filepath.Join(t.TempDir(), "report.html"), folder(t)
			p := start(t, []string{"TMPDIR=" + dir}, "demo", "lost-claim", "--report", page)
			poll.Until(t, "it is under way", func() bool {
				made, err := filepath.Glob(filepath.Join(dir, "fenceproxy-postgres-*", "data"))
				return err == nil && len(made) >= servers
			})
			p.signal(syscall.SIGTERM)
			if code, stderr := p.wait(), p.stderr.String(); code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "terminated") {
				t.Errorf("got exit %d, %q, want 1 and a line", code, stderr)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("got %v, %v left behind, want nothing", left, err)
			}
			text, err := os.ReadFile(page)
			if err != nil || !strings.Contains(string(text), "Not played: ") || strings.Contains(string(text), "All as promised") {
				t.Errorf("got a page of %d bytes, %v, want one that says what is missing", len(text), err)
			}
		})
	}
}

// Whoever reads what is told may go, as head does; all that was started ends then.
func TestDemo_ReaderGone(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		lines int
	}{
		"demo": {[]string{"demo", "--all"}, 8},
		"dev":  {[]string{"dev"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), os.Args[0], c.args...)
			cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir)
			cmd.Stdout, cmd.Stderr = write, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			for lines := bufio.NewScanner(read); c.lines > 0 && lines.Scan(); {
				c.lines--
			}
			read.Close()
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "broken pipe") {
				t.Errorf("got %v, %q, want exit status 1 and what broke", cmd.ProcessState, stderr.String())
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("got %v, %v left behind, want nothing", left, err)
			}
		})
	}
}

// folder is t.TempDir, for PostgreSQL's user too.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fenceproxy-demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDemo_Timeline(t *testing.T) {
	code, stdout, stderr := program(t, nil, "demo")
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d, %q, want 0", code, stderr)
	}
	for _, want := range []string{
		"paused-holder: ", "1. A lock in etcd, straight to PostgreSQL", "2. Through fenceproxy",
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
	code, stdout, _ = program(t, nil, "demo", "--list", "--json")
	decoder := json.NewDecoder(strings.NewReader(stdout))
	for _, want := range scenario.Stories() {
		var got struct {
			Scenario, Title, Text string
			Case                  int
		}
		if err := decoder.Decode(&got); err != nil || got.Scenario != want.Name || got.Title != want.Title || got.Case != want.Case || got.Text != want.Text {
			t.Errorf("got exit %d, %+v, %v, want %s", code, got, err, want.Name)
		}
	}
}
