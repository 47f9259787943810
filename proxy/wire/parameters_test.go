package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

func TestReadTypes(t *testing.T) {
	for _, c := range []struct {
		name, rest string
		want       []uint32
	}{
		{"none", "\x00\x00", []uint32{}},
		{"two", "\x00\x02\x00\x00\x00\x19\x00\x00\x04\x13", []uint32{25, 1043}},
		{"nothing", "", nil},
		{"fewer than announced", "\x00\x02\x00\x00\x00\x19\x00\x00", nil},
		{"far fewer", "\xff\xff\x00\x00\x00\x19", nil},
	} {
		if diff := cmp.Diff(c.want, wire.ReadTypes([]byte(c.rest))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestReadParameters(t *testing.T) {
	text := func(s string) wire.Parameter { return wire.Parameter{Value: []byte(s)} }
	binary := func(s string) wire.Parameter { return wire.Parameter{Value: []byte(s), Binary: true} }
	const ab = "\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x01b"
	for _, c := range []struct {
		name, rest string
		want       []wire.Parameter
	}{
		{"none", "\x00\x00\x00\x00\x00\x00", []wire.Parameter{}},
		{"text", "\x00\x00" + ab + "\x00\x00", []wire.Parameter{text("a"), text("b")}},
		{"one format for all", "\x00\x01\x00\x01" + ab, []wire.Parameter{binary("a"), binary("b")}},
		{"a format each", "\x00\x02\x00\x00\x00\x01" + ab, []wire.Parameter{text("a"), binary("b")}},
		{"NULL and empty", "\x00\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00", []wire.Parameter{{}, text("")}},
		{"nothing", "", nil},
		{"a value that is cut off", "\x00\x00" + ab[:len(ab)-1], nil},
		{"a value that is missing", "\x00\x00\x00\x03" + ab[2:], nil},
		{"a length that is cut off", "\x00\x00\x00\x01\x00\x00", nil},
		{"more formats than bytes", "\xff\xff\x00\x01", nil},
		{"more values than bytes", "\x00\x00\xff\xff\x00\x00\x00\x01a", nil},
		{"a length beyond everything", "\x00\x00\x00\x01\x7f\xff\xff\xffa", nil},
	} {
		if diff := cmp.Diff(c.want, wire.ReadParameters([]byte(c.rest))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
