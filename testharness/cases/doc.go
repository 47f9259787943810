// Package cases holds tests only: the ways in which lock holders go wrong, as
// docs/proof.md numbers them, each with real leases in a real etcd, a real
// PostgreSQL, proxies before it, and where a process is paused or killed, a
// real process. Each asks for the right code and the right rows afterwards.
//
// The rows that are about fenceproxy's own process are tests of
// cmd/fenceproxy, since that is what they pause and kill.
package cases
