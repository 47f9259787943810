package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A counter keeps what was written, and in how many pieces.
type counter struct {
	bytes.Buffer
	writes int
}

func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	return c.Buffer.Write(p)
}

func TestWriter_Write(t *testing.T) {
	const room = wire.DefaultBuffer
	for _, c := range []struct {
		name   string
		sizes  []int
		before int // writes before Flush
		after  int
	}{
		{"nothing", nil, 0, 0},
		{"small ones are gathered", []int{1, 2, 3}, 0, 1},
		{"exactly full", []int{room - 1, 1}, 0, 1},
		{"over", []int{room - 1, 2}, 1, 2},
		{"large ones pass", []int{room, room + 1}, 2, 2},
		{"order is kept around a large one", []int{5, 3 * room, 5}, 2, 3},
		{"empty ones", []int{0, room + 1, 0, 0}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out counter
			var want []byte
			w := wire.NewWriter(&out)
			for i, n := range c.sizes {
				p := bytes.Repeat([]byte{byte('a' + i)}, n)
				want = append(want, p...)
				if err := w.Write(p); err != nil {
					t.Fatal(err)
				}
			}
			if out.writes != c.before {
				t.Errorf("writes before Flush: got %d, want %d", out.writes, c.before)
			}
			if got, want := w.Empty(), len(want) == out.Len(); got != want {
				t.Errorf("Empty: got %v, want %v", got, want)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if out.writes != c.after || !w.Empty() {
				t.Errorf("writes after Flush: got %d, empty %v, want %d, true", out.writes, w.Empty(), c.after)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Error("what was written differs from what was given")
			}
		})
	}
}

// A Writer keeps no reference to what it was given.
func TestWriter_CopiesWhatItGathers(t *testing.T) {
	var out bytes.Buffer
	w := wire.NewWriter(&out)
	p := []byte("before")
	w.Write(p)
	copy(p, "after ")
	w.Flush()
	if got, want := out.String(), "before"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriter_FirstErrorSticks(t *testing.T) {
	first := errors.New("first")
	for _, n := range []int{1, 2 * wire.DefaultBuffer} {
		dst := &failingOnce{err: first}
		w := wire.NewWriter(dst)
		w.Write(make([]byte, n))
		for range 2 {
			if err := w.Flush(); err != first {
				t.Errorf("Flush: got %v, want %v", err, first)
			}
			if err := w.Write([]byte("x")); err != first {
				t.Errorf("Write: got %v, want %v", err, first)
			}
		}
		if dst.writes != 1 {
			t.Errorf("%d writes to a socket that failed, want 1", dst.writes)
		}
	}
}

// failingOnce fails its first write only.
type failingOnce struct {
	err    error
	writes int
}

func (f *failingOnce) Write(p []byte) (int, error) {
	if f.writes++; f.writes == 1 {
		return 0, f.err
	}
	return len(p), nil
}

func TestWriter_WriteMessage(t *testing.T) {
	for _, before := range []int{0, 1, wire.DefaultBuffer - 6, wire.DefaultBuffer - 5, wire.DefaultBuffer - 4, wire.DefaultBuffer} {
		for _, n := range []int{0, 1, 100, wire.DefaultBuffer - wire.HeaderLen, wire.DefaultBuffer, 3 * wire.DefaultBuffer} {
			var out counter
			w := wire.NewWriter(&out)
			want := bytes.Repeat([]byte("-"), before)
			w.Write(want)
			want = append(want, message('Q', n)...)
			if err := w.WriteMessage('Q', message('Q', n)[wire.HeaderLen:]); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if got := out.Bytes(); !bytes.Equal(got, want) {
				t.Errorf("%d bytes, then a body of %d: got %d bytes, want %d that are the same", before, n, len(got), len(want))
			}
		}
	}
}
