package scenario

import "github.com/fenceproxy/fenceproxy/fencing"

func cutOff() Story {
	return Story{
		Name:  "cut-off",
		Title: "A machine is cut off from etcd, but not from PostgreSQL",
		Case:  8,
		Text: "A has got a lock and hasn't shown it yet; C, on the same machine, works under another one. The machine is cut\n" +
			"off from etcd, and A's lease runs out. What the proxy can't verify it refuses; what it has verified goes on.",
		Tables:   twoOrders,
		Result:   orderResult + " ORDER BY id",
		Wrong:    orderWrong + " AND id = 8472 UNION ALL SELECT 'C could not go on' FROM orders WHERE id = 9000 AND state <> 'paid'",
		Right:    "8472 paid, says B, and 9000 paid, says C",
		Controls: []Arm{ArmEtcd},
		Codes:    []fencing.Code{fencing.CodeUnverified, fencing.CodeStale},
		Must:     fencing.CodeUnverified,
		Play:     playCutOff,
	}
}

func playCutOff(s *Stage) {
	other := func(state string) Act {
		return write("sets the other order to "+state, "UPDATE orders SET state = $1, written_by = 'C' WHERE id = 9000", state)
	}
	a, b := s.Worker("A"), s.Worker("B")
	c := s.Beside(a, "C")
	c.TakeOver("order:9000", other("packed"))
	a.Lock(orderKey)
	b.LineUp(orderKey)
	a.CutOff()
	c.Do(other("shipped"))
	s.AwaitExpiry(a)
	a.Connect()
	a.Do(setOrder("A", "packed"))
	b.Locked(orderKey)
	b.Connect()
	b.Do(setOrder("B", "paid"))
	c.Do(other("paid"))
	a.Join()
	a.Do(setOrder("A", "shipped"))
}

// busyRevisions is how far etcd has come before it is replaced.
const busyRevisions = 100

func replacedEtcd() Story {
	return Story{
		Name:  "replaced-etcd",
		Title: "etcd is replaced by an empty one, and numbers begin again",
		Case:  6,
		Text: "A holds the lock with a high number. etcd is lost and made anew: B, the holder now, has a low number. If the\n" +
			"highest number wins, B is locked out and A goes on. fenceproxy takes no number from another etcd until an operator says so.",
		Tables: workTables, Result: workResult, Tokens: []string{"done"},
		Wrong: lockedOut("B") + ` UNION ALL SELECT 'A, whose lock is gone, went on when B had it' FROM done WHERE worker = 'A'
			HAVING count(*) > 1`,
		Right:    "done by A, before, and by B",
		Controls: []Arm{ArmHomemade},
		Codes:    append([]fencing.Code{fencing.CodeLineage, fencing.CodeNotHolder}, tookOver...),
		Must:     fencing.CodeLineage,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			s.busy(busyRevisions)
			a.TakeOver(workKey, doWork("A"))
			old := a.hold()
			s.ReplaceEtcd()
			b.TakeOver(workKey, doWork("B"))
			if s.Arm == ArmFenced {
				s.AdoptEtcd()
				b.Connect()
				b.Do(doWork("B"))
				a.ConnectWith(" again, with the number that it has", old)
			}
			a.Do(doWork("A"))
		},
	}
}
