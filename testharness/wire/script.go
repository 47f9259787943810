package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// A Leg is a way that a script is played.
type Leg uint8

// The legs.
const (
	// Direct: straight to PostgreSQL. What comes there is right.
	Direct Leg = iota
	// Untagged: through the proxy.
	Untagged
	// Tagged: through the proxy, with the token of the current holder.
	Tagged
)

var legNames = [...]string{"direct", "untagged", "tagged"}

func (l Leg) String() string { return legNames[l] }

// A Where is what a condition of a script is held against.
type Where struct {
	Leg     Leg
	Version int // major version of the server
}

// holds says whether a condition does.
func (w Where) holds(condition string) (bool, error) {
	switch condition {
	case "tagged":
		return w.Leg == Tagged, nil
	case "proxied":
		return w.Leg != Direct, nil
	}
	versions, ok := strings.CutPrefix(condition, "pg")
	if !ok {
		return false, fmt.Errorf("%q is no condition", condition)
	}
	low, high, between := strings.Cut(versions, "-")
	from, open := strings.CutSuffix(low, "+")
	first, err := strconv.Atoi(from)
	last := first
	switch {
	case err == nil && between:
		last, err = strconv.Atoi(high)
	case open:
		last = w.Version
	}
	if err != nil {
		return false, fmt.Errorf("%q is no condition", condition)
	}
	return first <= w.Version && w.Version <= last, nil
}

// An Action is what a step of a script does.
type Action uint8

// The actions.
const (
	ActSend      Action = iota // messages, in one write or byte by byte
	ActExpect                  // messages that must come
	ActOn                      // go on with a session, opened if need be
	ActDial                    // a connection without a startup packet
	ActTLS                     // the handshake of TLS
	ActClose                   // the client goes
	ActHalfClose               // the client sends no more
	ActWait                    // until a query says true
	ActAdmin                   // SQL from aside
)

var actionNames = [...]string{"send", "expect", "on", "dial", "tls", "close", "half-close", "wait", "admin"}

func (a Action) String() string { return actionNames[a] }

// A Step is one action of a script.
type Step struct {
	Line     int
	Action   Action
	Messages []Message     // ActSend
	Split    bool          // ActSend
	Expect   []Alternative // ActExpect; the last whose condition holds counts
	Session  string        // ActOn, ActDial
	Params   []string      // ActOn: names and values of the startup packet; ActTLS: of what the client wants
	SQL      string        // ActWait, ActAdmin
}

// An Alternative is what must come where a condition holds; "" always does.
type Alternative struct {
	Condition string
	Wants     []Want
}

// wants returns what must come at a step.
func (s Step) wants(w Where) (wants []Want, err error) {
	for _, a := range s.Expect {
		holds := a.Condition == ""
		if !holds {
			if holds, err = w.holds(a.Condition); err != nil {
				return nil, err
			}
		}
		if holds {
			wants = a.Wants
		}
	}
	return wants, nil
}

// A Script is a conversation of one or more sessions with the server.
type Script struct {
	File, Name string
	Setup      []string // SQL that is carried out before
	Steps      []Step
	Only       []string // conditions that must hold for it to be played
	Untagged   string   // why it isn't played tagged
	Unix       string   // why it is played straight over a Unix socket
	Alone      string   // why no other script may be played at the same time
	// DiffersIn is the condition where its trace is another one, and Reason
	// says why that is right; "" means nowhere.
	DiffersIn, Reason string
	// FaultIn is the condition where the proxy is known to do the wrong thing,
	// and Fault says what it is.
	FaultIn, Fault string
}

// Plays says whether the script is for the place.
func (s *Script) Plays(w Where) (bool, error) {
	if w.Leg == Tagged && s.Untagged != "" {
		return false, nil
	}
	for _, condition := range s.Only {
		if holds, err := w.holds(condition); !holds {
			return false, err
		}
	}
	return true, nil
}

// Faulty says whether the script is known to fail.
func (s *Script) Faulty(w Where) (bool, error) {
	if s.FaultIn == "" {
		return false, nil
	}
	return w.holds(s.FaultIn)
}

// Differs says whether the trace may, and must, be another one than straight
// from the server.
func (s *Script) Differs(w Where) (bool, error) {
	if s.DiffersIn == "" {
		return false, nil
	}
	return w.holds(s.DiffersIn)
}
