package scenario

import (
	"fmt"
	"strconv"
)

func formerHolder() Story {
	return Story{
		Name:  "former-holder",
		Title: "A former holder wakes up, is done, and removes the lock: whose?",
		Case:  23,
		Text: "A wakes up when B has the lock. A has nothing to write any more and just removes the lock, without a look\n" +
			"whether it is still its own (a plain DEL in Redis). Then C gets in while B is at work.",
		Tables: `CREATE TABLE stock (item text PRIMARY KEY, pieces int NOT NULL); INSERT INTO stock VALUES ('laptop', 10)`,
		Result: `SELECT pg_catalog.format('%s in stock: %s', item, pieces) FROM stock`,
		Wrong:  `SELECT pg_catalog.format('two were taken, and %s of 10 are left', pieces) FROM stock WHERE pieces <> 8`,
		Right:  "8 left: B and C took one each, one after the other", Controls: []Arm{ArmExpiring},
		Play: playFormerHolder,
	}
}

func playFormerHolder(s *Stage) {
	const key = "stock:laptop"
	look := read("reads the stock", "SELECT pieces FROM stock WHERE item = 'laptop'")
	takeOne := func(found Reply) Act {
		pieces, _ := strconv.Atoi(found.value())
		return write("takes one: "+strconv.Itoa(pieces-1)+" are left", "UPDATE stock SET pieces = $1::int WHERE item = 'laptop'", strconv.Itoa(pieces-1))
	}
	a, b, c := s.Worker("A"), s.Worker("B"), s.Worker("C")
	a.TakeOver(key)
	s.HandOver(a, b, key)
	seen := b.Do(look)
	a.Wake()
	a.Drop()
	c.LineUp(key)
	if s.Arm == ArmExpiring {
		c.Locked(key)
		c.Connect()
		late := c.Do(look)
		b.Do(takeOne(seen))
		c.Do(takeOne(late))
		return
	}
	s.inLine(2, key)
	s.Note("B's lock is untouched, and C waits.")
	b.Do(takeOne(seen))
	b.Release()
	c.Locked(key)
	c.Connect()
	c.Do(takeOne(c.Do(look)))
}

func vanishedHolder() Story {
	return ofOrder(Story{
		Name:  "vanished-holder",
		Title: "A holder vanishes in the middle of a transaction",
		Case:  24,
		Text: "A's machine hangs for good, with a row locked in an open transaction that nobody will end. Its lease runs\n" +
			"out and B gets the lock; but does it get the row?",
		Wrong: `SELECT 'B holds the lock, and could not write' WHERE NOT EXISTS (SELECT FROM orders WHERE written_by = 'B')`,
		Right: "paid, says B: its claim ended A's transaction",
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, begin(), step("sets the order to packed, and doesn't commit", "UPDATE orders SET state = 'packed', written_by = 'A'"))
			s.HandOver(a, b, orderKey)
			b.Do(step("says that it waits for a row for a second at most", "SET lock_timeout = '1s'").simply(), setOrder("B", "paid"))
			a.Crash()
		},
	})
}

// The counter of the story counter.
const (
	counterKey     = "counter"
	counterWorkers = 50
	counterTimes   = 2
	counterPauses  = 3
)

func counter() Story {
	return Story{
		Name:  "counter",
		Title: fmt.Sprintf("%d workers count, and each is now and then paused for too long", counterWorkers),
		Case:  25,
		Text: fmt.Sprintf("%d workers increment one counter %d times each: lock, read, think, write. %d times the one that is at\n"+
			"work is paused until its lease has run out and others have gone on, and then wakes up.", counterWorkers, counterTimes, counterPauses),
		Tables: counterTable + "; CREATE TABLE acknowledged (n int, unknown int)",
		Result: `SELECT pg_catalog.format('the counter says %s', n) FROM counter`,
		Wrong: `SELECT pg_catalog.format('%s increments were acknowledged, and the counter says %s', acknowledged.n, counter.n)
			FROM counter LEFT JOIN acknowledged ON true WHERE counter.n = 0 OR counter.n NOT BETWEEN acknowledged.n AND acknowledged.n + unknown`,
		Right:    "every acknowledged increment, once",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playCounter,
	}
}

func playCounter(s *Stage) {
	workers := make([]*Actor, counterWorkers)
	for i := range workers {
		workers[i] = s.Worker(fmt.Sprintf("W%d", i+1))
	}
	s.Note("%d workers begin to count.", counterWorkers)
	for _, w := range workers {
		w.SendCount(counterKey, counterTimes)
	}
	at := &Actor{}
	for range counterPauses {
		at = s.pauseOneAtWork(workers, at)
		s.AwaitExpiry(at)
		s.tellNext(workers, at)
		s.wakeAtWork(at)
	}
	var sum Count
	for _, w := range workers {
		c := w.Counted()
		sum.Acknowledged, sum.Unknown = sum.Acknowledged+c.Acknowledged, sum.Unknown+c.Unknown
	}
	s.Note("%d increments were acknowledged.", sum.Acknowledged)
	s.exec("INSERT INTO acknowledged VALUES ($1, $2)", sum.Acknowledged, sum.Unknown)
}
