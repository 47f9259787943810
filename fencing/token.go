package fencing

import (
	"fmt"
	"strconv"
)

// A Token is the create revision of the etcd key that makes its owner the
// holder of a lock. It is positive and grows with every new holder.
//
// It is not the header revision of any response, not the mod revision, and
// not a lease ID.
type Token int64

// ParseToken reads a token in base 10, as it stands in the setting
// fence.token. It accepts no sign, no space and no zero.
func ParseToken(s string) (Token, error) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("token %q is not a positive whole number", clip(s))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("token %q is not a positive whole number below 2^63", clip(s))
	}
	return Token(n), nil
}

func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// clip shortens what a client sent, for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
