// Package claims measures what claims cost: beside the lock acquisitions that
// they follow, and with many marks in the table. Its benchmarks are what
// `make bench-claims`, `bench-marks` and `bench-checks` run.
package claims
