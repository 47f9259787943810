// Package sqlrewrite reads SQL text as PostgreSQL's scanner does: it splits a
// string into statements, tells for each whether it may write, what it does to
// the transaction and to the settings that carry a tag, and puts text in at
// statement boundaries.
//
// It lexes, it doesn't parse and doesn't guess: everything may write unless it
// is plainly a read, and text that can't be split with certainty is an error.
// It knows nothing of messages, sessions or tokens, and imports the standard
// library only.
//
// A verdict of Read is about the text alone. A view, an operator, a cast, a
// row-level security policy or a user's function that hides behind the name of
// a built-in one can still write; the caller checks for that at the end of the
// transaction.
//
// Package proxy calls it for every message that carries SQL.
package sqlrewrite
