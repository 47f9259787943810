package main

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/certs"
)

// Without TLS the port for clients is one that no other machine reaches, unless
// somebody says otherwise.
func TestServe_LoopbackOnly(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	encrypted := []string{"--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key}
	for name, c := range map[string]struct {
		listen string
		env    []string
		flags  []string
		want   string // of the refusal; "": there is none
	}{
		"loopback":            {listen: "127.0.0.1:6433"},
		"all of loopback":     {listen: "127.9.9.9:6433"},
		"IPv6":                {listen: "[::1]:6433"},
		"IPv4 within IPv6":    {listen: "[::ffff:127.0.0.1]:6433"},
		"localhost":           {listen: "localhost:6433"},
		"a name":              {listen: "proxy.example:6433"}, // looked up when it is listened on
		"every address":       {listen: "0.0.0.0:6433", want: "--listen: other machines reach 0.0.0.0:6433"},
		"every one by no":     {listen: ":6433", want: "--listen: other machines reach :6433"},
		"every one of IPv6":   {listen: "[::]:6433", want: "--insecure-listen"},
		"another's":           {listen: "192.0.2.1:6433", want: "--client-tls"},
		"another's in IPv6":   {listen: "[fe80::1%eth0]:6433", want: "--listen: other machines"},
		"beyond IPv4 in IPv6": {listen: "[::ffff:192.0.2.1]:6433", want: "--listen: other machines"},
		"said so":             {listen: "0.0.0.0:6433", flags: []string{"--insecure-listen"}},
		"said so otherwise":   {listen: "0.0.0.0:6433", env: []string{"FENCEPROXY_INSECURE_LISTEN=true"}},
		"said no":             {listen: "0.0.0.0:6433", env: []string{"FENCEPROXY_INSECURE_LISTEN=false"}, want: "--listen: other machines"},
		"said nonsense":       {listen: "127.0.0.1:0", env: []string{"FENCEPROXY_INSECURE_LISTEN=perhaps"}, want: `FENCEPROXY_INSECURE_LISTEN: bad value "perhaps": true or false`},
		"encrypted":           {listen: "0.0.0.0:6433", flags: encrypted},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--check-config", "--upstream", "postgres://u@127.0.0.1/app", "--etcd", "http://127.0.0.1:1", "--listen", c.listen}, c.flags...)
			code, stdout, stderr := program(t, c.env, args...)
			if c.want == "" && (code != 0 || stderr != "" || !strings.Contains(stdout, "\nlisten: ")) {
				t.Errorf("got exit %d, %q, want the settings", code, stderr)
			}
			if c.want != "" && (code != 2 || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1) {
				t.Errorf("got exit %d, %q, want 2 and one line with %q", code, stderr, c.want)
			}
		})
	}
}

// A passedSocket is one that a service manager has opened.
type passedSocket struct {
	at     net.Addr
	closed bool
}

func (*passedSocket) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (s *passedSocket) Close() error            { s.closed = true; return nil }
func (s *passedSocket) Addr() net.Addr          { return s.at }

// What counts is where the sockets are, whoever opened them.
func TestListeners_LoopbackOnly(t *testing.T) {
	for name, c := range map[string]struct {
		at      string
		only    bool
		refused bool
	}{
		"loopback":      {"127.0.0.1:6433", true, false},
		"every address": {"0.0.0.0:6433", true, true},
		"IPv6":          {"[::]:6433", true, true},
		"meant":         {"0.0.0.0:6433", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			addr, err := net.ResolveTCPAddr("tcp", c.at)
			if err != nil {
				t.Fatal(err)
			}
			inner, outer := &passedSocket{at: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}, &passedSocket{at: addr}
			ports := listeners{clients: []net.Listener{inner, outer}}
			admin := newAdminFlags()
			admin.listen = "127.0.0.1:0"
			err = ports.open(defaultListen, &admin, c.only)
			defer ports.close()
			var usage *usageError
			if got := errors.As(err, &usage) && strings.Contains(err.Error(), c.at) && inner.closed && outer.closed; got != c.refused || !c.refused && err != nil {
				t.Errorf("got %v, want a refusal %v", err, c.refused)
			}
		})
	}
}

func TestDev_LoopbackOnly(t *testing.T) {
	code, _, stderr := program(t, nil, "dev", "--listen", "0.0.0.0:6433")
	if want := `--listen: bad value "0.0.0.0:6433": an address on loopback`; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("got exit %d, %q, want %q", code, stderr, want)
	}
}
