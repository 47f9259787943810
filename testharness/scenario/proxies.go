package scenario

func proxyCrash() Story {
	return ofOrder(Story{
		Name:  "proxy-crash",
		Title: "The stale worker's proxy is killed, and a new one knows nothing of it",
		Case:  9,
		Text: "A is paused and B takes over. The proxy that A's session went through is killed and started again. A wakes\n" +
			"up, connects again and writes. What was accepted is in the database and not in the proxy.",
		Codes: tookOver,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.HandOver(a, b, orderKey)
			b.Do(setOrder("B", "paid"))
			a.CrashProxy()
			a.Wake()
			a.ConnectWith(" again, with the token that it has", a.holds...)
			a.Do(setOrder("A", "shipped"))
		},
	})
}

func pausedProxy() Story {
	return ofOrder(Story{
		Name:  "paused-proxy",
		Title: "It isn't the worker that is paused, but its proxy, with a write inside",
		Case:  21,
		Text: "A's write is on its way when the proxy is paused (without fencing: A itself), and the machine loses etcd. B\n" +
			"takes over through another proxy. Then the paused one wakes up and sends on what it has.",
		Codes: tookOver,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			b.LineUp(orderKey)
			a.PauseProxy()
			a.Send(setOrder("A", "shipped"))
			a.CutOff()
			s.AwaitExpiry(a)
			b.Locked(orderKey)
			b.Connect()
			b.Do(setOrder("B", "paid"))
			a.WakeProxy()
			a.Answer()
		},
	})
}

func pipelinedBatch() Story {
	return Story{
		Name:  "pipelined-batch",
		Title: "A batch of statements is on its way when its sender is superseded",
		Case:  11,
		Text: "A sends four statements at once. The first has to wait for a row that a clerk has locked, and the others are\n" +
			"on their way. B takes over; then the clerk lets the row go. Nothing of the batch may be carried out.",
		Tables: orderTables + `; CREATE TABLE parcel (nr int GENERATED ALWAYS AS IDENTITY, packed_by text)`,
		Result: orderResult + ` UNION ALL SELECT pg_catalog.format('a parcel packed by %s', packed_by) FROM parcel`,
		Wrong: `SELECT pg_catalog.format('%s packed %s parcels too many', packed_by, count(*)) FROM parcel WHERE packed_by = 'A' GROUP BY packed_by
			UNION ALL SELECT 'the holder B could not pack' WHERE NOT EXISTS (SELECT FROM parcel WHERE packed_by = 'B')`,
		Right:    "one parcel, packed by B",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playPipelinedBatch,
	}
}

func playPipelinedBatch(s *Stage) {
	const pack = "INSERT INTO parcel (packed_by) VALUES ('A')"
	a, b, clerk := s.Worker("A"), s.Worker("B"), s.Outsider("clerk")
	clerk.ConnectWith(", untagged, straight to PostgreSQL")
	clerk.Do(begin(), step("locks the order", "SELECT FROM orders WHERE id = 8472 FOR UPDATE").simply())
	a.TakeOver(orderKey)
	b.LineUp(orderKey)
	a.Send(Act{Verb: VerbBatch, Batch: []string{"UPDATE orders SET written_by = 'A'", pack, pack, pack},
		Kind: KindCommit, Story: "packs three parcels, in a batch"})
	s.See("A's batch to wait for the clerk", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE application_name = 'A' AND wait_event_type = 'Lock' AND datname = pg_catalog.current_database())`)
	s.Note("A's batch waits for the row that the clerk has locked.")
	a.Pause()
	s.AwaitExpiry(a)
	b.Locked(orderKey)
	b.Connect()
	clerk.Do(step("lets the order go", "ROLLBACK").simply())
	s.See("A's batch to be over", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE application_name = 'A' AND state <> 'idle' AND datname = pg_catalog.current_database())`)
	b.Do(write("packs a parcel", "INSERT INTO parcel (packed_by) VALUES ('B')"))
	a.Wake()
	a.Answer()
}
