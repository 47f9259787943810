// Package idle measures what sessions that do nothing cost the proxy: its
// benchmark is what `make bench-idle` runs.
package idle
