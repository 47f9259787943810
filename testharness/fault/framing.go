package fault

import "encoding/binary"

// A Framer takes one direction of a connection apart: it returns how many bytes
// at the beginning of b are the next message, or 0 if more must come, and what
// the message is called. One without a name is passed on unseen.
type Framer func(b []byte) (n int, name string)

// PostgreSQL takes a connection to PostgreSQL apart that isn't encrypted. The
// server's parameters and notices have no names: how many come is no matter of
// what was asked.
func PostgreSQL() (there, back Framer) {
	const (
		lengthBytes  = 4
		headerBytes  = 1 + lengthBytes
		packetBytes  = 8        // of the shortest packet before the first typed message
		firstRequest = 80877102 // codes of requests in the place of a version
	)
	began := false
	there = func(b []byte) (int, string) {
		switch {
		case began:
			return typed(b, headerBytes)
		case len(b) < packetBytes:
			return 0, ""
		}
		n, code := int(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[lengthBytes:])
		if n > len(b) {
			return 0, ""
		}
		began = code < firstRequest
		return max(n, packetBytes), "startup"
	}
	back = func(b []byte) (int, string) {
		n, name := typed(b, headerBytes)
		if name == "S" || name == "N" || name == "K" {
			name = ""
		}
		return n, name
	}
	return there, back
}

// typed is a message with a letter and a length that counts itself.
func typed(b []byte, header int) (int, string) {
	if len(b) < header {
		return 0, ""
	}
	n := 1 + int(binary.BigEndian.Uint32(b[1:]))
	if n > len(b) {
		return 0, ""
	}
	return max(n, header), string(b[:1])
}

// HTTP2 takes a connection of HTTP/2 apart, such as one to etcd: headers and
// data have names, what keeps the connection going has none (RFC 9113).
func HTTP2() (there, back Framer) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	began := false
	there = func(b []byte) (int, string) {
		if began {
			return frame(b)
		}
		if len(b) < len(preface) {
			return 0, ""
		}
		began = true
		return len(preface), ""
	}
	return there, frame
}

func frame(b []byte) (int, string) {
	const header, data, headers = 9, 0, 1
	if len(b) < header {
		return 0, ""
	}
	body := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if len(b) < header+body {
		return 0, ""
	}
	name := ""
	switch {
	case b[3] == headers:
		name = "headers"
	case b[3] == data && body > 0:
		name = "data"
	}
	return header + body, name
}
