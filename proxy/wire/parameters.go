package wire

import "encoding/binary"

// A Parameter is one that a Bind gives.
type Parameter struct {
	Value  []byte // nil is NULL; valid as long as the body is
	Binary bool
}

// ReadTypes returns the types that a Parse gives to parameters, 0 for none,
// from its body behind the text; nil if they aren't all there.
func ReadTypes(rest []byte) []uint32 {
	c := fields{rest: rest}
	n := c.int16()
	if n > len(rest)/4 {
		return nil
	}
	types := make([]uint32, n)
	for i := range types {
		types[i] = uint32(c.int32())
	}
	if c.short {
		return nil
	}
	return types
}

// ReadParameters returns the parameters of a Bind, from its body behind the
// names; nil if they aren't all there.
func ReadParameters(rest []byte) []Parameter {
	c := fields{rest: rest}
	return c.parameters()
}

// ReadBind returns the parameters of a Bind and the formats that its result is
// asked for in, true for binary: none, one for all columns, or one for each. ok is
// false if they aren't all there, or something follows.
func ReadBind(rest []byte) (parameters []Parameter, binary []bool, ok bool) {
	c := fields{rest: rest}
	if parameters = c.parameters(); parameters == nil {
		return nil, nil, false
	}
	binary = c.formats()
	return parameters, binary, !c.short && len(c.rest) == 0
}

// formats reads a list of format codes; nil if it isn't all there.
func (f *fields) formats() []bool {
	n := f.int16()
	if n > len(f.rest)/2 {
		f.short = true
		return nil
	}
	binary := make([]bool, n)
	for i := range binary {
		binary[i] = f.int16() == 1
	}
	return binary
}

// parameters reads the parameters of a Bind, with their formats.
func (f *fields) parameters() []Parameter {
	formats := f.formats()
	n := f.int16()
	if f.short || n > len(f.rest)/4 {
		return nil
	}
	values := make([]Parameter, n)
	for i := range values {
		v := &values[i]
		if n := f.int32(); n >= 0 {
			v.Value = f.bytes(int(n))
		}
		switch {
		case len(formats) == 1:
			v.Binary = formats[0]
		case i < len(formats):
			v.Binary = formats[i]
		}
	}
	if f.short {
		return nil
	}
	return values
}

// fields reads the fields of a body one after the other.
type fields struct {
	rest  []byte
	short bool // it ended before a field did
}

// bytes returns the next n bytes, never nil unless there are fewer.
func (f *fields) bytes(n int) []byte {
	if n > len(f.rest) {
		f.short, f.rest = true, nil
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) int16() int {
	if b := f.bytes(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (f *fields) int32() int32 {
	if b := f.bytes(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}
