package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// FuzzReader compares a Reader with a plain look at the bytes: whatever comes,
// in whatever pieces and by whatever verb, the messages are the same and what
// is forwarded is what came. The stream is one whole message for each byte of
// sizes, which tells its size, and then the tail as it stands.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 3, 180, 255}, []byte{}, []byte{0, 1, 2, 3})
	f.Add([]byte{182}, append(claim('Q', 3), "rest"...), []byte{1})
	f.Add([]byte{181}, claim('d', wire.MaxLength), []byte{2})
	f.Add([]byte{}, []byte("Q\x00\x00\x00"), []byte{})
	f.Fuzz(func(t *testing.T, sizes, tail, choices []byte) {
		var stream []byte
		for _, n := range sizes[:min(len(sizes), 20)] {
			stream = append(stream, message(n, int(n)*int(n)/4)...)
		}
		stream = append(stream, tail...)
		var src io.Reader = bytes.NewReader(stream)
		choice := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := choices[0]
			choices = choices[1:]
			return int(c) % n
		}
		switch choice(4) {
		case 1:
			src = iotest.OneByteReader(src)
		case 2:
			src = iotest.HalfReader(src)
		case 3:
			src = &shaky{src: src}
		}
		r := wire.NewReader(src)
		for rest := stream; ; {
			var typ byte
			var body int
			err := persist(func() (err error) { typ, body, err = r.Next(); return err })
			switch want := peek(rest); {
			case !errors.Is(err, want):
				t.Fatalf("Next: got %v, want %v", err, want)
			case want != nil:
				return
			}
			if typ != rest[0] || body != int(binary.BigEndian.Uint32(rest[1:]))-4 {
				t.Fatalf("got type %q with %d bytes of %q", typ, body, rest[:wire.HeaderLen])
			}
			rest = rest[wire.HeaderLen:]
			name := []string{"Read", "Forward", "Inspect", "Skip"}[choice(4)]
			got, err := verbs[name](r, body)
			if body > len(rest) {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%s of a body cut short: got %v", name, err)
				}
				return
			}
			if err != nil || got != nil && !bytes.Equal(got, rest[:body]) {
				t.Fatalf("%s: got %d bytes, %v, want %d", name, len(got), err, body)
			}
			rest = rest[body:]
		}
	})
}

// peek says what Next should say of the bytes.
func peek(b []byte) error {
	if len(b) == 0 {
		return io.EOF
	}
	if len(b) < wire.HeaderLen {
		return io.ErrUnexpectedEOF
	}
	if n := binary.BigEndian.Uint32(b[1:]); n < 4 || n > wire.MaxLength {
		return wire.ErrLength
	}
	return nil
}

// FuzzReadPacket: a first packet is cut off the stream by its length, whatever
// the pieces that it comes in, and one that can't be is refused before its body
// is waited for.
func FuzzReadPacket(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2frest"), true)
	f.Add([]byte("\x00\x00\x00\x0d\x00\x03\x00\x00user\x00"), false)
	f.Add([]byte("\x00\x00\x00\x07\x00\x03\x00"), false)
	f.Add([]byte("\xff\xff\xff\xff"), true)
	f.Fuzz(func(t *testing.T, stream []byte, pieces bool) {
		var src io.Reader = bytes.NewReader(stream)
		if pieces {
			src = iotest.OneByteReader(src)
		}
		r := wire.NewReader(src)
		got, err := r.ReadPacket(wire.MaxStartupLength)
		if len(stream) < 4 {
			if err == nil {
				t.Errorf("got %q", got)
			}
			return
		}
		n := int(binary.BigEndian.Uint32(stream))
		switch possible := n >= 8 && n <= wire.MaxStartupLength; {
		case !possible:
			if !errors.Is(err, wire.ErrLength) {
				t.Errorf("length %d: got %q, %v, want %v", n, got, err, wire.ErrLength)
			}
		case n > len(stream):
			if err == nil {
				t.Errorf("got %q of a packet of %d bytes", got, n)
			}
		case err != nil || !bytes.Equal(got, stream[:n]):
			t.Errorf("got %q, %v, want %q", got, err, stream[:n])
		default:
			rest, err := io.ReadAll(io.MultiReader(bytes.NewReader(r.Rest()), src))
			if err != nil || !bytes.Equal(rest, stream[n:]) {
				t.Errorf("behind the packet: got %q, %v, want %q", rest, err, stream[n:])
			}
		}
	})
}

// FuzzReadStartup: parameters that were read, put together again, are read as
// the same, and a packet is taken only if it ends as PostgreSQL wants it.
func FuzzReadStartup(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x03\x00\x00user\x00me\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x03\x00\x00user"))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		params, err := wire.ReadStartup(packet)
		if err != nil {
			if !errors.Is(err, wire.ErrLength) || params != nil {
				t.Errorf("got %v with %v", err, params)
			}
			return
		}
		if !bytes.HasSuffix(packet, []byte{0}) {
			t.Errorf("%q has no terminator and was taken", packet)
		}
		again := packet[:8:8]
		for name, value := range params {
			if name == "" {
				t.Errorf("%q: an empty name", packet)
			}
			again = append(append(append(append(again, name...), 0), value...), 0)
		}
		got, err := wire.ReadStartup(append(again, 0))
		if err != nil || len(got) != len(params) {
			t.Errorf("read again: got %q, %v, want %q", got, err, params)
		}
	})
}

// FuzzReadRow: no body breaks what reads a row, and what was read of one, put
// together again, is read as the same.
func FuzzReadRow(f *testing.F) {
	f.Add([]byte("\x00\x02\x00\x00\x00\x02ab\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x01\xff\xff\xff\xfe"))
	f.Add([]byte("\xff\xff\x80\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		row, err := wire.ReadRow(body)
		if err != nil {
			if !errors.Is(err, wire.ErrLength) || row != nil {
				t.Errorf("got %q with %v", row, err)
			}
			return
		}
		values := make([][]byte, len(row))
		for i, v := range row {
			values[i] = []byte(v)
		}
		again, err := wire.ReadRow(wire.AppendRow(nil, values)[wire.HeaderLen:])
		if err != nil || !slices.Equal(again, row) {
			t.Errorf("read again: got %q, %v, want %q", again, err, row)
		}
	})
}

// FuzzErrorFields: no body breaks what edits error messages; each result is
// one well-framed message, and an edit that changes nothing changes nothing.
func FuzzErrorFields(f *testing.F) {
	f.Add([]byte(report))
	f.Add([]byte("P17\x00"))
	f.Add([]byte("SERROR\x00\x00x"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		_, readable := wire.ReadReport(body)
		for name, got := range map[string][]byte{
			"same":    wire.WithPosition(nil, wire.ErrorResponse, body, func(p int) int { return p }),
			"moved":   wire.WithPosition(nil, wire.ErrorResponse, body, func(p int) int { return p - 7 }),
			"without": wire.WithoutContext(nil, body),
		} {
			r := wire.NewReader(bytes.NewReader(got))
			typ, n := next(t, r)
			if typ != wire.ErrorResponse || n != len(got)-wire.HeaderLen {
				t.Errorf("%s: got type %q with %d of %d bytes", name, typ, n, len(got)-wire.HeaderLen)
			}
			if _, err := wire.ReadReport(got[wire.HeaderLen:]); (err == nil) != (readable == nil) {
				t.Errorf("%s: the body was read with %v, the result with %v", name, readable, err)
			}
			if name == "without" && bytes.HasSuffix(body, []byte{0}) && readable == nil {
				if again := wire.WithoutContext(nil, got[wire.HeaderLen:]); !bytes.Equal(again, got) {
					t.Errorf("taking the context out twice: got %q, want %q", again, got)
				}
			}
		}
	})
}
