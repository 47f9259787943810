package sqlrewrite

import "fmt"

// A Verb says what a LockCall wants of a lock.
type Verb uint8

const (
	// NoVerb: it is none.
	NoVerb Verb = iota
	// AcquireLock: fence.acquire(key [, ttl [, wait]]).
	AcquireLock
	// RenewLock: fence.renew(key).
	RenewLock
	// ReleaseLock: fence.release(key).
	ReleaseLock
)

// String is the name of the function in schema fence.
func (v Verb) String() string {
	switch v {
	case NoVerb:
		return "none"
	case AcquireLock:
		return "acquire"
	case RenewLock:
		return "renew"
	case ReleaseLock:
		return "release"
	}
	return fmt.Sprintf("verb %d", uint8(v))
}

// A LockCall is a statement that calls one of the functions that take, renew and
// give back a lock, and does nothing else:
//
//	SELECT fence.acquire('order:8472')
//	SELECT token FROM fence.acquire($1, ttl => '30s', wait => $2) AS lock
type LockCall struct {
	Verb           Verb
	Key, TTL, Wait LockArgument
}

// A LockArgument is one argument of a LockCall. The zero value was left out.
type LockArgument struct {
	Argument
	Given bool
	Param Param // what gives it, until Resolve
}

// arguments returns where the arguments go that stand without a name, in order.
func (c *LockCall) arguments() []*LockArgument {
	if c.Verb == AcquireLock {
		return []*LockArgument{&c.Key, &c.TTL, &c.Wait}
	}
	return []*LockArgument{&c.Key}
}

// IsBound reports whether a parameter gives an argument.
func (c *LockCall) IsBound() bool {
	return c != nil && (c.Key.Param.Number > 0 || c.TTL.Param.Number > 0 || c.Wait.Param.Number > 0)
}

// Resolve returns the call with the parameters that get returns, nil where that
// can't tell one.
func (c LockCall) Resolve(get func(Param) (Argument, bool)) *LockCall {
	for _, arg := range c.arguments() {
		if arg.Param.Number == 0 {
			continue
		}
		value, ok := get(arg.Param)
		if !ok {
			return nil
		}
		arg.Argument, arg.Param = value, Param{}
	}
	return &c
}

// lockCall reads a SELECT of one call, behind the SELECT.
func (p *settingParser) lockCall() *LockCall {
	before := *p
	call, ok := p.callInFence()
	if !ok {
		*p = before
		if !p.columns() {
			return nil
		}
		call, ok = p.callInFence()
	}
	if !ok {
		return nil
	}
	p.alias()
	if !p.atEnd() {
		return nil
	}
	return call
}

// columns reads columns of what FROM names, and the FROM. No expression is one:
// it could call what writes.
func (p *settingParser) columns() bool {
	for {
		if !p.accept("*") && !p.column() {
			return false
		}
		if p.accept("from") {
			return true
		}
		if !p.accept(",") {
			return false
		}
	}
}

// column reads a name, or the names of a table and its column, with a cast and
// an alias perhaps.
func (p *settingParser) column() bool {
	if !p.anyName() {
		return false
	}
	if p.accept(".") && !p.accept("*") && !p.anyName() {
		return false
	}
	if p.accept("::") {
		if _, ok := p.castType(); !ok {
			return false
		}
	}
	if !p.is("from") {
		p.alias()
	}
	return true
}

func (p *settingParser) anyName() bool {
	if p.is("from") || p.tok.kind != kindWord && p.tok.kind != kindQuoted {
		return false
	}
	p.take()
	return true
}

// callInFence reads fence.acquire(…), fence.renew(…) or fence.release(…).
func (p *settingParser) callInFence() (*LockCall, bool) {
	if name, ok := identValue(p.text, p.tok); !ok || name != "fence" {
		return nil, false
	}
	p.take()
	if !p.accept(".") {
		return nil, false
	}
	name, ok := identValue(p.text, p.tok)
	call := &LockCall{Verb: verbOf(name)}
	if !ok || call.Verb == NoVerb {
		return nil, false
	}
	p.take()
	return call, p.accept("(") && p.lockArguments(call)
}

func verbOf(name string) Verb {
	for _, v := range [...]Verb{AcquireLock, RenewLock, ReleaseLock} {
		if name == v.String() {
			return v
		}
	}
	return NoVerb
}

// lockArguments reads arguments by their place, then by their names, up to the
// parenthesis behind them.
func (p *settingParser) lockArguments(call *LockCall) bool {
	all, named := call.arguments(), false
	for n := 0; ; n++ {
		at := n
		if i := p.argumentName(); i >= 0 {
			at, named = i, true
		} else if named {
			return false
		}
		if at >= len(all) || all[at].Given || !p.lockArgument(all[at]) {
			return false
		}
		if p.accept(")") {
			return call.Key.Given
		}
		if !p.accept(",") {
			return false
		}
	}
}

// argumentName takes key =>, ttl => or wait =>, and returns the argument's place;
// -1 if no name follows, or another, which is no argument then.
func (p *settingParser) argumentName() int {
	before := *p
	name, ok := identValue(p.text, p.tok)
	if p.take(); ok && p.accept("=>") {
		for i, known := range [...]string{"key", "ttl", "wait"} {
			if name == known {
				return i
			}
		}
	}
	*p = before
	return -1
}

// lockArgument reads a constant, NULL or a parameter.
func (p *settingParser) lockArgument(arg *LockArgument) (ok bool) {
	arg.Given = true
	switch {
	case p.accept("null"):
		arg.Null = true
		return true
	case p.isParam():
		arg.Param, ok = p.param(ParamText)
		return ok
	}
	arg.Text, ok = p.constant()
	return ok
}
