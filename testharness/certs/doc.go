// Package certs makes certificates for tests of TLS: an authority, and what it
// signs for servers and clients. They are good for an hour, and for nothing
// but tests and benchmarks, which are the only callers.
package certs
