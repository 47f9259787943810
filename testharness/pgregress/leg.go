package main

import "strconv"

// A leg is a way to the server.
type leg int

const (
	straight leg = iota // to PostgreSQL
	proxied             // through the proxy, untagged
	fenced              // to PostgreSQL, schema fence in the database
	tagged              // through the proxy, with a claimed tag
)

func (l leg) String() string {
	switch l {
	case straight:
		return "straight"
	case proxied:
		return "proxied"
	case fenced:
		return "fenced"
	case tagged:
		return "tagged"
	default:
		return "leg(" + strconv.Itoa(int(l)) + ")"
	}
}

// throughProxy says whether the leg goes through the proxy.
func (l leg) throughProxy() bool { return l == proxied || l == tagged }

// hasSchema says whether the suite's database has schema fence.
func (l leg) hasSchema() bool { return l == fenced || l == tagged }
