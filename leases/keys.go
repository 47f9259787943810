package leases

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// DefaultPrefix is where locks live in etcd.
const DefaultPrefix = "/fenceproxy/locks/"

// LockPrefix returns the name to give to etcd's concurrency.NewMutex, or to
// `etcdctl lock`, to take the lock of a resource key: prefix, which ends in a
// slash, and the key escaped as a URL path segment. The escaping is what
// keeps a held lock a/b from looking like a waiter on a; a plain key such as
// order:8472 stays as it is.
//
// etcd's clients put a slash and their lease ID in hex behind it, and that is
// the key whose create revision is the token.
func LockPrefix(prefix, key string) string {
	return prefix + url.PathEscape(key)
}

// checkKey refuses what no tag could carry, so that nobody holds a lock that
// they could never present.
func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > fencing.MaxKeyLen:
		return fmt.Errorf("%w: a key of %d bytes is over the limit of %d", ErrInvalid, len(key), fencing.MaxKeyLen)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: the key is not valid UTF-8 text", ErrInvalid)
	}
	return nil
}

// show returns key as it stands in messages: bare if it is plain text of a
// sane length, else quoted and cut, so that it can't forge a line of a log.
func show(key string) string {
	const most = 128
	cut := len(key) > most
	if cut {
		key = strings.ToValidUTF8(key[:most], "")
	}
	plain := strings.IndexFunc(key, func(r rune) bool { return !unicode.IsGraphic(r) }) < 0
	switch {
	case cut:
		return strconv.Quote(key) + "…"
	case plain:
		return key
	default:
		return strconv.Quote(key)
	}
}
