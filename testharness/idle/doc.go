// Package idle measures what sessions that do nothing cost a proxy, whichever
// it is. Its benchmark is what `make bench-idle` runs; bench has rows of it.
package idle
