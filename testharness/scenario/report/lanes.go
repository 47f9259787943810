package report

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// lanesOf returns the names of the lanes that events need, from left to
// right: workers in the order in which they come in, etcd, proxies,
// PostgreSQL.
func lanesOf(events []scenario.Event) []string {
	var workers, proxies []string
	etcd := false
	seen := map[string]bool{"": true}
	add := func(list []string, name string) []string {
		if seen[name] {
			return list
		}
		seen[name] = true
		return append(list, name)
	}
	for _, e := range events {
		switch {
		case e.Actor == scenario.LaneEtcd:
			etcd = true
		case e.Actor == scenario.LanePostgres:
		case isProxy(e.Actor):
			proxies = add(proxies, e.Actor)
		default:
			workers = add(workers, e.Actor)
		}
		proxies = add(proxies, e.Via)
	}
	if etcd {
		workers = append(workers, scenario.LaneEtcd)
	}
	if len(proxies) == 2 && proxies[0] > proxies[1] {
		proxies[0], proxies[1] = proxies[1], proxies[0]
	}
	return append(append(workers, proxies...), scenario.LanePostgres)
}

func isProxy(name string) bool { return strings.HasPrefix(name, scenario.LaneProxy) }

// wrap breaks text into lines of at most width characters, at spaces where
// that can be.
func wrap(text string, width int) []string {
	var lines []string
	line := []rune{}
	for _, word := range strings.Fields(text) {
		runes := []rune(word)
		if len(line) > 0 && len(line)+1+len(runes) <= width {
			line = append(append(line, ' '), runes...)
			continue
		}
		if len(line) > 0 {
			lines = append(lines, string(line))
		}
		for len(runes) > width {
			lines = append(lines, string(runes[:width]))
			runes = runes[width:]
		}
		line = append([]rune{}, runes...)
	}
	return append(lines, string(line))
}
