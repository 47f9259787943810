package chaos

import (
	"context"
	"fmt"
	"io"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// The processes that Run starts of its own program.
const (
	roleMember = "etcd"
	roleWorker = "worker"
)

// Serve is what a process does that Run has started: args are what stands
// behind Options.Self on its command line. It returns when its input ends.
func Serve(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == roleMember:
		return stack.ServeMember(ctx, args[1], in, out)
	case len(args) == 1 && args[0] == roleWorker:
		return work(ctx, in, out)
	default:
		return fmt.Errorf("%q is no process of a chaos run", args)
	}
}
