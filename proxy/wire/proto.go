package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/jackc/pgproto3/v2"
)

// This file is the only one that knows pgproto3: the messages that the proxy
// makes itself, appended to dst, and the few whose fields it reads.

// appended takes what Encode has appended a message to. The messages made here
// have no field whose length can be out of range, which is all that Encode can
// complain of. Each Append calls it directly, and not by way of an interface, so
// that the message stays on the stack.
func appended(dst []byte, err error) []byte {
	if err != nil {
		panic(fmt.Sprintf("encode a message: %v", err))
	}
	return dst
}

// AppendQuery appends a Query.
func AppendQuery(dst []byte, text string) []byte {
	return appended((&pgproto3.Query{String: text}).Encode(dst))
}

// AppendParse appends a Parse of a statement without parameter types.
func AppendParse(dst []byte, name, text string) []byte {
	return appended((&pgproto3.Parse{Name: name, Query: text}).Encode(dst))
}

// AppendBind appends a Bind of a statement without parameters.
func AppendBind(dst []byte, portal, statement string) []byte {
	return appended((&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement}).Encode(dst))
}

// AppendBindText appends a Bind of a statement with one parameter, in text format.
func AppendBindText(dst []byte, portal, statement, value string) []byte {
	return appended((&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement, Parameters: [][]byte{[]byte(value)}}).Encode(dst))
}

// AppendExecute appends an Execute without a row limit.
func AppendExecute(dst []byte, portal string) []byte {
	return appended((&pgproto3.Execute{Portal: portal}).Encode(dst))
}

// AppendClose appends a Close of a statement ('S') or portal ('P').
func AppendClose(dst []byte, what byte, name string) []byte {
	return appended((&pgproto3.Close{ObjectType: what, Name: name}).Encode(dst))
}

// AppendSync appends a Sync.
func AppendSync(dst []byte) []byte { return appended((&pgproto3.Sync{}).Encode(dst)) }

// AppendFlush appends a Flush.
func AppendFlush(dst []byte) []byte { return appended((&pgproto3.Flush{}).Encode(dst)) }

// AppendTerminate appends a Terminate.
func AppendTerminate(dst []byte) []byte { return appended((&pgproto3.Terminate{}).Encode(dst)) }

// AppendReady appends a ReadyForQuery.
func AppendReady(dst []byte, status byte) []byte {
	return appended((&pgproto3.ReadyForQuery{TxStatus: status}).Encode(dst))
}

// A Report is the part of an ErrorResponse or NoticeResponse that the proxy
// makes or reads.
type Report struct {
	Severity string // ERROR, FATAL, WARNING, …, not localized
	Code     string // SQLSTATE
	Message  string
	Detail   string
	Hint     string
	Where    string // read only, as is
	Position int    // where in a statement's text, in characters from 1; 0 is nowhere
}

// AppendError appends an ErrorResponse.
func AppendError(dst []byte, r Report) []byte {
	return appended((&pgproto3.ErrorResponse{
		Severity: r.Severity, SeverityUnlocalized: r.Severity,
		Code: r.Code, Message: r.Message, Detail: r.Detail, Hint: r.Hint,
	}).Encode(dst))
}

// AppendNotice appends a NoticeResponse.
func AppendNotice(dst []byte, r Report) []byte {
	return appended((&pgproto3.NoticeResponse{
		Severity: r.Severity, SeverityUnlocalized: r.Severity,
		Code: r.Code, Message: r.Message, Detail: r.Detail, Hint: r.Hint,
	}).Encode(dst))
}

// ReadReport reads the body of an ErrorResponse or NoticeResponse.
func ReadReport(body []byte) (Report, error) {
	var m pgproto3.ErrorResponse
	if err := m.Decode(body); err != nil {
		return Report{}, fmt.Errorf("decode error response: %w", err)
	}
	severity := m.SeverityUnlocalized
	if severity == "" {
		severity = m.Severity
	}
	return Report{severity, m.Code, m.Message, m.Detail, m.Hint, m.Where, int(m.Position)}, nil
}

// ReportHead reads severity and code from the first bytes of the body of an
// ErrorResponse or NoticeResponse, where PostgreSQL has them; "" is what it
// doesn't find.
func ReportHead(head []byte) (r Report) {
	for len(head) > 0 && head[0] != 0 {
		value, rest, ok := CString(head[1:])
		if !ok {
			break
		}
		switch head[0] {
		case 'V':
			r.Severity = string(value)
		case 'C':
			r.Code = string(value)
		}
		head = rest
	}
	return r
}

// WithoutContext appends to dst the error message with the given body, less
// the fields that speak of the proxy's own statement: where it failed inside
// fence.check, and the position in a text that the client never sent.
func WithoutContext(dst, body []byte) []byte {
	return appendFields(dst, ErrorResponse, body, func(field byte, value []byte) []byte {
		switch field {
		case 'W', 'P', 'p', 'q':
			return nil
		}
		return value
	})
}

// WithPosition appends to dst the error or notice with the given body and its
// position mapped by to; a position that maps to 0 is left out. All other
// fields stay byte for byte.
func WithPosition(dst []byte, t byte, body []byte, to func(int) int) []byte {
	return appendFields(dst, t, body, func(field byte, value []byte) []byte {
		if field != 'P' {
			return value
		}
		n, err := strconv.Atoi(string(value))
		if err != nil {
			return value
		}
		if n = to(n); n <= 0 {
			return nil
		}
		return strconv.AppendInt(nil, int64(n), 10)
	})
}

// WithMessage appends to dst the error with the given body and another message.
func WithMessage(dst, body []byte, message string) []byte {
	return appendFields(dst, ErrorResponse, body, func(field byte, value []byte) []byte {
		if field == 'M' {
			return []byte(message)
		}
		return value
	})
}

// appendFields copies an error or notice field by field; a nil value drops the
// field. A body that isn't a list of fields, ended by a NUL, is copied as it
// stands.
func appendFields(dst []byte, t byte, body []byte, edit func(field byte, value []byte) []byte) []byte {
	start := len(dst)
	dst = append(dst, t, 0, 0, 0, 0)
	rest := body
	for len(rest) > 1 && rest[0] != 0 {
		end := bytes.IndexByte(rest[1:], 0)
		if end < 0 {
			break
		}
		if v := edit(rest[0], rest[1:1+end]); v != nil {
			dst = append(append(append(dst, rest[0]), v...), 0)
		}
		rest = rest[end+2:]
	}
	if len(rest) == 1 && rest[0] == 0 {
		dst = append(dst, 0)
	} else {
		dst = append(dst[:start+HeaderLen], body...)
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-1))
	return dst
}

// ReadStartup returns the parameters of a startup packet, which includes its
// length and version.
func ReadStartup(packet []byte) (map[string]string, error) {
	const head = 8 // the length and the version
	if len(packet) < head {
		return nil, fmt.Errorf("startup packet of %d bytes: %w", len(packet), ErrLength)
	}
	params := map[string]string{}
	rest := packet[head:]
	for len(rest) > 0 && rest[0] != 0 {
		var name, value []byte
		var ok bool
		if name, rest, ok = CString(rest); !ok {
			return nil, fmt.Errorf("startup packet: %w", ErrLength)
		}
		if value, rest, ok = CString(rest); !ok {
			return nil, fmt.Errorf("startup packet: %w", ErrLength)
		}
		params[string(name)] = string(value)
	}
	if len(rest) != 1 {
		return nil, fmt.Errorf("startup packet has no terminator: %w", ErrLength)
	}
	return params, nil
}

// CString cuts the text before the first NUL off b; ok is false without one.
func CString(b []byte) (text, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// Frame appends a message of type t with the given parts as its body.
func Frame(dst []byte, t byte, parts ...[]byte) []byte {
	start := len(dst)
	dst = append(dst, t, 0, 0, 0, 0)
	for _, p := range parts {
		dst = append(dst, p...)
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-1))
	return dst
}
