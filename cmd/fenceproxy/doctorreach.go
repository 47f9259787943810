package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// lookAtAddresses looks who can reach PostgreSQL without the proxy, as far as
// listen_addresses and pg_hba.conf show.
func lookAtAddresses(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	var listens, database, self string
	var may bool
	const query = `SELECT current_setting('listen_addresses'), current_database(), coalesce(host(inet_client_addr()), ''),
		has_table_privilege('pg_hba_file_rules', 'SELECT') AND has_function_privilege('pg_hba_file_rules()', 'EXECUTE')`
	if err := conn.QueryRow(ctx, query).Scan(&listens, &database, &self, &may); err != nil {
		return err
	}
	if onlyLoopback(listens) {
		d.ok("PostgreSQL listens on its own machine only (listen_addresses = '%s'): the programs there can get round the proxy, no others", listens)
		return nil
	}
	const guard = "Let the lines name the proxies' addresses alone, or guard the tables (fenceproxy protect)."
	if !may {
		d.warn("As a superuser: GRANT SELECT ON pg_hba_file_rules, and EXECUTE ON FUNCTION pg_hba_file_rules(), to the proxies' role; or run doctor as a superuser.",
			"PostgreSQL listens on %s, and who may connect can't be seen: pg_hba_file_rules may not be read", listens)
		return nil
	}
	rules, err := readRules(ctx, conn)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if r.Error != "" {
			d.warn("Mend it; SELECT pg_reload_conf().", "pg_hba.conf line %d can't be read: %s", r.Line, r.Error)
		}
	}
	logins, err := readLogins(ctx, conn)
	if err != nil {
		return err
	}
	var lines []int
	var reached []string
	for _, role := range logins {
		by := reachableBy(rules, database, self, role)
		for _, r := range by {
			if !slices.Contains(lines, r.Line) {
				lines = append(lines, r.Line)
			}
		}
		if len(by) > 0 {
			reached = append(reached, role.Name)
		}
	}
	slices.Sort(lines)
	for _, r := range rules {
		if slices.Contains(lines, r.Line) {
			l := levelWarn
			if r.Method == "trust" {
				l = levelFail
			}
			d.add(l, guard, "pg_hba.conf line %d lets clients of other machines in past the proxy: %s", r.Line, r)
		}
	}
	if len(reached) == 0 {
		d.ok("no line of pg_hba.conf lets a role past the proxy from an address that isn't the server's own or %s", self)
	} else {
		d.warn("", "roles that can get round the proxy: %s", some(reached))
	}
	return nil
}

// onlyLoopback reports whether nobody on another machine can connect.
func onlyLoopback(listens string) bool {
	for name := range strings.SplitSeq(listens, ",") {
		name = strings.TrimSpace(name)
		ip, err := netip.ParseAddr(name)
		if name != "" && name != "localhost" && (err != nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// A hbaRule is a line of pg_hba.conf.
type hbaRule struct {
	Line             int
	Type             string
	Databases, Users []string
	Address, Mask    string
	Method, Error    string
}

// String is the line without its options.
func (r hbaRule) String() string {
	fields := []string{r.Type, strings.Join(r.Databases, ","), strings.Join(r.Users, ","), r.Address, r.Mask, r.Method}
	return strings.Join(slices.DeleteFunc(fields, func(s string) bool { return s == "" }), " ")
}

func readRules(ctx context.Context, conn *pgx.Conn) ([]hbaRule, error) {
	rows, err := conn.Query(ctx, `SELECT coalesce(line_number, 0), coalesce(type, ''), coalesce(database, '{}'), coalesce(user_name, '{}'),
		coalesce(address, ''), coalesce(netmask, ''), coalesce(auth_method, ''), coalesce(error, '') FROM pg_hba_file_rules`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[hbaRule])
}

// A login is a role that may log in, and the roles that it is a member of.
type login struct {
	Name    string
	Members []string
}

// readLogins returns the roles that applications could log in as.
func readLogins(ctx context.Context, conn *pgx.Conn) ([]login, error) {
	rows, err := conn.Query(ctx, `SELECT r.rolname::text, ARRAY(SELECT g.rolname::text FROM pg_roles AS g WHERE pg_has_role(r.oid, g.oid, 'MEMBER'))
		FROM pg_roles AS r WHERE r.rolcanlogin AND NOT r.rolsuper AND r.rolname <> current_user
			AND r.oid <> (SELECT nspowner FROM pg_namespace WHERE nspname = 'fence')
			AND has_database_privilege(r.oid, current_database(), 'CONNECT') ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[login])
}

// reachableBy returns the lines that let a role in from another machine than the
// server's own or self. The first line that fits a client decides, so nothing
// behind one about all addresses counts; a line that rejects only some is passed
// over.
func reachableBy(rules []hbaRule, database, self string, role login) (by []hbaRule) {
	var decided [2]bool // for every address of IPv4, and of IPv6
	for _, r := range rules {
		families := r.families()
		if r.Error != "" || r.Type == "local" || !r.names(database, role) || r.near(self) ||
			(!families[0] || decided[0]) && (!families[1] || decided[1]) {
			continue
		}
		if r.Method != "reject" {
			by = append(by, r)
		}
		if r.Type == "host" && r.everywhere() {
			decided[0], decided[1] = decided[0] || families[0], decided[1] || families[1]
		}
	}
	return by
}

// names reports whether a line is about a database and a role. A regular
// expression may be.
func (r hbaRule) names(database string, role login) bool {
	member := func(of string) bool { return slices.Contains(role.Members, of) }
	forDatabase := slices.ContainsFunc(r.Databases, func(name string) bool {
		return name == "all" || name == database || strings.HasPrefix(name, "/") ||
			name == "sameuser" && role.Name == database || (name == "samerole" || name == "samegroup") && member(database)
	})
	return forDatabase && slices.ContainsFunc(r.Users, func(name string) bool {
		group, isGroup := strings.CutPrefix(name, "+")
		return name == "all" || name == role.Name || strings.HasPrefix(name, "/") || isGroup && member(group)
	})
}

// near reports whether a line is about the server's own machine, or about self
// alone, which is where doctor and most likely the proxy run.
func (r hbaRule) near(self string) bool {
	if r.Address == "samehost" {
		return true
	}
	network, err := r.network()
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(self)
	alone := err == nil && network.IsSingleIP() && network.Contains(addr)
	return alone || network.Addr().IsLoopback() && network.Bits() > 0
}

// everywhere reports whether a line is about every address of its families.
func (r hbaRule) everywhere() bool {
	network, err := r.network()
	return r.Address == "all" || err == nil && network.Bits() == 0
}

// families tells whether a line is about addresses of IPv4, and of IPv6.
func (r hbaRule) families() [2]bool {
	network, err := r.network()
	return [2]bool{err != nil || network.Addr().Is4(), err != nil || network.Addr().Is6()}
}

// network is the addresses that a line is about, if it names them by number.
func (r hbaRule) network() (netip.Prefix, error) {
	addr, err := netip.ParseAddr(r.Address)
	if err != nil {
		return netip.Prefix{}, err
	}
	mask, err := netip.ParseAddr(r.Mask)
	if err != nil {
		return netip.Prefix{}, err
	}
	bits := 0
	for _, b := range mask.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("network of line %d: %w", r.Line, err)
	}
	return network, nil
}
