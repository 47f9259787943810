package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/command"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func main() { command.Main("browser", run) }

// options are what the command line says.
type options struct {
	program string // fenceproxy
	scripts string // the folder of the tests
	shots   string // where pictures of the page go
	only    string // a part of the names of the tests to run
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("browser", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.program, "program", "bin/fenceproxy", "the fenceproxy to test")
	flags.StringVar(&o.scripts, "scripts", "testharness/browser/page", "the folder of the tests, with Playwright installed in it")
	flags.StringVar(&o.shots, "shots", "", "a folder for pictures of the page; none are kept without one")
	flags.StringVar(&o.only, "only", "", "run the tests whose name has this in it")
	if flags.Parse(args) != nil || flags.NArg() > 0 {
		return command.ErrUsage
	}
	w, err := newWorld(ctx, o.program)
	if err != nil {
		return err
	}
	defer w.close()
	return o.browse(ctx, w, stdout, stderr)
}

// browse runs the scripts, which ask the world for what they need.
func (o options) browse(ctx context.Context, w *world, stdout, stderr io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the scripts: %w", err)
	}
	secret := rand.Text() // this machine may have other users
	server := &http.Server{Handler: http.StripPrefix("/"+secret, w)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // until it is closed
	}()
	defer func() {
		_ = server.Close()
		<-served
	}()
	shots := o.shots
	if shots != "" {
		if shots, err = filepath.Abs(shots); err == nil {
			err = os.MkdirAll(shots, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make the folder of pictures: %w", err)
		}
	}
	scripts, err := filepath.Glob(filepath.Join(o.scripts, "*.test.js"))
	if err != nil || len(scripts) == 0 {
		return fmt.Errorf("no tests in %s", o.scripts)
	}
	args := []string{"--test", "--test-concurrency=1", "--test-reporter=spec"}
	if o.only != "" {
		args = append(args, "--test-name-pattern="+o.only)
	}
	node := exec.CommandContext(ctx, "node", append(args, scripts...)...)
	node.Stdout, node.Stderr, node.SysProcAttr = stdout, stderr, child.Attributes()
	node.Env = append(os.Environ(), "FENCEPROXY_WORLD=http://"+ln.Addr().String()+"/"+secret, "FENCEPROXY_SHOTS="+shots)
	if err := node.Run(); err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	return nil
}

// newWorld starts the servers, and the proxy that most tests look at.
func newWorld(ctx context.Context, program string) (*world, error) {
	s, err := stack.Start(ctx, stack.Options{})
	if err != nil {
		return nil, err
	}
	w := &world{ctx: ctx, stack: s, program: program, served: map[string]*stack.Process{}, sessions: map[string]*session{}, locks: map[string]*lock{}}
	if err := w.furnish(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}
