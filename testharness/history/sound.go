package history

import (
	"errors"
	"fmt"
)

// sound returns what is missing of an operation. What isn't said can't be held
// against anybody: a history in which it is missing would be found right by
// checkers that had nothing to judge.
func (o *Op) sound() error {
	switch {
	case o.Worker == "" || o.Seq <= 0:
		return errors.New("an operation needs a worker and a seq")
	case o.Kind == 0:
		return fmt.Errorf("operation %d of %s has no kind", o.Seq, o.Worker)
	case o.Invoke <= 0:
		return fmt.Errorf("%s doesn't say when it began", o)
	case o.Outcome != OutcomeUnknown && o.Return < o.Invoke:
		return fmt.Errorf("%s doesn't say when it was answered", o)
	case len(o.Tag) == 0:
		return fmt.Errorf("%s doesn't say under which lock", o)
	case o.Kind == KindWrite && len(o.Rows) == 0:
		return fmt.Errorf("%s doesn't say which rows", o)
	}
	for _, p := range o.Tag {
		// Which token one gets with a lock is known when one has it.
		if p.Key == "" || p.Token <= 0 && (o.Kind != KindAcquire || o.Outcome == OutcomeOK) {
			return fmt.Errorf("%s doesn't say under which key and token", o)
		}
	}
	for _, r := range o.Rows {
		if o.Token(r.Key) != r.Token {
			return fmt.Errorf("%s isn't under the lock of %s", o, r)
		}
	}
	if o.Seen == nil {
		return nil
	}
	switch token := o.Token(o.Key); {
	case token == 0:
		return fmt.Errorf("%s doesn't say which of its keys it read", o)
	case o.Seen.Floor >= token:
		return fmt.Errorf("%s looked at no lower tokens, with its floor at %d", o, o.Seen.Floor)
	}
	return nil
}

// follows returns what is wrong with a second line of an operation, of which
// there are two at most: one as it begins, and one as it ends. A name that two
// operations have would hide the former one.
func (o *Op) follows(first *Op) error {
	if first.Return != 0 || first.Outcome != OutcomeUnknown || o.Kind != first.Kind || o.Invoke != first.Invoke {
		return fmt.Errorf("%s has operation %d twice, as %s and as %s", o.Worker, o.Seq, first, o)
	}
	return nil
}
