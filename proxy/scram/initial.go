package scram

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// readInitial takes the body of a SASLInitialResponse apart: the mechanism,
// which choose may refuse, and the message, unless none was sent. The order of
// the checks and the texts are PostgreSQL's (CheckSASLAuth in auth-sasl.c and
// pqformat.c). No sum of lengths is formed that could overflow
// (CVE-2026-6664).
func readInitial(body []byte, choose func(mechanism string) error) (mechanism string, message []byte, sent bool, err error) {
	name, rest, ok := bytes.Cut(body, []byte{0})
	if !ok {
		return "", nil, false, &Error{Code: codeProtocol, Message: "invalid string in message"}
	}
	mechanism = string(name)
	if err := choose(mechanism); err != nil {
		return "", nil, false, err
	}
	if len(rest) < 4 {
		return "", nil, false, &Error{Code: codeProtocol, Message: "insufficient data left in message"}
	}
	length := int32(binary.BigEndian.Uint32(rest))
	rest = rest[4:]
	if length == -1 {
		length = 0
	} else {
		sent = true
	}
	if length < 0 || int64(length) > int64(len(rest)) {
		return "", nil, false, &Error{Code: codeProtocol, Message: "insufficient data left in message"}
	}
	if int64(length) < int64(len(rest)) {
		return "", nil, false, &Error{Code: codeProtocol, Message: "invalid message format"}
	}
	return mechanism, rest, sent, nil
}

// appendInitial makes the body of a SASLInitialResponse.
func appendInitial(mechanism, message string) []byte {
	out := append([]byte(mechanism), 0)
	out = binary.BigEndian.AppendUint32(out, uint32(len(message)))
	return append(out, message...)
}

// readMechanisms reads the names in an AuthenticationSASL: each ends with a
// NUL, and an empty one ends the list.
func readMechanisms(list []byte) (names []string, ok bool) {
	text := string(list)
	for {
		name, rest, found := strings.Cut(text, "\x00")
		switch {
		case !found:
			return nil, false
		case name == "":
			return names, rest == ""
		}
		names, text = append(names, name), rest
	}
}
