package fencing

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// The settings that carry a tag. They are PostgreSQL's own custom settings,
// so SET LOCAL, RESET, ROLLBACK and DISCARD ALL mean what they always mean.
const (
	SettingKey    = "fence.key"
	SettingToken  = "fence.token"
	SettingTokens = "fence.tokens"
)

// MaxKeyLen bounds a resource key, in bytes. It keeps a key within one index
// entry of the table of marks (a third of a page, nbtree's BTMaxItemSize).
const MaxKeyLen = 2048

// MaxPairs bounds how many locks a tag names. Each of them is claimed, and compared
// with those of the tag before.
const MaxPairs = 1000

// A Pair is one lock that a session says it holds.
type Pair struct {
	Key   string
	Token Token
}

// A Tag is what a session presents: its pairs sorted by key, each key once.
// The empty Tag is an untagged session's.
type Tag []Pair

// ParseTag makes a tag of the values of the three settings; "" is unset. The
// single pair and the JSON object are a union. A key without a token, the
// reverse, or one key with two tokens is an *Error with CodeMalformedTag.
func ParseTag(key, token, tokens string) (Tag, error) {
	pairs := map[string]Token{}
	if tokens != "" {
		if err := parseTokens(pairs, tokens); err != nil {
			return nil, err
		}
	}
	switch {
	case key == "" && token == "":
	case key == "":
		return nil, incomplete(SettingToken, SettingKey)
	case token == "":
		return nil, incomplete(SettingKey, SettingToken)
	default:
		t, err := ParseToken(token)
		if err != nil {
			return nil, malformed("%s: %v", SettingToken, err)
		}
		if err := add(pairs, SettingKey, key, t); err != nil {
			return nil, err
		}
	}
	if len(pairs) == 0 {
		return nil, nil
	}
	tag := make(Tag, 0, len(pairs))
	for k, t := range pairs {
		tag = append(tag, Pair{k, t})
	}
	sort.Slice(tag, func(i, j int) bool { return tag[i].Key < tag[j].Key })
	return tag, nil
}

// parseTokens reads the JSON object of fence.tokens, one key at a time so
// that a key that stands twice is seen.
func parseTokens(pairs map[string]Token, text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return malformed("%s is not a JSON object", SettingTokens)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return malformed("%s is not a JSON object", SettingTokens)
		}
		value, err := dec.Token()
		number, ok := value.(json.Number)
		if err != nil || !ok {
			return malformed("%s: the token of %q is not a number", SettingTokens, clip(name.(string)))
		}
		t, err := ParseToken(number.String())
		if err != nil {
			return malformed("%s: %v", SettingTokens, err)
		}
		if err := add(pairs, SettingTokens, name.(string), t); err != nil {
			return err
		}
		if len(pairs) > MaxPairs {
			return malformed("%s names over %d keys", SettingTokens, MaxPairs)
		}
	}
	if _, err := dec.Token(); err != nil {
		return malformed("%s is not a JSON object", SettingTokens)
	}
	if dec.More() {
		return malformed("%s has text after its JSON object", SettingTokens)
	}
	return nil
}

func add(pairs map[string]Token, setting, key string, t Token) error {
	switch had, ok := pairs[key]; {
	case key == "":
		return malformed("%s names an empty key", setting)
	case len(key) > MaxKeyLen:
		return malformed("%s: a key of %d bytes is over the limit of %d", setting, len(key), MaxKeyLen)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return malformed("%s: the key is not valid UTF-8 text", setting)
	case ok && had != t:
		return malformed("key %q stands with two tokens, %d and %d", clip(key), had, t)
	}
	pairs[key] = t
	return nil
}

func malformed(format string, args ...any) *Error {
	return Refuse(CodeMalformedTag, format, args...).With("",
		"Set fence.key to the lock key and fence.token to the create revision of the holder's etcd key, or fence.tokens to a JSON object of both.")
}

func incomplete(have, want string) *Error {
	return Refuse(CodeMalformedTag, "%s is set but %s is not", have, want).With(
		"An incomplete tag lets reads through and refuses writes.",
		fmt.Sprintf("SET %s too, or RESET %s.", want, have))
}

// Token returns the token that the tag presents for key, or 0.
func (t Tag) Token(key string) Token {
	for _, p := range t {
		if p.Key == key {
			return p.Token
		}
	}
	return 0
}

func (t Tag) String() string {
	parts := make([]string, len(t))
	for i, p := range t {
		parts[i] = fmt.Sprintf("%s token %d", p.Key, p.Token)
	}
	return strings.Join(parts, ", ")
}
