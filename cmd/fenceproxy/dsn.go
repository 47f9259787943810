package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// severalTimeout bounds an attempt at one of several servers where the DSN sets
// no connect_timeout: the others are waiting.
const severalTimeout = 2 * time.Second

// dsn is the connection string of the protected PostgreSQL. It holds a
// password, so it says of itself only whether it is set.
type dsn struct {
	hosts []dsnHost
	// target is libpq's target_session_attrs; nil is any.
	target pgconn.ValidateConnectFunc
}

// dsnHost is one of the servers of a DSN.
type dsnHost struct {
	name   string
	config *pgxpool.Config // of this server only
}

func (d *dsn) Set(text string) error {
	text = strings.TrimRight(text, "\r\n") // as of a secret
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return explainDSN(text, err)
	}
	if way := config.ConnConfig.SSLNegotiation; !slices.Contains([]string{"", "postgres", "direct"}, way) {
		return errors.New("sslnegotiation: one of postgres, direct is expected")
	}
	// Keys are UTF-8, and so is what the driver writes into texts, whatever the
	// database's encoding is.
	config.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	hostaddrs, err := takeOwnKeys(config.ConnConfig.RuntimeParams)
	if err != nil {
		return err
	}
	hosts, err := splitHosts(config, hostaddrs)
	if err != nil {
		return err
	}
	target := config.ConnConfig.ValidateConnect
	if target == nil && len(hosts) > 1 && !namesTarget(text) {
		target = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	d.hosts, d.target = hosts, target
	return nil
}
func (d *dsn) String() string { return "" }

// Format shows nothing of what the driver made of it.
func (dsn) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

func (*dsn) Type() string { return "DSN" }

// namesTarget reports whether target_session_attrs was set, be it to any. The
// driver doesn't tell.
func namesTarget(text string) bool {
	return strings.Contains(text, "target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != ""
}

// takeOwnKeys takes the keys of libpq out that the driver doesn't know, and
// that PostgreSQL would be sent as settings. It returns the addresses of
// hostaddr.
func takeOwnKeys(params map[string]string) (hostaddrs []string, err error) {
	if all := params["hostaddr"]; all != "" {
		hostaddrs = strings.Split(all, ",")
	}
	for key, harmless := range map[string][]string{
		"load_balance_hosts": {"disable"},
		"gssencmode":         {"disable", "prefer"},
	} {
		if value, ok := params[key]; ok && !slices.Contains(harmless, value) {
			return nil, fmt.Errorf("%s=%s is not supported", key, value)
		}
		delete(params, key)
	}
	delete(params, "hostaddr")
	return hostaddrs, nil
}

// splitHosts makes a configuration for each server of one for all of them. The
// driver lists each TLS mode that sslmode has it try as a server of its own.
func splitHosts(config *pgxpool.Config, hostaddrs []string) ([]dsnHost, error) {
	c := config.ConnConfig
	ways := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	var groups [][]*pgconn.FallbackConfig
	for i, way := range ways {
		if i == 0 || !alternative(groups[len(groups)-1], way) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], way)
	}
	if len(hostaddrs) > 0 && len(hostaddrs) != len(groups) {
		return nil, errors.New("as many names in host as addresses in hostaddr are expected")
	}
	var hosts []dsnHost
	for i, group := range groups {
		addr := ""
		if len(hostaddrs) > 0 {
			addr = hostaddrs[i]
		}
		hosts = append(hosts, oneHost(config, group, addr, len(groups) > 1))
	}
	return hosts, nil
}

// alternative reports whether way is another way to the server of a group: no
// sslmode tries the same one twice, so a repetition is a server of its own.
func alternative(group []*pgconn.FallbackConfig, way *pgconn.FallbackConfig) bool {
	for _, had := range group {
		if had.Host != way.Host || had.Port != way.Port || (had.TLSConfig == nil) == (way.TLSConfig == nil) {
			return false
		}
	}
	return true
}

// oneHost is the configuration of one server; hostaddr "" is its name's.
func oneHost(all *pgxpool.Config, ways []*pgconn.FallbackConfig, hostaddr string, several bool) dsnHost {
	config := all.Copy()
	c := config.ConnConfig
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = ways[0].Host, ways[0].Port, ways[0].TLSConfig, ways[1:]
	c.ValidateConnect = nil
	if hostaddr != "" {
		// The name is only what the certificate must be for.
		c.Host = hostaddr
		c.Fallbacks = nil
		for _, way := range ways[1:] {
			c.Fallbacks = append(c.Fallbacks, &pgconn.FallbackConfig{Host: hostaddr, Port: way.Port, TLSConfig: way.TLSConfig})
		}
	}
	if several && c.ConnectTimeout == 0 {
		c.ConnectTimeout = severalTimeout
	}
	_, name := pgconn.NetworkAddress(c.Host, c.Port)
	return dsnHost{name: name, config: config}
}

// upstream is how the proxy dials the server for its clients' sessions: as
// sslmode has it, encrypted, plain, or one after the other.
func (h dsnHost) upstream() proxy.Host {
	c := h.config.ConnConfig
	ways := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	out := proxy.Host{Name: h.name, Timeout: c.ConnectTimeout}
	for _, way := range ways {
		network, addr := pgconn.NetworkAddress(way.Host, way.Port)
		out.Ways = append(out.Ways, proxy.Endpoint{
			Network: network, Address: addr, TLS: way.TLSConfig,
			Direct: way.TLSConfig != nil && c.SSLNegotiation == "direct",
		})
	}
	return out
}
