package chaos

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// An Assignment is what a worker is told on its standard input, as one line of
// JSON. It works until that input ends, writes what it does to the file History
// as package history says, and a line of JSON, a Tally, to standard output now
// and then.
type Assignment struct {
	Name    string   `json:"name"`    // unique in a run
	Seed    uint64   `json:"seed"`    // of all that it draws
	Etcd    []string `json:"etcd"`    // endpoints
	Prefix  string   `json:"prefix"`  // what the etcd keys of locks start with
	Gates   []string `json:"gates"`   // DSNs, one a proxy
	Keys    []string `json:"keys"`    // the locks there are
	FirstID int64    `json:"first"`   // of the rows that it writes; ten million are its own
	History string   `json:"history"` // the file
	Lies    bool     `json:"lies"`    // whether it may present numbers that are no token
	// TTL bounds the leases that it asks for.
	LeastTTL time.Duration `json:"least_ttl"`
	MostTTL  time.Duration `json:"most_ttl"`
}

// idsOfWorker is how many ids are a worker's own.
const idsOfWorker = 10_000_000

// A Tally is what a worker has done since its last one.
type Tally struct {
	Writes    int                  `json:"writes"`    // rows that were acknowledged
	Commits   int                  `json:"commits"`   // transactions that they were written in
	Claims    int                  `json:"claims"`    // that were acknowledged
	Takeovers int                  `json:"takeovers"` // the first ones of a token
	Unknown   int                  `json:"unknown"`   // operations without an answer
	Refused   map[fencing.Code]int `json:"refused"`
}

// Add adds what another tally has.
func (t *Tally) Add(other Tally) {
	t.Writes += other.Writes
	t.Commits += other.Commits
	t.Claims += other.Claims
	t.Takeovers += other.Takeovers
	t.Unknown += other.Unknown
	if t.Refused == nil {
		t.Refused = map[fencing.Code]int{}
	}
	for code, n := range other.Refused {
		t.Refused[code] += n
	}
}

func (t *Tally) count(op *history.Op) {
	switch {
	case op.Kind != history.KindClaim && op.Kind != history.KindRead && op.Kind != history.KindWrite:
	case op.Outcome == history.OutcomeUnknown:
		t.Unknown++
	case op.Unsent():
	case op.Outcome == history.OutcomeRefused:
		t.Add(Tally{Refused: map[fencing.Code]int{op.Code: 1}})
	case op.Kind == history.KindClaim:
		t.Claims++
	case op.Kind == history.KindWrite:
		t.Writes += len(op.Rows)
		t.Commits++
	}
}

// A Workload is what the workers do, and what there is of it in the database.
type Workload struct {
	// Command starts a worker.
	Command []string
	// Setup are statements that make the tables, as the role of applications.
	Setup []string
	// Collect reads the tables when all is over, as a superuser.
	Collect func(context.Context, *pgx.Conn) (history.Tables, error)
}
