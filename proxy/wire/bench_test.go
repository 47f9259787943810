package wire_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// endless gives the same bytes again and again.
type endless struct {
	data []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.data[e.at:])
	if e.at += n; e.at == len(e.data) {
		e.at = 0
	}
	return n, nil
}

// A trip is what a prepared statement's round trip sends one way.
func trip(row int) []byte {
	return bytes.Join([][]byte{message('2', 0), message('D', row), message('C', 9), message('Z', 1)}, nil)
}

// relay moves one message.
func relay(r *wire.Reader, w *wire.Writer) error {
	if _, _, err := r.Next(); err != nil {
		return err
	}
	if err := r.Forward(w); err != nil {
		return err
	}
	if !r.Complete() {
		return w.Flush()
	}
	return nil
}

func BenchmarkRelay(b *testing.B) {
	for name, row := range map[string]int{"row=30": 30, "row=1k": 1 << 10, "row=64k": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			data := trip(row)
			r, w := wire.NewReader(&endless{data: data}), wire.NewWriter(io.Discard)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				for range 4 {
					if err := relay(r, w); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	data := message('Q', 60)
	r := wire.NewReader(&endless{data: data})
	b.ReportAllocs()
	for b.Loop() {
		if _, n, err := r.Next(); err != nil {
			b.Fatal(err)
		} else if _, err := r.Read(n); err != nil {
			b.Fatal(err)
		}
	}
}

// Relaying allocates nothing per message.
func TestReader_RelayAllocates(t *testing.T) {
	r, w := wire.NewReader(&endless{data: trip(100)}), wire.NewWriter(io.Discard)
	got := testing.AllocsPerRun(1000, func() {
		if err := relay(r, w); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations per message, want 0", got)
	}
}
