package clients

import (
	"fmt"
	"strings"
)

// A Client is a driver, or a program of PostgreSQL's own, and the program here
// that works with it.
type Client struct {
	Name     string
	Language string   // that the recipe is shown in
	Source   string   // under programs
	Recipe   string   // under programs; holds the recipe
	Command  []string // that runs it, in Source's folder
	GoModule bool     // Command is a package of the Go module in programs/golang
	// Base says that it needs nothing but Go and PostgreSQL, so that `make
	// test` plays it too.
	Base bool
	// Wants are what must be seen at the steps of play; "" is whatever is seen
	// straight. Refused are those of fence.
	Wants, Refused map[string]string
}

// Select returns the clients that names lists with commas: "all", or "" for
// those that need no more than Go and PostgreSQL.
func Select(names string) ([]Client, error) {
	var picked []Client
	for _, c := range All() {
		if names == "all" || names == "" && c.Base {
			picked = append(picked, c)
		}
	}
	if names == "all" || names == "" {
		return picked, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, c := range All() {
			if c.Name == name {
				picked, found = append(picked, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no client is called %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return picked, nil
}

// Names are those that Select knows, besides "all".
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return names
}

// Leg is how a client reaches PostgreSQL.
type Leg int

// The legs, in the order that they are played in.
const (
	Straight  Leg = iota // to PostgreSQL itself
	Untagged             // through the proxy
	Tagged               // through the proxy, holding a lock
	Encrypted            // as Tagged, with sslmode=require
	Stale                // as Tagged, until the lock is lost
)

func (l Leg) String() string {
	switch l {
	case Straight:
		return "straight"
	case Untagged:
		return "untagged"
	case Tagged:
		return "tagged"
	case Encrypted:
		return "encrypted"
	case Stale:
		return "stale"
	default:
		return fmt.Sprintf("Leg(%d)", int(l))
	}
}
