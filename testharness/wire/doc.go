// Package wire holds fenceproxy against PostgreSQL, message by message. A
// script says what a client sends and which messages it gets; a player plays
// it on real connections and writes down a trace of every message with its
// body. The tests play each script straight and through the proxy, untagged
// and tagged, and the traces must be the same. Random scripts are made by
// Generate and cut down by Shrink when they find a difference.
//
// The scripts in testdata/*.wire are the specification. A file holds several:
//
//	setup CREATE TABLE t (id int)      before every run of each script of the file, or of one
//	script NAME                        begins a script
//	> Q "SELECT 1"                     what the client sends; lines in a row are one network write
//	< T D(1) C(SELECT 1) Z(I)          the messages that must come, with as much of them as matters
//	<tagged E(LF007) Z(I)              in place of the line above, where the condition holds
//	on b user=other options="-c a=b"   goes on with another session, opened if need be
//	dial c                             a connection without a startup packet
//	tls alpn=postgresql max=1.2        the handshake of TLS: protocol name and highest version, if any
//	split                              sends the next lines byte by byte
//	close, half-close                  the client's side of the connection
//	wait SQL                           until the query, asked aside, says true
//	admin SQL                          carried out aside
//	only pg17+                         the script is for these servers
//	differs tagged REASON              the trace may differ there, and must
//	fault tagged WHAT                  the proxy is known to fail there, until it is mended
//	untagged REASON                    the script isn't played tagged
//	unix REASON                        straight to the server over its Unix socket
//	alone REASON                       no other is played at the same time
//
// A line that begins with white space goes on with the line before it. SQL
// asked aside finds the script's own sessions in the view session (name, pid,
// state, wait_event, query). The conditions are tagged, proxied (tagged or
// not) and pgN, pgN+, pgN-M. Message.go has the syntax of what is sent,
// expect.go that of what must come.
//
// Nothing here is shared with the code under test: messages are put together
// and taken apart anew. What differs from run to run is left out of a trace:
// process ids, cancel keys, salts, OIDs of what a script made, and where in
// the server's source an error was raised. Only tests call it.
package wire
