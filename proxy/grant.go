package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// granted is what fence.acquire, fence.renew and fence.release look for in the
// setting fence.grant, which lasts to the end of the transaction. A client can
// make one up: what it gets by it is a tag, as by SET, which the check refuses
// unless it was claimed.
type granted struct {
	Do     string        `json:"do"`
	Key    string        `json:"key"`
	Token  fencing.Token `json:"token,omitempty"`
	Left   int64         `json:"left_ms"`
	Held   bool          `json:"held"`
	Tokens *string       `json:"tokens,omitempty"` // what fence.tokens becomes
}

const (
	grantName = reserved + "grant"
	grantSet  = "SELECT pg_catalog.set_config('fence.grant', "
	grantSQL  = grantSet + "$1, true)"
)

func newGrant(g granted) grant { return grant{key: g.Key, text: asciiJSON(g)} }

// inText is the grant as a statement of a Query.
func (g grant) inText() string {
	quote := dollarTag('g', g.text)
	return grantSet + quote + g.text + quote + ", true);"
}

// sendGrant sends a grant before the Execute that it is for.
func (s *session) sendGrant(g grant) error {
	if g.text == "" {
		return nil
	}
	var b batch
	b.add(queue.Close, queue.Grant, wire.AppendClose(b.bytes, 'S', grantName))
	b.add(queue.Parse, queue.Grant, wire.AppendParse(b.bytes, grantName, grantSQL))
	b.add(queue.Bind, queue.Grant, wire.AppendBindText(b.bytes, grantName, grantName, g.text))
	b.add(queue.Execute, queue.Grant, wire.AppendExecute(b.bytes, grantName))
	b.add(queue.Close, queue.Grant, wire.AppendClose(b.bytes, 'P', grantName))
	b.add(queue.Close, queue.Grant, wire.AppendClose(b.bytes, 'S', grantName))
	return s.send(&b)
}

// withLock returns what fence.tokens is with a lock in it, or with 0 without.
func withLock(tokens, key string, token fencing.Token) (string, error) {
	tag, err := fencing.ParseTag("", "", tokens)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", fencing.SettingTokens, err)
	}
	if tag.Token(key) == token {
		return tokens, nil
	}
	all := make(map[string]fencing.Token, len(tag)+1)
	for _, p := range tag {
		all[p.Key] = p.Token
	}
	if all[key] = token; token == 0 {
		delete(all, key)
	}
	if len(all) == 0 {
		return "", nil
	}
	return asciiJSON(all), nil
}

// asciiJSON encodes what has no values that JSON doesn't know. There is nothing
// above ASCII in it, so that it is the same in every client_encoding.
func asciiJSON(v any) string {
	plain, err := json.Marshal(v)
	if err != nil {
		return "" // not reached; it is no grant
	}
	var out strings.Builder
	for _, r := range string(plain) {
		switch {
		case r < 0x80:
			out.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
