// Package console is what answers clients that connect to the proxy's own
// database, as PgBouncer's console does: SHOW …, KILL and RELOAD, over the simple
// and the extended protocol. It takes one message at a time and writes its answer;
// the session in package proxy reads the messages, has PostgreSQL authenticate the
// client, and asks here whether its role may come in.
//
// It refuses everything else: there are no tables and no expressions. What drivers
// and pools say of themselves (BEGIN, SET, SELECT 1) is answered and has no effect.
// It shows no text of SQL, no parameter and no secret, and each client's memory is
// bounded.
package console
