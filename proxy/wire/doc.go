// Package wire cuts a PostgreSQL connection into messages and puts messages
// together. It knows the framing of protocol 3 and the few messages that the
// proxy makes or must understand; everything else passes through it as bytes.
//
// It refuses to allocate by a length that a peer chose: a body streams from
// socket to socket unless a caller asks for it with a limit of its own.
//
// One Reader and one Writer belong to each socket for its whole life. proto.go
// is the one file that knows pgproto3. Package proxy is the only caller.
package wire
