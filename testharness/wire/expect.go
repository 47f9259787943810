package wire

import (
	"fmt"
	"strings"
)

// A Want is one message that must come, by its letter, with as much of it as
// the script says in parentheses:
//
//	Z(I)  C(INSERT 0 1)  E(42601)  N(01000)  S(TimeZone=UTC)  A(channel)
//	D(1|\N|text)  T(id|name)  t(23|25)  R(0)  V(1)  d(1\ta)  v(0)
//
// E(FATAL 57P01) gives the severity too, S(TimeZone) leaves the value out. D* is any number of D, none too;
// what follows it is another letter. end is the end of the connection;
// byte(N) is one byte outside all messages, and rest all bytes up to the end.
// A ... stands for whatever comes before what follows it; where the connection
// ends there, so does the script.
type Want struct {
	Letter string
	Detail string
	Any    bool
}

// What stands in place of a letter where no message comes.
const (
	letterEnd  = "end"
	letterByte = "byte"
	letterRest = "rest"
	letterSkip = "..."
	letterTLS  = "tls"
)

func (w Want) String() string {
	s := w.Letter
	if w.Any {
		s += "*"
	}
	if w.Detail != "" {
		s += "(" + w.Detail + ")"
	}
	return s
}

// matches says whether what came is what was to come.
func (w Want) matches(e Event) bool {
	if w.Letter != e.Letter {
		return false
	}
	switch w.Detail {
	case "", e.Detail:
		return true
	}
	switch w.Letter {
	case "E":
		return "ERROR "+w.Detail == e.Detail
	case "S":
		return strings.HasPrefix(e.Detail, w.Detail+"=")
	}
	return false
}

// parseWants reads what stands behind a <.
func parseWants(text string) (wants []Want, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		var w Want
		end := strings.IndexAny(text, " (*")
		if end < 0 {
			end = len(text)
		}
		w.Letter, text = text[:end], text[end:]
		switch w.Letter {
		case letterEnd, letterByte, letterRest, letterSkip:
		default:
			if len(w.Letter) != 1 {
				return nil, fmt.Errorf("%q is no message", w.Letter)
			}
		}
		if strings.HasPrefix(text, "*") {
			w.Any, text = true, text[1:]
		}
		if strings.HasPrefix(text, "(") {
			if w.Detail, text, err = inParentheses(text); err != nil {
				return nil, err
			}
		}
		wants = append(wants, w)
	}
	if n := len(wants); n > 0 && (wants[n-1].Any || wants[n-1].Letter == letterSkip) {
		return nil, fmt.Errorf("nothing tells where %v ends", wants[n-1])
	}
	return wants, nil
}

// inParentheses cuts off a text in parentheses, which may have others in it.
func inParentheses(text string) (inside, rest string, err error) {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[1:i], text[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("%q is not closed", text)
}
