package scram

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
)

const (
	// MaxUserlist bounds a userlist, in bytes.
	MaxUserlist = 64 << 20
	// maxField bounds a name or a password, in bytes (MAX_PASSWORD of
	// PgBouncer).
	maxField = 2048
)

// A Kind is what an Entry holds.
type Kind int

const (
	// KindSCRAM is a SCRAM-SHA-256 secret.
	KindSCRAM Kind = iota
	// KindPlain is a password.
	KindPlain
	// KindMD5 is an MD5 hash, with which nobody can log in by SCRAM.
	KindMD5
	// KindEmpty is an empty password, with which nobody can log in.
	KindEmpty
)

func (k Kind) String() string {
	switch k {
	case KindSCRAM:
		return "SCRAM-SHA-256 secret"
	case KindPlain:
		return "plain password"
	case KindMD5:
		return "MD5 hash"
	case KindEmpty:
		return "empty password"
	default:
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
}

// An Entry is what a userlist says of one user.
type Entry struct {
	User     string
	Line     int // of the file, from 1
	Kind     Kind
	Secret   Secret // KindSCRAM
	Password string // KindPlain
}

// String hides the password.
func (e Entry) String() string   { return fmt.Sprintf("%q: %s, line %d", e.User, e.Kind, e.Line) }
func (e Entry) GoString() string { return e.String() }

// Resolve returns the Secret of the entry. A plain password's has mock's salt
// and iteration count for the user and costs that many hashes: do it once.
// Errors: ErrMD5, ErrNoPassword, ErrIterations.
func (e Entry) Resolve(mock *Mock) (Secret, error) {
	switch e.Kind {
	case KindSCRAM:
		return e.Secret, nil
	case KindPlain:
		secret, _, err := Derive(e.Password, mock.Salt(e.User), mock.iterations)
		return secret, err
	case KindMD5:
		return Secret{}, fmt.Errorf("line %d: %w", e.Line, ErrMD5)
	default:
		return Secret{}, fmt.Errorf("line %d: %w", e.Line, ErrNoPassword)
	}
}

// A Userlist is the content of a file in the format of PgBouncer's
// userlist.txt:
//
//	;; a comment
//	"user" "SCRAM-SHA-256$…"  the rest of the line is ignored
//
// A quote inside a field is doubled. Of several entries for a user the last
// counts.
type Userlist struct {
	entries map[string]Entry
}

// ParseUserlist reads a file. Errors are ErrUserlist with the line's number;
// they never quote the file: where quotes are misplaced, even what looks like
// a user's name may be a password.
func ParseUserlist(text string) (*Userlist, error) {
	if len(text) > MaxUserlist {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrUserlist, MaxUserlist)
	}
	list := &Userlist{entries: map[string]Entry{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.Trim(line, " \t\v\f\r\n")
		if line == "" || line[0] == ';' {
			continue
		}
		entry, err := parseEntry(line)
		if err != nil {
			return nil, fmt.Errorf("%w, line %d: %w", ErrUserlist, number, err)
		}
		entry.Line = number
		list.entries[entry.User] = entry
	}
	return list, nil
}

// Lookup returns the entry of user.
func (l *Userlist) Lookup(user string) (Entry, bool) {
	entry, ok := l.entries[user]
	return entry, ok
}

// All returns the entries that count, one for each user, in no order.
func (l *Userlist) All() iter.Seq[Entry] { return maps.Values(l.entries) }

// Len returns the number of users.
func (l *Userlist) Len() int { return len(l.entries) }

// parseEntry reads a line that is neither empty nor a comment.
func parseEntry(line string) (Entry, error) {
	user, rest, err := parseField(line)
	if err != nil {
		return Entry{}, fmt.Errorf("user name: %w", err)
	}
	if user == "" {
		return Entry{}, errors.New("user name: it is empty")
	}
	password, _, err := parseField(strings.TrimLeft(rest, " \t\v\f"))
	if err != nil {
		return Entry{}, fmt.Errorf("password: %w", err)
	}
	entry := Entry{User: user}
	switch {
	case password == "":
		entry.Kind = KindEmpty
	case isMD5(password):
		entry.Kind = KindMD5
	case strings.HasPrefix(password, secretScheme+"$"):
		entry.Kind = KindSCRAM
		if entry.Secret, err = ParseSecret(password); err != nil {
			return Entry{}, fmt.Errorf("password: %w", err)
		}
	default:
		entry.Kind, entry.Password = KindPlain, password
	}
	return entry, nil
}

// parseField reads a quoted field from the start of text.
func parseField(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", errors.New("it does not begin with a double quote")
	}
	var field strings.Builder
	for rest = text[1:]; ; {
		part, after, closed := strings.Cut(rest, `"`)
		if !closed {
			return "", "", errors.New("it does not end with a double quote on its line")
		}
		if field.Len()+len(part) > maxField {
			return "", "", fmt.Errorf("it is longer than %d bytes", maxField)
		}
		field.WriteString(part)
		var doubled bool
		if rest, doubled = strings.CutPrefix(after, `"`); !doubled {
			break
		}
		field.WriteByte('"')
	}
	if value = field.String(); strings.IndexByte(value, 0) >= 0 {
		return "", "", errors.New("there is a NUL in it")
	}
	return value, rest, nil
}

// isMD5 tells as PostgreSQL does (get_password_type in crypt.c).
func isMD5(password string) bool {
	digits, ok := strings.CutPrefix(password, "md5")
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}
