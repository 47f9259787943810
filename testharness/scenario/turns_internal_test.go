package scenario

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Who is at work is whoever has read and not written yet, under the highest token:
// not who was at work last, and not who has lost the lock and not noticed.
func TestAtWork(t *testing.T) {
	worker := func(all ...Turn) *Actor {
		a := &Actor{}
		for _, turn := range all {
			a.turns.note(turn)
		}
		return a
	}
	turn := func(token fencing.Token, done bool) Turn { return Turn{Hold: Hold{counterKey, token}, Done: done} }
	idle, lost, last := worker(), worker(turn(3, false)), worker(turn(9, false))
	finished := worker(turn(8, false), turn(8, true))
	holder := worker(turn(2, false), turn(2, true), turn(7, false))
	for _, c := range []struct {
		name    string
		workers []*Actor
		want    *Actor
	}{
		{"nobody", []*Actor{idle, finished, last}, nil},
		{"the holder", []*Actor{idle, lost, holder, finished, last}, holder},
		{"in another order", []*Actor{holder, lost, last, finished, idle}, holder},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, at := atWork(c.workers, last)
			if got != c.want || got != nil && at != turn(7, false) {
				t.Errorf("got %+v, %+v, want %+v", got, at, c.want)
			}
		})
	}
}

// A turn tells what its write was answered.
func TestTurn_End(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Turn
	}{
		"accepted": {nil, Turn{Done: true}},
		"refused":  {&pgconn.PgError{Code: "LF001", Message: "stale"}, Turn{Done: true, Code: fencing.CodeStale, Error: "stale"}},
		"broken":   {errors.New("no answer"), Turn{Done: true, Error: "no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Turn
			got.end(c.err)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
