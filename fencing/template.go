package fencing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The limits of templates.
const (
	// maxColumns keeps a template within the arguments that one SQL function
	// may have (FUNC_MAX_ARGS, 100).
	maxColumns = 16
	// maxName is the longest name that PostgreSQL keeps (NAMEDATALEN - 1).
	maxName = 63
	// maxKey is the longest resource key, in bytes.
	maxKey = 2048
)

// A Template says which lock a row of a guarded table needs: literal text with
// names of columns in braces, `order:{id}`. Without columns it is one key for
// the whole table.
type Template struct {
	text string
	// parts are literal text and names of columns by turns, literal text first.
	parts []string
}

// ParseTemplate reads a template. `{{` and `}}` stand for one brace each; a
// column's name stands as it is in the catalog, with its case.
func ParseTemplate(text string) (Template, error) {
	if strings.ContainsRune(text, 0) || len(text) > maxKey {
		return Template{}, fmt.Errorf("a key template has at most %d bytes, and none that is zero", maxKey)
	}
	t := Template{text: text, parts: []string{""}}
	for rest := text; rest != ""; {
		literal := &t.parts[len(t.parts)-1]
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			*literal += rest
			break
		}
		*literal += rest[:at]
		brace := rest[at : at+1]
		rest = rest[at+1:]
		if strings.HasPrefix(rest, brace) {
			*literal += brace
			rest = rest[1:]
			continue
		}
		if brace == "}" {
			return Template{}, errors.New("a } has no { before it; write }} for the character itself")
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			return Template{}, errors.New("a { has no } after it; write {{ for the character itself")
		case name == "" || len(name) > maxName || strings.Contains(name, "{"):
			return Template{}, fmt.Errorf("{%s} is not the name of a column", name)
		case len(t.parts) > 1 && *literal == "":
			// {a}{b} makes the same key of 1 and 23 as of 12 and 3.
			return Template{}, fmt.Errorf("{%s} follows another column directly: put a separator between them", name)
		}
		t.parts = append(t.parts, name, "")
		rest = after
	}
	if last := len(t.parts) - 1; last > 0 && t.parts[last] == "" {
		t.parts = t.parts[:last]
	}
	switch n := len(t.parts) / 2; {
	case n > maxColumns:
		return Template{}, fmt.Errorf("a key template names at most %d columns, not %d", maxColumns, n)
	case text == "":
		return Template{}, errors.New("a key template is empty")
	}
	return t, nil
}

// String returns the template as it was written.
func (t Template) String() string { return t.text }

// columns returns the names of the columns, each once.
func (t Template) columns() []string {
	var names []string
	for i := 1; i < len(t.parts); i += 2 {
		if !slices.Contains(names, t.parts[i]) {
			names = append(names, t.parts[i])
		}
	}
	return names
}
