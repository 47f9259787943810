// Package spelling finds what somebody meant who misspelled a name. Errors about
// settings, subcommands and the console's commands propose it; nothing is ever
// done by it.
package spelling

import "strings"

// Nearest returns the known word that is spelled most like name, "" if none is
// close: one letter of four may be wrong, and three at most. Or name is how one of
// the words begins, and no other.
func Nearest(name string, known []string) string {
	best, least := "", min(1+len(name)/4, 3)+1
	for _, k := range known {
		if d := distance(name, k); d < least || d == least && best != "" && k < best {
			best, least = k, d
		}
	}
	if best == "" {
		return begun(name, known)
	}
	return best
}

// begun is the only word that begins with name, which has letters enough to tell.
func begun(name string, known []string) (word string) {
	for _, k := range known {
		switch {
		case len(name) < 3 || !strings.HasPrefix(k, name):
		case word != "":
			return ""
		default:
			word = k
		}
	}
	return word
}

// distance is the number of letters to change, add or drop, or of neighbours
// to swap (optimal string alignment).
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
