package fencing

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// The times of a claim.
const (
	// DefaultEvictAfter is how long a claim waits for stale transactions
	// before it ends them.
	DefaultEvictAfter = 200 * time.Millisecond
	// DefaultClaimTimeout bounds the raising of a mark, waiting included.
	DefaultClaimTimeout = 5 * time.Second
	// DefaultVerifyTimeout bounds one question to etcd.
	DefaultVerifyTimeout = 2 * time.Second
)

// An Evictor ends sessions of this proxy.
type Evictor interface {
	// Evict starts to end every session that is tagged with key at a token
	// below below in database. It does not wait, and returns how many.
	Evict(database, key string, below Token) int
}

// An Observer hears what claims do, for metrics and logs. It is called from
// many goroutines and must not block.
type Observer interface {
	// ClaimDone is called once for each claim that was carried out, in the order
	// in which they ended. The claim's caller has its answer by then, or gets it
	// meanwhile; Close returns after the last call.
	ClaimDone(ClaimReport)
	// BackendEnded is called for each backend that a claim ended.
	BackendEnded(database, key string, b Blocker)
}

// A ClaimReport is what an Observer hears of one claim.
type ClaimReport struct {
	Database string
	Pair     Pair
	Outcome  Outcome
	Err      *Error // nil unless Outcome is OutcomeRefused
	Took     time.Duration
	Phases   Phases
	Timeline string // of the PostgreSQL that answered, with its system's number; "" if none did
	Evicted  int    // sessions of this proxy that were told to end
	Ended    int    // backends that were ended in PostgreSQL
	Epoch    int32  // of the lineage, as far as the Claimer knows
	Session  uint64 // of this proxy, that asked first: WithSession; 0: nobody said
}

// Phases are the parts of a claim that took time; 0 is one that didn't run.
type Phases struct {
	Verify time.Duration // etcd was asked
	Raise  time.Duration // PostgreSQL raised the mark, waiting for stale work included
	Evict  time.Duration // the part of Raise in which what blocked it was looked for and ended
}

// sessionKey is the context key of a session's number.
type sessionKey struct{}

// WithSession returns a context whose claims are reported as those of a
// session of the proxy.
func WithSession(ctx context.Context, session uint64) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

// An Outcome is how a claim ended.
type Outcome int

const (
	// OutcomeRefused: the claim failed, and the mark is where it was.
	OutcomeRefused Outcome = iota
	// OutcomeRaised: the mark was raised to the token.
	OutcomeRaised
	// OutcomeHeld: etcd confirmed the token, and the mark was there already.
	OutcomeHeld
	// OutcomeKnown: this Claimer had verified the token before, and the mark
	// is still there; etcd was not asked.
	OutcomeKnown
)

func (o Outcome) String() string {
	switch o {
	case OutcomeRefused:
		return "refused"
	case OutcomeRaised:
		return "raised"
	case OutcomeHeld:
		return "held"
	case OutcomeKnown:
		return "known"
	default:
		return "unknown"
	}
}

// Times bound the parts of a claim.
type Times struct {
	EvictAfter    time.Duration
	ClaimTimeout  time.Duration
	VerifyTimeout time.Duration
}

// A Claimer carries claims out. The exported fields may be set before the
// first claim.
type Claimer struct {
	Store     *Store
	Authority Authority
	Evictor   Evictor  // nil: there are no sessions to end
	Observer  Observer // nil: nobody listens
	Name      string   // who claims, for the table of marks; the host's name by default

	Times

	retimed atomic.Pointer[Times] // nil: Times count
	ctx     context.Context       // ends with Close
	cancel  context.CancelFunc
	flights singleflight.Group
	flown   atomic.Uint64 // numbers the flights in the order in which they begin
	hands   *hands
	known   *verified
	history history
	telling telling

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // Add under mu, and only while not closed
}

// NewClaimer returns a Claimer with the default times. The Store stays the
// caller's to close, after the Claimer.
func NewClaimer(store *Store, authority Authority, evictor Evictor) *Claimer {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Claimer{
		Store: store, Authority: authority, Evictor: evictor, Name: host,
		Times: Times{EvictAfter: DefaultEvictAfter, ClaimTimeout: DefaultClaimTimeout, VerifyTimeout: DefaultVerifyTimeout},
		ctx:   ctx, cancel: cancel, hands: newHands(ctx), known: newVerified(),
	}
}

// Retime gives the claims that begin from now on other times.
func (c *Claimer) Retime(to Times) { c.retimed.Store(&to) }

// times returns the times of this moment, which nobody changes any more.
func (c *Claimer) times() *Times {
	if now := c.retimed.Load(); now != nil {
		return now
	}
	return &c.Times
}

// Close breaks off the claims that run, and waits for them. What they have
// begun in PostgreSQL ends by itself, within the claim's time-out.
func (c *Claimer) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	c.hands.wait()
}

// enter counts a goroutine that Close waits for.
func (c *Claimer) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Add(1)
	return true
}

// Claim claims p in database: when it returns nil, etcd has confirmed p's
// token as the current holder's, and no transaction with a lower token for the
// key commits any more. Otherwise it returns an *Error with CodeStale,
// CodeNotHolder, CodeUnverified, CodeLineage, CodeClaimTimeout or
// CodeNotInstalled.
//
// Claims of the same pair at the same time are carried out together: an answer is
// never older than the question. ctx ends the caller's wait only; the claim goes on
// for the others.
func (c *Claimer) Claim(ctx context.Context, database string, p Pair) error {
	if p.Key == "" || len(p.Key) > MaxKeyLen || p.Token <= 0 {
		return malformed("a claim needs a key of 1 to %d bytes and a positive token", MaxKeyLen)
	}
	if !c.enter() {
		return closing(p)
	}
	defer c.running.Done()
	session, _ := ctx.Value(sessionKey{}).(uint64)
	result := make(chan *Error, 1)
	c.running.Add(1) // which has been counted for this call: nobody can be waiting for none
	c.hands.do(func() {
		defer c.running.Done()
		result <- c.carryOutTogether(database, p, session)
	})
	select {
	case refusal := <-result:
		if refusal != nil {
			mine := *refusal // it is shared, and callers may add to theirs
			return &mine
		}
		return nil
	case <-ctx.Done():
		return Refuse(CodeUnverified, "%s token %d: the wait for the claim was given up", p.Key, p.Token).Because(ctx.Err())
	}
}

func closing(p Pair) *Error {
	return Refuse(CodeUnverified, "%s token %d: the proxy is shutting down", p.Key, p.Token).With("", "Retry on a new connection.")
}

// A flight is one claim that was carried out, for all who asked for it meanwhile.
type flight struct {
	number  uint64
	refusal *Error
}

// carryOutTogether carries a claim out, or waits for one that somebody else has
// begun. What began before this caller asked may be over in PostgreSQL already and
// the mark higher by now, or etcd may have said who holds the lock when it was
// another: then it is asked once more, which begins after the question in any case.
func (c *Claimer) carryOutTogether(database string, p Pair, session uint64) *Error {
	asked := c.flown.Load()
	name := database + "\x00" + p.Key + "\x00" + p.Token.String()
	for {
		result, _, _ := c.flights.Do(name, func() (any, error) {
			number := c.flown.Add(1)
			return flight{number, c.carryOut(database, p, session)}, nil
		})
		f := result.(flight)
		if f.number > asked || f.refusal != nil && f.refusal.Code != CodeNotHolder {
			return f.refusal
		}
	}
}

// carryOut runs one claim and has the Observer told.
func (c *Claimer) carryOut(database string, p Pair, session uint64) *Error {
	began := time.Now()
	report := ClaimReport{Database: database, Pair: p, Session: session}
	report.Outcome, report.Err = c.steps(database, p, &report)
	report.Took, report.Epoch = time.Since(began), c.history.epoch(database)
	if c.Observer != nil {
		c.telling.claimDone(c.Observer, &c.running, report)
	}
	return report.Err
}

// steps takes the steps of a claim, in order: is it known, verify, evict, raise.
func (c *Claimer) steps(database string, p Pair, report *ClaimReport) (Outcome, *Error) {
	if done, refusal := c.isKnown(database, p, report); refusal != nil {
		return OutcomeRefused, refusal
	} else if done {
		return OutcomeKnown, nil
	}
	if refusal := c.learnLineage(database, p); refusal != nil {
		return OutcomeRefused, refusal
	}
	v, refusal := c.verify(database, p, report)
	if refusal != nil {
		return OutcomeRefused, c.orStale(database, p, refusal)
	}
	if c.Evictor != nil && c.history.fits(database, v) {
		report.Evicted = c.Evictor.Evict(database, p.Key, p.Token)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.times().ClaimTimeout)
	defer cancel()
	for range raiseTries {
		r, refusal := c.raise(ctx, database, p, v, report)
		if refusal != nil {
			return OutcomeRefused, refusal
		}
		c.history.saw(database, r.where.Epoch)
		report.Timeline = r.where.history()
		switch r.outcome {
		case outcomeRaised, outcomeHeld:
			c.known.add(database, p, r.where)
			c.history.add(database, p.Token, v)
			if r.outcome == outcomeHeld {
				return OutcomeHeld, nil
			}
			return OutcomeRaised, nil
		case outcomeForeign:
			return OutcomeRefused, lineage(p, "etcd cluster %s is not the one that the marks in database %s came from", v.Cluster, database)
		case outcomeStale, outcomeBehind, outcomeReplaced:
			if v, refusal = c.again(database, p, r, report); refusal != nil {
				return OutcomeRefused, refusal
			}
		default:
			return OutcomeRefused, Refuse(CodeUnverified, "%s token %d: fence.claim answered %q", p.Key, p.Token, r.outcome)
		}
	}
	return OutcomeRefused, Refuse(CodeUnverified, "%s token %d: the marks moved %d times during the claim", p.Key, p.Token, raiseTries).
		With("", "Retry.")
}

// raiseTries bounds how often a claim starts over because a mark was raised
// after its verification; each time takes another claim in the same instant.
const raiseTries = 4

// isKnown says whether this Claimer has verified p before, on this very
// PostgreSQL, and the mark is still there. Then etcd needn't be asked: a holder
// goes on while etcd is away.
func (c *Claimer) isKnown(database string, p Pair, report *ClaimReport) (bool, *Error) {
	where, ok := c.known.get(database, p)
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.times().ClaimTimeout)
	defer cancel()
	m, here, err := c.Store.mark(ctx, database, p.Key)
	if err == nil {
		c.history.saw(database, here.Epoch)
		report.Timeline = here.history()
	}
	switch {
	case err != nil:
		return false, c.Store.refusal(database, p, err)
	case here != where || !m.Comparable || m.Token < p.Token:
		return false, nil
	case m.Token > p.Token:
		return false, stale(p, m)
	}
	return true, nil
}

// verify asks the Authority, in the lineage that is known now.
func (c *Claimer) verify(database string, p Pair, report *ClaimReport) (Verification, *Error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.times().VerifyTimeout)
	defer cancel()
	epoch := c.history.epoch(database)
	began := time.Now()
	v, err := c.Authority.Verify(ctx, p.Key, p.Token)
	report.Phases.Verify += time.Since(began)
	v.epoch = epoch
	if err == nil {
		return v, nil
	}
	var refusal *Error
	if errors.As(err, &refusal) {
		return v, refusal
	}
	return v, Refuse(CodeUnverified, "%s token %d could not be verified with etcd", p.Key, p.Token).
		With("", "Retry. Sessions that were claimed before go on.").Because(err)
}

// orStale answers a token that etcd didn't confirm: stale if it is below the
// mark, whatever etcd said, and otherwise etcd's refusal.
func (c *Claimer) orStale(database string, p Pair, refusal *Error) *Error {
	ctx, cancel := context.WithTimeout(c.ctx, c.times().VerifyTimeout)
	defer cancel()
	m, _, err := c.Store.mark(ctx, database, p.Key)
	switch {
	case notInstalled(err):
		return c.Store.refusal(database, p, err)
	case err == nil && m.Comparable && m.Token > p.Token:
		return stale(p, m)
	}
	return refusal
}

// again verifies anew after a mark was seen that contradicts the verification.
// Mostly the mark is just younger. But if etcd, asked after the mark was seen,
// still knows less than the mark says, then its history went backwards: a
// revision never falls, and a former holder never becomes the holder again.
func (c *Claimer) again(database string, p Pair, r raised, report *ClaimReport) (Verification, *Error) {
	v, refusal := c.verify(database, p, report)
	switch {
	case refusal != nil && r.outcome == outcomeReplaced:
		return v, c.orStale(database, p, refusal)
	case refusal != nil && r.mark.Token > p.Token:
		return v, stale(p, r.mark)
	case refusal != nil:
		return v, refusal
	case r.outcome == outcomeReplaced:
		return v, nil // what was read before tells nothing of this etcd
	case v.Revision < r.highest:
		return v, lineage(p, "etcd is at revision %d, and was at %d before", v.Revision, r.highest)
	case r.outcome == outcomeStale:
		return v, lineage(p, "etcd names it the holder's, but token %d was accepted before", r.mark.Token)
	}
	return v, nil
}
