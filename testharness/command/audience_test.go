package command_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

func TestAudience(t *testing.T) {
	var heard strings.Builder
	read, write := io.Pipe()
	for _, c := range []struct {
		name string
		to   io.Writer
		want error
	}{
		{"somebody listens", &heard, nil},
		{"nobody listens any more", write, io.ErrClosedPipe},
	} {
		t.Run(c.name, func(t *testing.T) {
			read.Close()
			ctx, out, stop := command.Audience(t.Context(), c.to)
			if _, err := io.WriteString(out, "hello"); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got := context.Cause(ctx); !errors.Is(got, c.want) {
				t.Errorf("the context: got %v, want %v", got, c.want)
			}
			if stop(); ctx.Err() == nil {
				t.Error("behind stop: got a context that lives, want one that has ended")
			}
		})
	}
	if got := heard.String(); got != "hello" {
		t.Errorf("got %q, want hello", got)
	}
}
