package scenario

import "github.com/fenceproxy/fenceproxy/fencing"

func liveLease() Story {
	return ofOrder(Story{
		Name:  "live-lease",
		Title: "The same, and nobody may write without a live lock (--fencing live)",
		Case:  7,
		Text: "An operator revokes the lease of A, and nobody else wants the lock. With --fencing live the proxy watches the\n" +
			"locks in etcd, and refuses A all the same, as soon as it has seen that its lock is gone.",
		Wrong: `SELECT pg_catalog.format('%s, and not packed: A went on without a lock, or could not write with it', state) FROM orders WHERE state <> 'packed'`,
		Right: "packed, says A",
		Serve: []string{"--fencing", "live"},
		Live:  true,
		Codes: []fencing.Code{fencing.CodeStale},
		Play: func(s *Stage) {
			a := s.Worker("A")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.Revoke(a, orderKey)
			if s.Arm == ArmFenced {
				a.UntilRefused(readOrder())
			}
			a.Do(setOrder("A", "shipped"))
		},
	})
}

func forgottenTag() Story {
	return ofOrder(Story{
		Name:  "forgotten-tag",
		Title: "A worker holds the lock and forgets to show its token (--untagged-writes reject)",
		Text: "A and B lock as they should, but A's program has no line that tags its session, so nobody could tell that it\n" +
			"is stale. With --untagged-writes reject that is found at its first write, and not when it has done harm.",
		Serve: []string{"--untagged-writes", "reject"},
		Codes: []fencing.Code{fencing.CodeTokenRequired},
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.Lock(orderKey)
			a.ConnectWith(", untagged")
			a.Do(readOrder(), setOrder("A", "packed"))
			s.HandOver(a, b, orderKey)
			b.Do(setOrder("B", "paid"))
			a.Send(setOrder("A", "shipped"))
			a.Wake()
			a.Answer()
		},
	})
}
