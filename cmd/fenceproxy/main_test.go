package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// asProgram in the environment makes the test binary the program itself, so
// that tests see real processes, exit statuses and signals, and the race
// detector sees them too.
const asProgram = "TEST_AS_FENCEPROXY"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	// Who ran the tests may ignore it, as nohup does, and then all that they start would.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// A process is the program at work.
type process struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{}
}

// output is what a process writes; it can be read while it does.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs the program and ends it, with what it started, when the test
// does.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return startAs(t, os.Args[0], env, args...)
}

// startAs is start by a caller that calls the program name.
func startAs(t testing.TB, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Args[0] = name
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its status is read from ProcessState
	}()
	t.Cleanup(p.end)
	return p
}

// end ends a process that still runs: lock passes SIGTERM on to its command.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.done
}

// wait returns the exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		p.end()
		p.t.Fatalf("%v did not end; it said\n%s", p.cmd.Args[1:], p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended tells whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// program runs the program to its end.
func program(t testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, env, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}

func TestRun_UsageErrors(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":  {[]string{"swerve"}, `unknown command "swerve"; did you mean serve? fenceproxy --help lists them`},
		"unknown flag":     {[]string{"serve", "--lisen", "x"}, "unknown flag: --lisen; did you mean --listen?"},
		"extra argument":   {[]string{"version", "now"}, `unexpected argument "now"`},
		"no upstream":      {[]string{"serve", "--etcd", "http://127.0.0.1:1"}, "--upstream is missing"},
		"init no upstream": {[]string{"init"}, "--upstream is missing"},
		"no etcd":          {[]string{"serve", "--upstream", "postgres://u@127.0.0.1/app"}, "--etcd is missing"},
		"two etcds":        {[]string{"serve", "--upstream", "postgres://u@127.0.0.1/app", "--etcd", "http://127.0.0.1:1", "--embed-etcd", "x"}, "exclude each other"},
		"auth file unused": {[]string{"serve", "--upstream", "postgres://u@127.0.0.1/app", "--etcd", "http://127.0.0.1:1", "--auth-file", os.DevNull}, "--auth-file needs --client-tls allow or require"},
		"doctor's too":     {[]string{"doctor", "--upstream", "postgres://u@127.0.0.1/app", "--etcd", "http://127.0.0.1:1", "--auth-file", "x"}, "--auth-file needs --client-tls allow or require"},
		"bad duration":     {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--claim-timeout", "5"}, `--claim-timeout: bad value "5": a duration`},
		"zero duration":    {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--evict-after", "0s"}, `--evict-after: bad value "0s"`},
		"bad address":      {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--listen", "6433"}, `--listen: bad value "6433": host:port`},
		"bad level":        {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--log-level", "loud"}, "one of debug, info, warn, error"},
		"bad endpoint":     {[]string{"lock", "k", "--etcd", "http://h", "--", "true"}, `--etcd: bad value "http://h"`},
		"bad dsn":          {[]string{"serve", "--etcd", "http://127.0.0.1:1", "--upstream", "nonsense"}, "--upstream: bad value: postgres://"},
		"ports":            {[]string{"serve", "--etcd", "http://127.0.0.1:1", "--upstream", "host=a,b port=1,2,3"}, "--upstream: bad value: port: as many ports as hosts"},
		"evict over claim": {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--evict-after", "9s"}, "--evict-after (9s) must be below --claim-timeout (5s)"},
		"prefix":           {[]string{"serve", "--upstream", "postgres://u@a/app", "--etcd", "http://127.0.0.1:1", "--lock-prefix", "/locks"}, "must end in /"},
		"lock no key":      {[]string{"lock", "--", "true"}, "KEY is missing"},
		"lock no dash":     {[]string{"lock", "k", "true"}, "stands after --"},
		"lock no command":  {[]string{"lock", "k"}, "CMD is missing"},
		"lock empty key":   {[]string{"lock", "", "--", "true"}, "lock: KEY is empty"},
		"lock long key":    {[]string{"lock", strings.Repeat("k", 2049), "--", "true"}, "lock: KEY: a key of 2049 bytes is over the limit of 2048\n"},
		"lock short ttl":   {[]string{"lock", "k", "--ttl", "100ms", "--", "true"}, `--ttl: bad value "100ms": a duration of 1s or more`},
		"lock no etcd":     {[]string{"lock", "k", "--", "true"}, "--etcd is missing"},
		"etcd abroad":      {[]string{"serve", "--upstream", "postgres://u@a/app", "--embed-etcd", "x", "--etcd-listen", "0.0.0.0:0"}, `--etcd-listen: bad value "0.0.0.0:0": an address on loopback`},
		"dev etcd abroad":  {[]string{"dev", "--etcd-listen", "0.0.0.0:0"}, `--etcd-listen: bad value "0.0.0.0:0": an address on loopback`},
		"dev port":         {[]string{"dev", "--postgres-port", "99999"}, "--postgres-port: bad value \"99999\": a port from 0 to 65535 is expected\n"},
		"bool":             {[]string{"demo", "--all=some"}, "--all: bad value \"some\": true or false is expected\n"},
		"help unknown":     {[]string{"help", "nosuch"}, `unknown command "nosuch"`},
		"lock on lost":     {[]string{"lock", "k", "--on-lost", "trem", "--", "true"}, `--on-lost: bad value "trem": one of term, kill, ignore is expected`},
		"shell":            {[]string{"completion", "bsh"}, `completion: no script for "bsh"; did you mean bash? there are bash, `},
		"no shell":         {[]string{"completion"}, "completion: the shell is missing"},
		"help nearly":      {[]string{"help", "lokc"}, `unknown command "lokc"; did you mean lock?`},
		"flag nearly":      {[]string{"lock", "k", "--on-lots", "kill", "--", "true"}, "unknown flag: --on-lots; did you mean --on-lost?"},
		"demo unknown":     {[]string{"demo", "nope"}, `no scenario "nope"; fenceproxy demo --list lists them`},
		"demo nearly":      {[]string{"demo", "paused-hol"}, `no scenario "paused-hol"; did you mean paused-holder? fenceproxy demo --list`},
		"another's name":   {[]string{"start"}, `unknown command "start"; did you mean serve?`},
		"begun":            {[]string{"serve", "--drain", "1s"}, "unknown flag: --drain; did you mean --drain-timeout?"},
		"usage":            {[]string{"explain"}, "fenceproxy: explain: SQL, a FILE or a CODE is missing; usage: fenceproxy explain SQL|FILE|CODE|- [flags]"},
		"lock's usage":     {[]string{"lock"}, "usage: fenceproxy lock KEY [flags] -- CMD [ARG…]"},
		"a code's name":    {[]string{"explain", "stale_tokn"}, "there is no refusal called stale_tokn; did you mean stale_token?"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, c.args...)
			if code != 2 || stdout != "" {
				t.Errorf("got exit %d, stdout %q, want 2 and nothing", code, stdout)
			}
			if !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got stderr %q, want one line with %q", stderr, c.want)
			}
		})
	}
}

func TestRun_Help(t *testing.T) {
	for _, args := range [][]string{{"help", "lock"}, {"lock", "--help"}} {
		code, stdout, stderr := program(t, nil, args...)
		if code != 0 || !strings.Contains(stdout, "fenceproxy lock KEY") || stderr != "" {
			t.Errorf("%v: got exit %d, %q, %q, want 0 and lock's help", args, code, stdout, stderr)
		}
	}
}

// Each command that people are told of stands in a group, and what flags mean ends where
// the terminal does.
func TestRun_HelpFits(t *testing.T) {
	root := newRoot(environment{lookup: os.LookupEnv, width: 100})
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.GroupID == "" && !slices.Contains([]string{"version", "completion"}, cmd.Name()) {
			t.Errorf("%s is in no group", cmd.Name())
		}
		for line := range strings.Lines(cmd.UsageString()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 100 && strings.HasPrefix(line, "    ") {
				t.Errorf("%s: %d columns: %s", cmd.Name(), n, line)
			}
		}
	}
	if help := root.UsageString(); !strings.Contains(help, "To work under a lock:\n  lock ") {
		t.Errorf("got %s, want the groups", help)
	}
}

func TestRun_Version(t *testing.T) {
	_, want, _ := program(t, nil, "version")
	for _, arg := range []string{"version", "--version"} {
		code, stdout, stderr := program(t, nil, arg)
		if code != 0 || !strings.HasPrefix(stdout, "fenceproxy ") || stdout != want || stderr != "" {
			t.Errorf("%s: got exit %d, %q, %q", arg, code, stdout, stderr)
		}
	}
}
