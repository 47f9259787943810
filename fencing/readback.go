package fencing

import "strings"

// ReadSuperseded reads what the message of a refusal with CodeStale or CodeEvicted
// says, also of one that was passed on as text: the key, the token that was
// presented and the higher one. A key may itself look like such a message, so it is
// read from its end. ok is false for refusals for another reason.
func ReadSuperseded(message string) (key string, had, by Token, ok bool) {
	named := false
	for _, code := range [...]Code{CodeStale, CodeEvicted} {
		if rest, found := strings.CutPrefix(message, code.Name()+": "); found {
			message, named = rest, true
			break
		}
	}
	message = strings.TrimSuffix(message, sessionEnded)
	head, higher, found := cutLast(message, superseded)
	if !named || !found {
		return "", 0, 0, false
	}
	// "superseded in etcd by" is what sessions that follow etcd hear.
	higher = strings.TrimPrefix(strings.TrimPrefix(higher, "in etcd "), "by ")
	key, presented, found := cutLast(head, " token ")
	if !found {
		return "", 0, 0, false
	}
	had, err := ParseToken(presented)
	if err != nil {
		return "", 0, 0, false
	}
	by, err = ParseToken(higher)
	return key, had, by, err == nil
}

// The parts of those messages, in Go and in check.sql.
const (
	superseded   = " was superseded "
	sessionEnded = " and the session was ended"
)

// cutLast is strings.Cut at the last place where sep stands.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
