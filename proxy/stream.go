package proxy

import (
	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// errHiddenTag ends an untagged session that sends a tag in a text too long
// to be held: by the time it is seen, the text before it is on its way.
var errHiddenTag error = fencing.Refuse(fencing.CodeNotFenceable, "a statement text of over %d bytes mentions a fence setting", maxText).
	With("", "Set the tag in a statement of its own, and send large values as bound parameters or with COPY.")

// stream relays a text that is too long to be held, and gives up in the
// middle if it turns out to mention a tag: PostgreSQL runs nothing of a
// message that doesn't end.
func (s *session) stream() error {
	var look mentions
	return s.inspect(func(chunk []byte) error {
		if look.in(chunk) {
			return errHiddenTag
		}
		return nil
	})
}

// mentions looks for a tag in a text that comes in chunks of any size.
type mentions struct {
	tail []byte // the end of what came before
}

// overlap is longer than a usual way to write a setting's name, in bytes.
const overlap = 256

func (m *mentions) in(chunk []byte) bool {
	seam := append(m.tail, chunk[:min(len(chunk), overlap)]...)
	found := sqlrewrite.MentionsFence(chunk) || sqlrewrite.MentionsFence(seam)
	if len(chunk) < overlap {
		chunk = seam
	}
	m.tail = append(m.tail[:0], chunk[max(0, len(chunk)-overlap):]...)
	return found
}
