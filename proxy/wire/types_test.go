package wire_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

func TestInt(t *testing.T) {
	for in, want := range map[string]int64{
		"\xff\xfe": -2, "\x00\x00\x01\x00": 256, "\xff\xff\xff\xff\xff\xff\xff\xff": -1, "\x00\x00\x00\x01\x00\x00\x00\x00": 1 << 32,
	} {
		if got, ok := wire.Int([]byte(in)); got != want || !ok {
			t.Errorf("%q: got %d, %t, want %d", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "\x01", "\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x00\x01"} {
		if got, ok := wire.Int([]byte(in)); ok {
			t.Errorf("%q: got %d, want none", in, got)
		}
	}
}
