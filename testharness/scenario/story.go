package scenario

import "github.com/fenceproxy/fenceproxy/fencing"

// A Story is one way in which a lock holder goes wrong. It is played once
// with each of its controls and once through fenceproxy.
type Story struct {
	Name  string // as on the command line
	Title string // one line
	Case  int    // its number in docs/scenarios.md's list of cases; 0 for an everyday story
	Text  string // what happens, for a newcomer

	// Tables makes the story's tables. Result is a query of one column that
	// describes each row of the outcome; Wrong is one that returns a text for
	// each thing that is wrong with it, that the holders themselves couldn't write
	// too; Right says what is right.
	Tables, Result, Wrong, Right string

	Guard  map[string]string // key template of a guard by table, for fenced runs
	Tokens []string          // the tables that have the trigger of ArmHomemade

	Standby  Standby        // of PostgreSQL
	Serve    []string       // flags of fenceproxy serve
	Controls []Arm          // the runs that show the damage
	Codes    []fencing.Code // what may refuse through the proxy; at least one of them must
	Must     fencing.Code   // one of them that has to be heard, if it can be said which
	Live     bool           // to have lost the lock is enough to be refused, though nobody has claimed it

	Play func(*Stage)
}

// Standby says what standby PostgreSQL has in a story.
type Standby int

// The standbys.
const (
	StandbyNone         Standby = iota
	StandbyAsynchronous         // it may miss what was acknowledged
	StandbySynchronous          // nothing is acknowledged that it doesn't have
)

func (s Standby) String() string {
	switch s {
	case StandbyNone:
		return "none"
	case StandbyAsynchronous:
		return "asynchronous"
	case StandbySynchronous:
		return "synchronous"
	default:
		return "unknown"
	}
}

// Arms are the runs of a story, the protected one last.
func (s Story) Arms() []Arm { return append(s.Controls[:len(s.Controls):len(s.Controls)], ArmFenced) }

// Stories returns all there are, in the order in which to tell them.
func Stories() []Story {
	return []Story{
		pausedHolder(), pausedInTransaction(),
		monthlyInvoices(), nightlyInterest(), paymentWebhook(), lastLaptop(), campaign(), dailyReport(),
		phantomLock(), waiter(), headerRevision(),
		revokedLease(), liveLease(), forgottenTag(), idleSession(), twoLocks(), repeatableRead(),
		proxyCrash(), pausedProxy(), pipelinedBatch(),
		cutOff(), replacedEtcd(), lostClaim(), hungStandby(),
		pooledConnection(), rolledBackTag(),
		tamperedMark(), preparedTransaction(), roundTheProxy(),
		formerHolder(), vanishedHolder(), counter(),
	}
}
