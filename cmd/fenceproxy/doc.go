// Command fenceproxy stands in front of PostgreSQL and refuses the writes of
// lock holders that lost their lock.
//
// This package wires the others together: it reads flags, environment and
// configuration file (config.go), checks at start that everything it needs is
// there, and has one file per subcommand. It decides nothing about tags,
// tokens or SQL; that is proxy's, fencing's and sqlrewrite's.
package main
