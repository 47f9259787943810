// Package child says how the harness starts processes of its own: so that
// they end with it, even if it is killed, and that a Ctrl-C at its terminal is
// the harness's to handle. Called by stack and scenario.
package child
