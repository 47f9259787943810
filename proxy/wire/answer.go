package wire

import (
	"encoding/binary"
	"fmt"
)

// What a server sends, for sessions that the proxy answers itself. PostgreSQL:
// "Message Formats" in protocol.sgml.

// Protocol3 is the version 3.0 of the protocol.
const Protocol3 uint32 = 3 << 16

// AppendNegotiate appends a NegotiateProtocolVersion that names version 3.0, and
// the options of the startup packet that aren't known.
func AppendNegotiate(dst []byte, unknown []string) []byte {
	body := binary.BigEndian.AppendUint32(nil, Protocol3)
	body = binary.BigEndian.AppendUint32(body, uint32(len(unknown)))
	for _, name := range unknown {
		body = append(append(body, name...), 0)
	}
	return Frame(dst, NegotiateVersion, body)
}

// AppendStatus appends a ParameterStatus.
func AppendStatus(dst []byte, name, value string) []byte {
	return Frame(dst, ParameterStatus, []byte(name), []byte{0}, []byte(value), []byte{0})
}

// AppendKeyData appends a BackendKeyData.
func AppendKeyData(dst, key []byte) []byte { return Frame(dst, BackendKeyData, key) }

// AppendTag appends a CommandComplete.
func AppendTag(dst []byte, tag string) []byte {
	return Frame(dst, CommandComplete, []byte(tag), []byte{0})
}

// A Field is a column of a result.
type Field struct {
	Name   string
	Type   uint32 // OID
	Size   int16  // of the type in bytes, -1 if that varies
	Binary bool
}

// AppendFields appends a RowDescription. The columns belong to no table.
func AppendFields(dst []byte, fields []Field) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(fields)))
	for _, f := range fields {
		body = append(append(body, f.Name...), 0)
		body = binary.BigEndian.AppendUint32(body, 0) // table
		body = binary.BigEndian.AppendUint16(body, 0) // its column
		body = binary.BigEndian.AppendUint32(body, f.Type)
		body = binary.BigEndian.AppendUint16(body, uint16(f.Size))
		body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no modifier
		format := uint16(0)
		if f.Binary {
			format = 1
		}
		body = binary.BigEndian.AppendUint16(body, format)
	}
	return Frame(dst, RowDescription, body)
}

// AppendRow appends a DataRow of values in their formats; nil is NULL.
func AppendRow(dst []byte, values [][]byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, v := range values {
		if v == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(v)))
		body = append(body, v...)
	}
	return Frame(dst, DataRow, body)
}

// ReadRow returns the columns of a DataRow as text; a NULL is "".
func ReadRow(body []byte) ([]string, error) {
	c := fields{rest: body}
	n := c.int16()
	if c.short || n > len(c.rest)/4 {
		return nil, fmt.Errorf("row of %d bytes: %w", len(body), ErrLength)
	}
	row := make([]string, n)
	for i := range row {
		switch size := c.int32(); {
		case size >= 0:
			row[i] = string(c.bytes(int(size)))
		case size != null:
			c.short = true
		}
	}
	if c.short {
		return nil, fmt.Errorf("row of %d bytes: %w", len(body), ErrLength)
	}
	return row, nil
}

// null is the length of a value that there is none of.
const null = -1

// AppendTypes appends a ParameterDescription.
func AppendTypes(dst []byte, types []uint32) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(types)))
	for _, t := range types {
		body = binary.BigEndian.AppendUint32(body, t)
	}
	return Frame(dst, ParameterDescription, body)
}

// AppendStartup appends a startup packet of version 3.0 with the given names and
// values.
func AppendStartup(dst []byte, params ...string) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(append(dst, 0, 0, 0, 0), Protocol3)
	for _, p := range params {
		dst = append(append(dst, p...), 0)
	}
	dst = append(dst, 0)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
