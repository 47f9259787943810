package scenario

import "github.com/fenceproxy/fenceproxy/fencing"

func lostClaim() Story {
	return ofOrder(Story{
		Name:  "lost-claim",
		Title: "PostgreSQL fails over to a standby that has missed a claim",
		Case:  13,
		Text: "B has taken over from A, on a primary whose standby isn't there for the moment. The primary dies, the standby\n" +
			"becomes the primary, and knows nothing of B: by what the database says, A is the holder. So etcd is asked again.\n" +
			"A goes on when B has claimed and written once more: without fencing, the last word is A's.",
		Standby: StandbyAsynchronous,
		Codes:   append([]fencing.Code{fencing.CodeNotHolder}, tookOver...),
		Must:    fencing.CodeNotHolder,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.StopStandby()
			s.HandOver(a, b, orderKey)
			b.Do(setOrder("B", "paid"))
			s.FailOver("without what it has missed")
			a.Wake()
			a.ConnectWith(" again, with the token that it has", a.holds...)
			a.Do(setOrder("A", "shipped"))
			b.ConnectWith(" again", b.holds...)
			b.Do(setOrder("B", "paid"))
			a.Do(setOrder("A", "delivered"))
		},
	})
}

func hungStandby() Story {
	return Story{
		Name:  "hung-standby",
		Title: "A synchronous standby hangs while A commits and B takes over",
		Case:  12,
		Text: "A's commit waits for a standby that hangs, and A's lock runs out meanwhile. B gets the lock and looks: what\n" +
			"A commits can't be seen yet. fenceproxy lets B in when that is decided, and no commit is lost in the failover after.",
		Tables: invoiceTables, Result: invoiceResult, Wrong: invoiceWrong,
		Right:    "one invoice, A's, which B saw",
		Controls: []Arm{ArmEtcd},
		Standby:  StandbySynchronous,
		Serve:    []string{"--claim-timeout", "2s"},
		// That A hears LF001 after the failover, and not LF002, is because the
		// standby had B's claim when it was answered.
		Codes: append([]fencing.Code{fencing.CodeClaimTimeout}, tookOver...),
		Must:  fencing.CodeClaimTimeout,
		Play:  playHungStandby,
	}
}

func playHungStandby(s *Stage) {
	writes := func(worker string) Act {
		return write("writes the invoice", "INSERT INTO invoice (customer, month, written_by) VALUES (8472, 'July', $1)", worker)
	}
	a, b := s.Worker("A"), s.Worker("B")
	a.TakeOver(invoiceKey, countInvoices())
	b.LineUp(invoiceKey)
	s.PauseStandby()
	a.Send(writes("A"))
	s.awaitReplication(a)
	a.Pause()
	s.AwaitExpiry(a)
	b.Locked(invoiceKey)
	b.Connect()
	if s.Arm == ArmFenced {
		s.ResumeStandby()
		a.Wake()
		a.Answer()
		b.Connect()
		b.Do(countInvoices())
	} else {
		b.Do(countInvoices())
		b.Send(writes("B"))
		s.awaitReplication(b)
		s.ResumeStandby()
		b.Answer()
		a.Wake()
		a.Answer()
	}
	s.FailOver("with all that was acknowledged")
	a.ConnectWith(" again, with the token that it has", a.holds...)
	a.Do(writes("A"))
}
