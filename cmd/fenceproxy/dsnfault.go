package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// A dsnFault is a mistake in a connection string that the driver finds, and what
// a user is told of it.
type dsnFault struct {
	says   string // how the driver's words for it begin
	key    string // of the connection string
	expect string // "": the file's error, or else that it can't be used
}

// dsnFaults tell the key and never its value, for in a string that is malformed
// that may be a part of the password; the names of files excepted.
func dsnFaults() []dsnFault {
	const tls = "failed to configure TLS ("
	const proto = "3.0, 3.2 or latest is expected, and no minimum above the maximum"
	return []dsnFault{
		{"could not match", "port", "as many ports as hosts are expected, or one"},
		{"invalid port", "port", "a number from 1 to 65535 is expected; a : or @ in a password is written %3A or %40 in a URL"},
		{"invalid connect_timeout", "connect_timeout", "a number of seconds is expected, 0 or more"},
		{"unknown target_session_attrs", "target_session_attrs", "one of any, read-write, read-only, primary, standby, prefer-standby is expected"},
		{"unknown channel_binding", "channel_binding", "one of disable, prefer, require is expected"},
		{"invalid require_auth", "require_auth", "methods of authentication joined with commas are expected, such as scram-sha-256"},
		{"invalid min_protocol_version", "min_protocol_version", proto},
		{"min_protocol_version", "min_protocol_version", proto},
		{"invalid max_protocol_version", "max_protocol_version", proto},
		{"invalid sslcertmode", "sslcertmode", "one of disable, allow, require is expected"},
		{"failed to read service", "service", "it isn't in the service file, or that can't be read"},
		{tls + "sslmode is invalid", "sslmode", "one of disable, allow, prefer, require, verify-ca, verify-full is expected"},
		{tls + "unable to read CA file", "sslrootcert", ""},
		{tls + "unable to add CA", "sslrootcert", "no certificate in the file"},
		{tls + `both "sslcert"`, "sslcert, sslkey", "both are expected, or neither"},
		{tls + "unable to read sslkey", "sslkey", ""},
		{tls + "failed to decode sslkey", "sslkey", "no PEM block in the file"},
		{tls + "unable to find sslpassword", "sslpassword", "the key in the file of sslkey is encrypted"},
		{tls + "unable to decrypt key", "sslpassword", "it doesn't decrypt the file of sslkey"},
		{tls + "unable to read cert", "sslcert", ""},
		{tls + "unable to load cert", "sslcert, sslkey", "the two files are no certificate and its key"},
	}
}

// errDSN is what is said where nothing better is known.
var errDSN = errors.New("postgres://user@host:port/database or host=… user=… dbname=… is expected")

// explainDSN words why the driver doesn't take a connection string, which its
// own message quotes.
func explainDSN(text string, err error) error {
	said := err.Error()
	if at := strings.LastIndex(said, "`: "); at >= 0 {
		said = said[at+len("`: "):]
	}
	for _, f := range dsnFaults() {
		if strings.HasPrefix(said, f.says) {
			return fmt.Errorf("%s: %s", f.origin(text), f.expected(err))
		}
	}
	if rest, ok := strings.CutPrefix(said, "cannot parse pool_"); ok {
		key, _, _ := strings.Cut(rest, " ")
		return fmt.Errorf("pool_%s: its value is of no use", key)
	}
	return errDSN
}

func (f dsnFault) expected(err error) string {
	var file *fs.PathError
	switch {
	case f.expect != "":
		return f.expect
	case errors.As(err, &file):
		return file.Error()
	}
	return "the file can't be read"
}

// origin is the key, or the variable of libpq where the string doesn't set it.
func (f dsnFault) origin(text string) string {
	name := "PG" + strings.ToUpper(strings.ReplaceAll(f.key, "_", ""))
	if os.Getenv(name) != "" && !strings.Contains(text, f.key) && f.key != "port" {
		return name
	}
	return f.key
}
