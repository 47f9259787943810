package scenario

import "github.com/fenceproxy/fenceproxy/fencing"

// The stories of wrong numbers share a list of work that is done.
const (
	workKey    = "job:17"
	workTables = `CREATE TABLE done (nr int GENERATED ALWAYS AS IDENTITY, worker text)`
	workResult = `SELECT pg_catalog.format('done by %s', worker) FROM done ORDER BY nr`
)

func doWork(worker string) Act {
	return write("does its work", "INSERT INTO done (worker) VALUES ($1)", worker)
}

// intruded tells of work by one who never held the lock, and lockedOut of
// a holder that couldn't work.
func intruded(worker string) string {
	return `SELECT pg_catalog.format('%s never held the lock, and did the work', worker) FROM done WHERE worker = '` + worker + `'`
}

func lockedOut(worker string) string {
	return `SELECT 'the holder ` + worker + ` was locked out' WHERE NOT EXISTS (SELECT FROM done WHERE worker = '` + worker + `')`
}

func phantomLock() Story {
	return Story{
		Name:  "phantom-lock",
		Title: "Lock() returns although the lease died while it waited",
		Case:  3,
		Text: "P stands in line behind B, and its lease runs out there. Its client library doesn't look, waits until\n" +
			"B is done, and tells P that the lock is its own. C holds it.",
		Tables: workTables, Result: workResult,
		Wrong:    intruded("P") + " UNION ALL " + lockedOut("B") + " UNION ALL " + lockedOut("C"),
		Right:    "done by B and by C",
		Controls: []Arm{ArmEtcd},
		Codes:    []fencing.Code{fencing.CodeNotHolder, fencing.CodeStale},
		Play: func(s *Stage) {
			b, p, c := s.Worker("B"), s.Worker("P"), s.Worker("C")
			b.TakeOver(workKey, doWork("B"))
			place := p.StandInLine(workKey, false)
			s.Await("P's place in line to run out", func() (bool, error) { return s.gone(place) })
			s.Note("P's lease has run out while it waited. Nobody tells it.")
			b.Release()
			c.Lock(workKey)
			p.ConnectWith(" in the belief that it holds the lock", place)
			p.Do(doWork("P"))
			c.Connect()
			c.Do(doWork("C"))
		},
	}
}

func waiter() Story {
	return Story{
		Name:  "waiter",
		Title: "A waiter shows its own number, which is higher than the holder's",
		Case:  4,
		Text: "W stands in line behind B. Its key in etcd is younger than B's, so its number is higher: if the highest\n" +
			"number wins, W's does, and the holder is locked out.",
		Tables: workTables, Result: workResult, Tokens: []string{"done"},
		Wrong:    intruded("W") + " UNION ALL " + lockedOut("B"),
		Right:    "done by B",
		Controls: []Arm{ArmEtcd, ArmHomemade},
		Codes:    []fencing.Code{fencing.CodeNotHolder},
		Play: func(s *Stage) {
			b, w := s.Worker("B"), s.Worker("W")
			b.Lock(workKey)
			w.ConnectWith(" with the number of its place in line", w.StandInLine(workKey, true))
			w.Do(doWork("W"))
			b.Connect()
			b.Do(doWork("B"))
		},
	}
}

func headerRevision() Story {
	return Story{
		Name:  "header-revision",
		Title: "A holder shows the revision of an answer instead of its token",
		Case:  5,
		Text: "B has waited for the lock and takes the revision of the last answer for its token, as ETCD_LOCK_REV of\n" +
			"etcdctl is. It is too high: C, next in line since long, has a lower one. So B's has to be refused, and B be told.",
		Tables: workTables, Result: workResult, Tokens: []string{"done"},
		Wrong:    lockedOut("B") + " UNION ALL " + lockedOut("C"),
		Right:    "done by B, with the right number, and by C",
		Controls: []Arm{ArmHomemade},
		Codes:    []fencing.Code{fencing.CodeNotHolder},
		Play:     playHeaderRevision,
	}
}

func playHeaderRevision(s *Stage) {
	a, b, c := s.Worker("A"), s.Worker("B"), s.Worker("C")
	a.Lock(workKey)
	b.LineUp(workKey)
	s.inLine(2, workKey)
	c.LineUp(workKey)
	s.inLine(3, workKey)
	a.Release()
	b.Locked(workKey)
	right := b.hold()
	b.ConnectWith(" with the revision of an answer", Hold{workKey, s.Revision()})
	b.Do(doWork("B"))
	b.ConnectWith(" again, with the token that the hint names", right)
	b.Do(doWork("B"))
	b.Release()
	c.Locked(workKey)
	c.Connect()
	c.Do(doWork("C"))
}
