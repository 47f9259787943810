package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A grid is a table of text; its first row is the heading.
type grid [][]string

// String writes the grid as Markdown whose columns stand below each other.
func (g grid) String() string {
	var widths []int
	for _, cells := range g {
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for n, cells := range g {
		for i, cell := range cells {
			out.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + " ")
		}
		out.WriteString("|\n")
		if n == 0 {
			for _, width := range widths {
				out.WriteString("|" + strings.Repeat("-", width+2))
			}
			out.WriteString("|\n")
		}
	}
	return out.String()
}

// figures is the table of what was measured.
func figures(rows []row) grid {
	g := grid{{"workload", "clients", "way", "a second", "of direct", "p50 ms", "p99 ms", "CPU µs", "user", "kB"}}
	for _, r := range rows {
		if r.err == nil && len(r.rounds) == 0 {
			continue // the run was over before
		}
		ratio := "–"
		if first, ok := find(rows, r.workload.name, r.workload.clients, direct.String()); ok {
			ratio = spreadText(r.against(first, rate))
		}
		if r.err != nil {
			ratio = "failed"
		}
		g = append(g, []string{
			r.workload.name, fmt.Sprint(r.workload.clients), r.contender.name, r.speed(), ratio,
			number(r.of(p50).median, 3), number(r.of(p99).median, 3), number(r.of(cpu).median, 1), number(r.of(user).median, 1), number(r.of(memory).median, 1),
		})
	}
	return g
}

// speed is the median rate, and how far the rounds stray from the middle.
func (r row) speed() string {
	s := r.of(rate)
	if math.IsNaN(s.median) {
		return "–"
	}
	text := fmt.Sprintf("%.0f ±%.0f%%", s.median, 50*(s.most-s.least)/s.median)
	if r.workload.unit == "MB" {
		text = strings.Replace(text, " ", " MB ", 1)
	}
	return text
}

// spreadText is a median with the least and the most.
func spreadText(s spread) string {
	if math.IsNaN(s.median) {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.least, s.most)
}

// number is a number with some decimals, or a dash for none.
func number(v float64, decimals int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// find returns the row of a contender; false if it wasn't measured.
func find(rows []row, workload string, clients int, contender string) (row, bool) {
	for _, r := range rows {
		if r.workload.name == workload && r.workload.clients == clients && r.contender.name == contender {
			return r, r.err == nil && len(r.rounds) > 0
		}
	}
	return row{}, false
}
