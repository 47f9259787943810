package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// bodies are sizes around every edge that a Reader has.
var bodies = []int{
	0, 1, 4, 255,
	wire.DefaultBuffer - wire.HeaderLen - 1, wire.DefaultBuffer - wire.HeaderLen, wire.DefaultBuffer - wire.HeaderLen + 1,
	wire.DefaultBuffer, 2*wire.DefaultBuffer + 3, 30_000,
}

// message makes a message of n bytes whose body tells its place.
func message(t byte, n int) []byte {
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i*7 + int(t))
	}
	return wire.Frame(nil, t, body)
}

// claim is a header whose length field is what a peer says it is.
func claim(t byte, length uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{t}, length)
}

// cuts are ways in which a stream can arrive.
var cuts = map[string]func(io.Reader) io.Reader{
	"at once":          func(r io.Reader) io.Reader { return r },
	"byte by byte":     iotest.OneByteReader,
	"by halves":        iotest.HalfReader,
	"error with data":  iotest.DataErrReader,
	"often cut short":  func(r io.Reader) io.Reader { return &shaky{src: r} },
	"cut at each byte": func(r io.Reader) io.Reader { return &shaky{src: iotest.OneByteReader(r)} },
}

// A shaky connection's deadline passes before every second read.
type shaky struct {
	src  io.Reader
	odd  bool
	cuts int
}

func (s *shaky) Read(p []byte) (int, error) {
	if s.odd = !s.odd; s.odd {
		s.cuts++
		return 0, os.ErrDeadlineExceeded
	}
	return s.src.Read(p)
}

// persist calls a method of a Reader until no deadline cuts it short.
func persist(f func() error) error {
	for {
		if err := f(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// A verb consumes the announced message and returns what it saw of the body;
// nil means that it doesn't tell.
type verb func(r *wire.Reader, body int) ([]byte, error)

var verbs = map[string]verb{
	"Read": func(r *wire.Reader, body int) (got []byte, err error) {
		err = persist(func() error { got, err = r.Read(body); return err })
		return got, err
	},
	"Forward": func(r *wire.Reader, _ int) ([]byte, error) {
		var out bytes.Buffer
		w := wire.NewWriter(&out)
		if err := persist(func() error { return r.Forward(w) }); err != nil {
			return nil, err
		}
		err := w.Flush()
		return out.Bytes()[wire.HeaderLen:], err
	},
	"Inspect": func(r *wire.Reader, _ int) ([]byte, error) {
		got := []byte{}
		w := wire.NewWriter(io.Discard)
		err := persist(func() error {
			return r.Inspect(w, func(chunk []byte) error { got = append(got, chunk...); return nil })
		})
		return got, err
	},
	"Skip": func(r *wire.Reader, _ int) ([]byte, error) { return nil, persist(r.Skip) },
}

func TestReader_Messages(t *testing.T) {
	for cut, arrive := range cuts {
		for name, consume := range verbs {
			t.Run(name+"/"+cut, func(t *testing.T) {
				var stream []byte
				for i, n := range bodies {
					stream = append(stream, message('a'+byte(i), n)...)
				}
				r := wire.NewReader(arrive(bytes.NewReader(stream)))
				for i, n := range bodies {
					typ, body := next(t, r)
					if want := 'a' + byte(i); typ != want || body != n {
						t.Fatalf("message %d: got type %q with %d bytes, want %q with %d", i, typ, body, want, n)
					}
					if !r.Announced() {
						t.Error("not announced after Next")
					}
					got, err := consume(r, body)
					if err != nil {
						t.Fatalf("message %d: %v", i, err)
					}
					if want := message(typ, n)[wire.HeaderLen:]; got != nil && !bytes.Equal(got, want) {
						t.Fatalf("message %d: got a body of %d bytes, want the %d that were sent", i, len(got), len(want))
					}
					if r.Announced() {
						t.Error("still announced after it was consumed")
					}
				}
				if err := persist(func() error { _, _, err := r.Next(); return err }); err != io.EOF {
					t.Errorf("at the end: got %v, want EOF", err)
				}
			})
		}
	}
}

// next calls Next, and calls it again to see that it doesn't consume.
func next(t *testing.T, r *wire.Reader) (typ byte, body int) {
	t.Helper()
	for range 2 {
		err := persist(func() (err error) { typ, body, err = r.Next(); return err })
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
	}
	return typ, body
}

func TestReader_Prefix(t *testing.T) {
	for cut, arrive := range cuts {
		t.Run(cut, func(t *testing.T) {
			var stream []byte
			for _, n := range bodies {
				stream = append(stream, message('Q', n)...)
			}
			r := wire.NewReader(arrive(bytes.NewReader(stream)))
			for _, n := range bodies {
				next(t, r)
				var got []byte
				if err := persist(func() (err error) { got, err = r.Prefix(); return err }); err != nil {
					t.Fatal(err)
				}
				want := message('Q', n)[wire.HeaderLen:]
				want = want[:min(n, wire.DefaultBuffer-wire.HeaderLen)]
				if !bytes.Equal(got, want) {
					t.Errorf("body of %d bytes: got a prefix of %d, want %d", n, len(got), len(want))
				}
				var out bytes.Buffer
				w := wire.NewWriter(&out)
				if err := persist(func() error { return r.Forward(w) }); err != nil {
					t.Fatal(err)
				}
				w.Flush()
				if !bytes.Equal(out.Bytes(), message('Q', n)) {
					t.Errorf("body of %d bytes: what was forwarded after Prefix differs", n)
				}
			}
		})
	}
}

func TestReader_Complete(t *testing.T) {
	first, second := message('a', 10), message('b', wire.DefaultBuffer)
	src := &feed{}
	r := wire.NewReader(src)
	if r.Complete() {
		t.Error("complete before a byte has come")
	}
	for i := range first {
		src.give(first[i : i+1])
		if _, _, err := r.Next(); err == nil {
			r.Prefix()
		}
		if got, want := r.Complete(), i+1 == len(first); got != want {
			t.Errorf("after %d of %d bytes: got %v, want %v", i+1, len(first), got, want)
		}
	}
	r.Skip()
	src.give(second)
	next(t, r)
	r.Prefix()
	if r.Complete() {
		t.Error("a message that doesn't fit the buffer is complete")
	}
}

// A feed gives what it was given, then says that the deadline has passed.
type feed struct{ bytes.Buffer }

func (f *feed) give(b []byte) { f.Write(b) }

func (f *feed) Read(p []byte) (int, error) {
	if f.Len() == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return f.Buffer.Read(p)
}

// Lengths that PostgreSQL doesn't take either, and none of them costs memory.
func TestReader_HostileLengths(t *testing.T) {
	for _, length := range []uint32{0, 1, 3, wire.MaxLength + 1, 1 << 31, 1<<32 - 1} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			stream := append(claim('Q', length), "some bytes"...)
			r := wire.NewReader(bytes.NewReader(stream))
			r.Complete()
			typ, _, err := r.Next()
			if !errors.Is(err, wire.ErrLength) || typ != 'Q' {
				t.Errorf("got type %q, %v, want 'Q', %v", typ, err, wire.ErrLength)
			}
			if r.Announced() {
				t.Error("a message that was refused is announced")
			}
			if got, want := r.Header(), stream[:wire.HeaderLen]; !bytes.Equal(got, want) {
				t.Errorf("header: got %x, want %x", got, want)
			}
		})
	}
}

// A server may send a little more than a client may.
func TestReader_ServerLengths(t *testing.T) {
	for length, want := range map[uint32]error{
		3: wire.ErrLength, wire.MaxLength + 1: nil, wire.MaxServerLength: nil, wire.MaxServerLength + 1: wire.ErrLength,
	} {
		_, body, err := wire.NewServerReader(bytes.NewReader(claim('D', length))).Next()
		if !errors.Is(err, want) || err == nil && body != int(length)-4 {
			t.Errorf("%d: got a body of %d bytes, %v, want %v", length, body, err, want)
		}
	}
}

func TestReader_ClaimsCostNoMemory(t *testing.T) {
	const arrived = 100_000
	for name, consume := range verbs {
		t.Run(name, func(t *testing.T) {
			stream := append(claim('d', wire.MaxLength), make([]byte, arrived)...)
			got := allocated(func() {
				r := wire.NewReader(bytes.NewReader(stream))
				_, body := next(t, r)
				if body != wire.MaxLength-4 {
					t.Errorf("got a body of %d bytes, want %d", body, wire.MaxLength-4)
				}
				if _, err := consume(r, body); err != io.ErrUnexpectedEOF {
					t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
				}
			})
			if most := uint64(10 * arrived); got > most {
				t.Errorf("allocated %d bytes for %d that arrived, want at most %d", got, arrived, most)
			}
		})
	}
	t.Run("ReadPacket", func(t *testing.T) {
		stream := append(binary.BigEndian.AppendUint32(nil, wire.MaxLength), make([]byte, 8)...)
		got := allocated(func() {
			if _, err := wire.NewReader(bytes.NewReader(stream)).ReadPacket(wire.MaxLength); err != io.ErrUnexpectedEOF {
				t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
			}
		})
		if got > 100_000 {
			t.Errorf("allocated %d bytes for 12 that arrived", got)
		}
	})
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestReader_ReadLimit(t *testing.T) {
	for _, n := range []int{1, 100_000} {
		r := wire.NewReader(bytes.NewReader(append(message('Q', n), message('S', 0)...)))
		next(t, r)
		if _, err := r.Read(n - 1); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("%d bytes, one over the limit: got %v, want %v", n, err, wire.ErrTooLarge)
		}
		if !r.Announced() {
			t.Error("a body over the limit was consumed")
		}
		if body, err := r.Read(n); err != nil || len(body) != n {
			t.Errorf("at the limit: got %d bytes, %v, want %d", len(body), err, n)
		}
		if typ, _ := next(t, r); typ != 'S' {
			t.Errorf("the next message: got %q, want 'S'", typ)
		}
	}
}

// A stream may end between messages and nowhere else.
func TestReader_Ends(t *testing.T) {
	whole := message('Q', 20)
	for n := range len(whole) + 1 {
		for name, consume := range verbs {
			r := wire.NewReader(bytes.NewReader(whole[:n]))
			_, body, err := r.Next()
			switch {
			case n == 0:
				if err != io.EOF {
					t.Errorf("nothing: got %v, want EOF", err)
				}
				continue
			case n < wire.HeaderLen:
				if err != io.ErrUnexpectedEOF {
					t.Errorf("%d bytes of a header: got %v, want %v", n, err, io.ErrUnexpectedEOF)
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			want := io.ErrUnexpectedEOF
			if n == len(whole) {
				want = nil
			}
			if _, err := consume(r, body); err != want {
				t.Errorf("%s of %d bytes of %d: got %v, want %v", name, n, len(whole), err, want)
			}
		}
	}
}

// A deadline is how a waiting Reader is interrupted; nothing is lost by it.
func TestReader_DeadlineInHeader(t *testing.T) {
	whole := message('Q', 3)
	src := &feed{}
	r := wire.NewReader(src)
	for i := range whole {
		if i < wire.HeaderLen {
			if _, _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("after %d bytes: got %v, want a deadline", i, err)
			}
		}
		src.give(whole[i : i+1])
	}
	if typ, body := next(t, r); typ != 'Q' || body != 3 {
		t.Errorf("got type %q with %d bytes, want 'Q' with 3", typ, body)
	}
}

// What stopped in the middle of a body can be dropped, so that the messages
// after it are found.
func TestReader_SkipRest(t *testing.T) {
	stop := errors.New("stop")
	for _, n := range []int{10, 100_000} {
		for name, begin := range map[string]func(*wire.Reader) error{
			"look": func(r *wire.Reader) error {
				return r.Inspect(wire.NewWriter(io.Discard), func([]byte) error { return stop })
			},
			"write": func(r *wire.Reader) error {
				err := r.Forward(brokenWriter(stop))
				if n == 10 && err == nil {
					err = stop // it was small enough to be gathered
				}
				return err
			},
			"header": func(r *wire.Reader) error {
				w := brokenWriter(stop)
				w.Write(make([]byte, wire.DefaultBuffer-1))
				return r.Forward(w)
			},
			"nothing": func(*wire.Reader) error { return stop },
		} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				r := wire.NewReader(bytes.NewReader(append(message('d', n), message('S', 0)...)))
				next(t, r)
				if err := begin(r); !errors.Is(err, stop) {
					t.Fatalf("got %v, want %v", err, stop)
				}
				if r.Announced() {
					if err := r.Skip(); err != nil {
						t.Fatal(err)
					}
				}
				if typ, body := next(t, r); typ != 'S' || body != 0 {
					t.Errorf("the next message: got %q with %d bytes, want 'S' with none", typ, body)
				}
			})
		}
	}
}

func brokenWriter(err error) *wire.Writer { return wire.NewWriter(failing{err}) }

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Chunks that look sees are the body in order, however it arrives.
func TestReader_InspectError(t *testing.T) {
	stop := errors.New("stop")
	var out bytes.Buffer
	w := wire.NewWriter(&out)
	stream := message('Q', 50_000)
	r := wire.NewReader(iotest.HalfReader(bytes.NewReader(stream)))
	next(t, r)
	seen := 0
	err := r.Inspect(w, func(chunk []byte) error {
		if seen += len(chunk); seen > 20_000 {
			return stop
		}
		return nil
	})
	if err != stop {
		t.Fatalf("got %v, want %v", err, stop)
	}
	w.Flush()
	if n := out.Len(); n > wire.HeaderLen+20_000 || !bytes.Equal(out.Bytes(), stream[:n]) {
		t.Errorf("written: %d bytes, want a beginning of the message without the chunk that was refused", n)
	}
}

func TestReader_ReadPacket(t *testing.T) {
	packet := func(length uint32, rest string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, length), rest...)
	}
	const most = wire.MaxStartupLength
	long := strings.Repeat("x", most-4)
	for _, c := range []struct {
		name   string
		stream []byte
		want   error
	}{
		{"smallest", packet(8, "code"), nil},
		{"at the limit", packet(most, long), nil},
		{"over the limit", packet(most+1, long+"x"), wire.ErrLength},
		{"without a code", packet(7, "cod"), wire.ErrLength},
		{"zero", packet(0, "code"), wire.ErrLength},
		{"negative", packet(1<<31, "code"), wire.ErrLength},
		{"an HTTP request", []byte("GET / HTTP/1.1\r\n\r\n"), wire.ErrLength},
		{"nothing", nil, io.EOF},
		{"half a length", packet(8, "")[:2], io.ErrUnexpectedEOF},
		{"half a code", packet(8, "co"), io.ErrUnexpectedEOF},
		{"half of it", packet(most, long[:3000]), io.ErrUnexpectedEOF},
	} {
		for cut, arrive := range map[string]func(io.Reader) io.Reader{
			"at once": cuts["at once"], "byte by byte": iotest.OneByteReader,
		} {
			t.Run(c.name+"/"+cut, func(t *testing.T) {
				stream := c.stream
				if c.want == nil {
					stream = append(stream[:len(stream):len(stream)], message('p', 3)...)
				}
				r := wire.NewReader(arrive(bytes.NewReader(stream)))
				got, err := r.ReadPacket(most)
				if !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				if err != nil {
					return
				}
				if !bytes.Equal(got, c.stream) {
					t.Errorf("got a packet of %d bytes, want the %d that were sent", len(got), len(c.stream))
				}
				if typ, body := next(t, r); typ != 'p' || body != 3 {
					t.Errorf("the message after it: got %q with %d bytes, want 'p' with 3", typ, body)
				}
			})
		}
	}
}

// Several packets come before the first message of a session: requests for
// encryption, then the startup packet, all in one segment or not.
func TestReader_ReadPackets(t *testing.T) {
	request := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, wire.CodeSSL)
	startup := append([]byte{0, 0, 0, 17, 0, 3, 0, 0}, "user\x00me\x00\x00"...)
	startup[3] = byte(len(startup))
	r := wire.NewReader(bytes.NewReader(bytes.Join([][]byte{request, startup, message('Q', 9)}, nil)))
	for _, want := range [][]byte{request, startup} {
		if got, err := r.ReadPacket(wire.MaxStartupLength); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if typ, body := next(t, r); typ != 'Q' || body != 9 {
		t.Errorf("got %q with %d bytes, want 'Q' with 9", typ, body)
	}
}
