package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Audience returns a writer to out, and a context that ends when out can't be
// written to any more: whoever read it has gone, as head does. Until stop is called
// SIGPIPE doesn't end the process, which has something to clear up. The signal
// isn't ignored, or the processes that this one starts would ignore it too.
func Audience(ctx context.Context, out io.Writer) (listening context.Context, to io.Writer, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE) // it comes for any connection that breaks, and nobody looks
	listening, leave := context.WithCancelCause(ctx)
	return listening, &audience{to: out, leave: leave}, func() {
		signal.Stop(signals)
		leave(context.Canceled)
	}
}

type audience struct {
	to    io.Writer
	leave context.CancelCauseFunc
}

func (a *audience) Write(p []byte) (int, error) {
	n, err := a.to.Write(p)
	if err != nil {
		a.leave(fmt.Errorf("tell how it goes: %w", err))
	}
	return n, err
}
