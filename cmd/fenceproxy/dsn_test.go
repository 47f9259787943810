package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// described is what a DSN comes to, in one line a server.
func described(d dsn) []string {
	var out []string
	for _, h := range d.hosts {
		up := h.upstream()
		line := up.Name + " " + up.Timeout.String()
		for _, way := range up.Ways {
			line += " " + way.Network + ":" + way.Address
			if way.TLS != nil {
				line += "+TLS"
				if way.TLS.ServerName != "" {
					line += "(" + way.TLS.ServerName + ")"
				}
			}
			if way.Direct {
				line += "+direct"
			}
		}
		out = append(out, line)
	}
	return out
}

func TestDSN_Set(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		asks  bool
		hosts []string
	}{
		"one":            {"postgres://u@h/app?sslmode=disable", false, []string{"h:5432 0s tcp:h:5432"}},
		"a line":         {"postgres://u@h/app?sslmode=disable\n", false, []string{"h:5432 0s tcp:h:5432"}},
		"one, asked":     {"postgres://u@h/app?sslmode=disable&target_session_attrs=read-write", true, []string{"h:5432 0s tcp:h:5432"}},
		"several":        {"postgres://u@a,b:5433/app?sslmode=disable", true, []string{"a:5432 2s tcp:a:5432", "b:5433 2s tcp:b:5433"}},
		"any":            {"host=a,b sslmode=disable target_session_attrs=any", false, []string{"a:5432 2s tcp:a:5432", "b:5432 2s tcp:b:5432"}},
		"timeout":        {"host=a,b port=1,2 sslmode=disable connect_timeout=5", true, []string{"a:1 5s tcp:a:1", "b:2 5s tcp:b:2"}},
		"prefer":         {"host=a,b sslmode=prefer", true, []string{"a:5432 2s tcp:a:5432+TLS(a) tcp:a:5432", "b:5432 2s tcp:b:5432+TLS(b) tcp:b:5432"}},
		"allow":          {"host=a sslmode=allow", false, []string{"a:5432 0s tcp:a:5432 tcp:a:5432+TLS(a)"}},
		"direct":         {"host=a sslmode=require sslnegotiation=direct", false, []string{"a:5432 0s tcp:a:5432+TLS(a)+direct"}},
		"socket":         {"host=/run/pg,b port=5433 sslmode=prefer", true, []string{"/run/pg/.s.PGSQL.5433 2s unix:/run/pg/.s.PGSQL.5433", "b:5433 2s tcp:b:5433+TLS(b) tcp:b:5433"}},
		"IPv6":           {"postgres://u@[::1]:5433/app?sslmode=disable", false, []string{"[::1]:5433 0s tcp:[::1]:5433"}},
		"hostaddr":       {"host=a,b hostaddr=10.0.0.1,10.0.0.2 sslmode=verify-full sslrootcert=system", true, []string{"10.0.0.1:5432 2s tcp:10.0.0.1:5432+TLS(a)", "10.0.0.2:5432 2s tcp:10.0.0.2:5432+TLS(b)"}},
		"hostaddr, same": {"host=a,a hostaddr=10.0.0.1,10.0.0.2 sslmode=disable", true, []string{"10.0.0.1:5432 2s tcp:10.0.0.1:5432", "10.0.0.2:5432 2s tcp:10.0.0.2:5432"}},
		"hostaddr, same, prefer": {"host=a,a hostaddr=10.0.0.1,10.0.0.2", true, []string{
			"10.0.0.1:5432 2s tcp:10.0.0.1:5432+TLS(a) tcp:10.0.0.1:5432", "10.0.0.2:5432 2s tcp:10.0.0.2:5432+TLS(a) tcp:10.0.0.2:5432"}},
		"harmless": {"host=a sslmode=disable gssencmode=prefer load_balance_hosts=disable", false, []string{"a:5432 0s tcp:a:5432"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PGTARGETSESSIONATTRS", "")
			t.Setenv("PGCONNECT_TIMEOUT", "")
			var d dsn
			if err := d.Set(c.text); err != nil {
				t.Fatal(err)
			}
			if got := described(d); !cmp.Equal(got, c.hosts) {
				t.Error(cmp.Diff(c.hosts, got))
			}
			if got := d.target != nil; got != c.asks {
				t.Errorf("asks: got %v, want %v", got, c.asks)
			}
			for _, h := range d.hosts {
				for _, key := range []string{"hostaddr", "gssencmode", "load_balance_hosts"} {
					if value, ok := h.config.ConnConfig.RuntimeParams[key]; ok {
						t.Errorf("%s=%s would be sent to PostgreSQL", key, value)
					}
				}
			}
		})
	}
}

func TestDSN_SetErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	junk := file("junk.pem", "no PEM at all\n")
	block := file("block.pem", "-----BEGIN X-----\nAAAA\n-----END X-----\n")
	away := filepath.Join(dir, "away.pem")
	for text, want := range map[string]string{
		"nonsense":                                                    "postgres://user@host:port/database or host=",
		"host=a,b port=1,2,3 password=hunter2":                        "port: as many ports as hosts",
		"host=a port=abc password=hunter2":                            "port: a number from 1 to 65535",
		"postgres://u:hunter2@h:abc/app":                              "port: a number from 1 to 65535",
		"postgres://u:hunter2%zz@h/app":                               "is expected",
		"host=a port=0":                                               "port: a number from 1 to 65535",
		"host=a connect_timeout=x":                                    "connect_timeout: a number of seconds",
		"host=a sslmode=banana password=hunter2":                      "sslmode: one of disable, allow,",
		"postgres://u:hunter2@h/app?sslmode=banana":                   "sslmode: one of disable, allow,",
		"host=a target_session_attrs=best password=hunter2":           "target_session_attrs: one of any, read-write,",
		"host=a sslnegotiation=banana":                                "sslnegotiation: one of postgres, direct",
		"host=a channel_binding=banana":                               "channel_binding: one of",
		"host=a require_auth=banana":                                  "require_auth: methods",
		"host=a min_protocol_version=9":                               "min_protocol_version: 3.0",
		"host=a min_protocol_version=latest max_protocol_version=3.0": "min_protocol_version: 3.0",
		"host=a max_protocol_version=9":                               "max_protocol_version: 3.0",
		"host=a sslcertmode=banana":                                   "sslcertmode: one of",
		"host=a service=nowhere servicefile=" + away:                  "service: it isn't in the service file",
		"host=a pool_max_conns=x":                                     "pool_max_conns: its value",
		"host=a sslmode=require sslrootcert=" + away:                  "sslrootcert: open " + away + ": no such file",
		"host=a sslmode=require sslrootcert=" + junk:                  "sslrootcert: no certificate in the file",
		"host=a sslcert=" + junk:                                      "sslcert, sslkey: both",
		"host=a sslcert=" + junk + " sslkey=" + away:                  "sslkey: open " + away + ": no such file",
		"host=a sslcert=" + junk + " sslkey=" + junk:                  "sslkey: no PEM block",
		"host=a sslcert=" + away + " sslkey=" + block:                 "sslcert: open " + away + ": no such file",
		"host=a sslcert=" + block + " sslkey=" + block:                "sslcert, sslkey: the two files",
		"host=a hostaddr=10.0.0.1,10.0.0.2":                           "as many names in host",
		"host=a,b hostaddr=10.0.0.1":                                  "as many names in host",
		"host=a,b load_balance_hosts=random":                          "load_balance_hosts=random is not supported",
		"host=a gssencmode=require":                                   "gssencmode=require is not supported",
	} {
		var d dsn
		err := d.Set(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q and no password", text, err, want)
		}
	}
	t.Setenv("PGSSLMODE", "banana")
	var d dsn
	if err := d.Set("host=a"); err == nil || !strings.HasPrefix(err.Error(), "PGSSLMODE: one of") {
		t.Errorf("got %v, want the variable to be named", err)
	}
}

func TestPeers_Set(t *testing.T) {
	var p peers
	if err := p.Set("fenceproxy-peers:6433, [::1]:6434"); err != nil || p.String() != "fenceproxy-peers:6433,[::1]:6434" {
		t.Errorf("got %q, %v", p, err)
	}
	for _, bad := range []string{"", "h", "h:", ":6433", "h:0", "h:6433,", "h:nope", "http://h:6433"} {
		if err := p.Set(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// An upstream that takes connections and says nothing costs a command the
// connect_timeout.
func TestAsker_Silent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var d dsn
	if err := d.Set("postgres://u@" + ln.Addr().String() + "/app?sslmode=disable&connect_timeout=1"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := newAsker(d.hosts[0], nil).timed(t.Context()); err == nil {
		t.Error("got an answer")
	}
	if took := time.Since(began); took > startTimeout {
		t.Errorf("it took %v, want no more than %v", took, startTimeout)
	}
}
