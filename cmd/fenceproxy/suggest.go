package main

import "github.com/fenceproxy/fenceproxy/proxy/spelling"

// didYouMean is what an error about an unknown name says of the nearest one, as
// form writes it; "" if there is none.
func didYouMean(name string, known []string, form func(string) string) string {
	best := spelling.Nearest(name, known)
	if best == "" {
		return ""
	}
	return "; did you mean " + form(best) + "?"
}

// withList puts what lists the known names behind what didYouMean has said.
func withList(suggestion, where string) string {
	if suggestion == "" {
		return "; " + where
	}
	return suggestion + " " + where
}

// asItIs is the form of names that are written as they are known.
func asItIs(name string) string { return name }
