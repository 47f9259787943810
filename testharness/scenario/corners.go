package scenario

import (
	"strconv"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// The stories of corners share one order, whose state each worker sets.
const (
	orderKey    = "order:8472"
	orderTables = `CREATE TABLE orders (id int PRIMARY KEY, state text, written_by text); INSERT INTO orders VALUES (8472, 'new', 'nobody')`
	orderResult = `SELECT pg_catalog.format('order %s is %s, says %s', id, state, written_by) FROM orders`
	orderWrong  = `SELECT pg_catalog.format('%s wrote over B', written_by) FROM orders WHERE written_by <> 'B'`
)

// ofOrder fills in what most stories of an order have in common, where a story
// has nothing of its own.
func ofOrder(s Story) Story {
	if s.Tables == "" {
		s.Tables = orderTables
	}
	if s.Result == "" {
		s.Result = orderResult
	}
	if s.Wrong == "" {
		s.Wrong = orderWrong
	}
	if s.Right == "" {
		s.Right = "paid, says B"
	}
	if s.Controls == nil {
		s.Controls = []Arm{ArmEtcd}
	}
	return s
}

func setOrder(worker, state string) Act {
	return write("sets the order to "+state, "UPDATE orders SET state = $1, written_by = $2 WHERE id = 8472", state, worker)
}

func readOrder() Act { return read("reads the order", "SELECT state FROM orders WHERE id = 8472") }

func revokedLease() Story {
	return ofOrder(Story{
		Name:  "revoked-lease",
		Title: "A live holder's lease is revoked, and it goes on",
		Case:  7,
		Text: "An operator revokes the lease of A, which is alive and doesn't look. As long as nobody else has claimed the\n" +
			"lock, nobody is harmed by its writes; from B's claim on they are refused.",
		Codes: tookOver,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.Revoke(a, orderKey)
			a.Do(setOrder("A", "labelled"))
			b.TakeOver(orderKey, readOrder(), setOrder("B", "paid"))
			a.Do(setOrder("A", "shipped"))
		},
	})
}

func idleSession() Story {
	return ofOrder(Story{
		Name:  "idle-session",
		Title: "A tagged session is idle when another worker takes over",
		Case:  20,
		Text: "A's session is open and does nothing when B claims the lock, through the same proxy. A hears of it at its\n" +
			"next statement, even if that one only reads. (Behind another proxy it would still read, and not write.)",
		Codes: tookOver,
		Play: func(s *Stage) {
			a := s.Worker("A")
			b := s.Beside(a, "B")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.HandOver(a, b, orderKey)
			b.Do(setOrder("B", "paid"))
			a.Wake()
			a.Do(readOrder(), setOrder("A", "shipped"))
		},
	})
}

func twoLocks() Story {
	return Story{
		Name:  "two-locks",
		Title: "A worker holds two locks and loses one of them",
		Case:  17,
		Text: "A moves 10 from account 1 to account 2 and holds the locks of both; its session shows both tokens. It loses\n" +
			"the one of account 2. The transfer is refused as a whole; what needs only the lock of account 1 goes on.",
		Tables: `CREATE TABLE account (id int PRIMARY KEY, balance int, written_by text);
			INSERT INTO account VALUES (1, 100, 'nobody'), (2, 100, 'nobody')`,
		Result: `SELECT pg_catalog.format('account %s: %s, last written by %s', id, balance, written_by) FROM account ORDER BY id`,
		Wrong: `SELECT pg_catalog.format('account %s should be at %s and is at %s', id, wanted, balance)
			FROM account JOIN (VALUES (1, 101), (2, 150)) AS w (id, wanted) USING (id) WHERE balance <> wanted ORDER BY id`,
		Right:    "account 2 at 150, by B; account 1 at 101, by A",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playTwoLocks,
	}
}

func playTwoLocks(s *Stage) {
	balance := func(worker string, id, balance int) Act {
		return write("writes balance "+strconv.Itoa(balance)+" of account "+strconv.Itoa(id),
			"UPDATE account SET balance = $1::int, written_by = $2 WHERE id = $3::int", strconv.Itoa(balance), worker, strconv.Itoa(id))
	}
	a, b := s.Worker("A"), s.Worker("B")
	a.Lock("account:1")
	a.Lock("account:2")
	a.Connect()
	a.Do(read("reads both balances", "SELECT balance FROM account ORDER BY id"))
	s.Revoke(a, "account:2")
	b.TakeOver("account:2", balance("B", 2, 150))
	a.Do(write("moves 10 from account 1 to account 2", "UPDATE account SET balance = CASE id WHEN 1 THEN 90 ELSE 110 END, written_by = 'A'"))
	a.ConnectWith(" again, with the lock that is left", a.hold())
	a.Do(balance("A", 1, 101))
}

func repeatableRead() Story {
	return Story{
		Name:  "repeatable-read",
		Title: "A's snapshot is older than B's claim",
		Case:  18,
		Text: "A reads in a REPEATABLE READ transaction and is paused. It doesn't see that B has claimed, for its snapshot is\n" +
			"older. It must not be told to retry (40001): it has to stop.",
		Tables: orderTables + `; CREATE TABLE parcel (nr int GENERATED ALWAYS AS IDENTITY, packed_by text)`,
		Result: `SELECT pg_catalog.format('a parcel packed by %s', packed_by) FROM parcel ORDER BY nr`,
		Wrong:  `SELECT pg_catalog.format('%s parcels for one order', count(*)) FROM parcel HAVING count(*) <> 1`,
		Right:  "one parcel, packed by B", Controls: []Arm{ArmEtcd},
		Codes: tookOver,
		Play: func(s *Stage) {
			parcels := read("counts the order's parcels", "SELECT count(*) FROM parcel")
			pack := func(worker string) Act {
				return step("packs a parcel", "INSERT INTO parcel (packed_by) VALUES ($1)", worker)
			}
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(orderKey, step("begins a transaction", "BEGIN ISOLATION LEVEL REPEATABLE READ").simply(), parcels)
			s.HandOver(a, b, orderKey)
			b.Do(begin(), parcels, pack("B"), commit())
			a.Send(pack("A"))
			a.Wake()
			a.Answer()
			a.Do(commit())
		},
	}
}

func tamperedMark() Story {
	return ofOrder(Story{
		Name:  "tampered-mark",
		Title: "A clean-up job deletes what fencing has remembered",
		Case:  10,
		Text: "A is superseded by B. A clean-up job that runs with the application's rights deletes all that the database\n" +
			"remembers of tokens; then A writes.",
		Tokens:   []string{"orders"},
		Right:    "paid, says B; the job has no permission",
		Controls: []Arm{ArmHomemade},
		Codes:    tookOver,
		Play: func(s *Stage) {
			marks := "fence.mark"
			if s.Arm == ArmHomemade {
				marks = "highest"
			}
			a, b, job := s.Worker("A"), s.Worker("B"), s.Outsider("job")
			a.TakeOver(orderKey, setOrder("A", "packed"))
			s.HandOver(a, b, orderKey)
			b.Do(setOrder("B", "paid"))
			job.ConnectWith(", untagged, straight to PostgreSQL")
			job.Do(step("cleans up", "DELETE FROM "+marks))
			a.Send(setOrder("A", "shipped"))
			a.Wake()
			a.Answer()
		},
	})
}

func preparedTransaction() Story {
	return Story{
		Name:  "prepared-transaction",
		Title: "A prepares a transaction, and commits it when it has lost its lock",
		Case:  14,
		Text: "A prepared transaction belongs to no session, so nobody could end it when another worker takes over. A tagged\n" +
			"session may not make one.",
		Tables: invoiceTables, Result: invoiceResult, Wrong: invoiceWrong,
		Right:    "one invoice, B's",
		Controls: []Arm{ArmEtcd},
		Codes:    append([]fencing.Code{fencing.CodeNotFenceable}, tookOver...),
		Must:     fencing.CodeNotFenceable,
		Play: func(s *Stage) {
			a, b := s.Worker("A"), s.Worker("B")
			a.TakeOver(invoiceKey, begin(), countInvoices(), writeInvoice("A"),
				step("prepares the transaction", "PREPARE TRANSACTION 'invoice'").simply())
			s.HandOver(a, b, invoiceKey)
			b.Do(begin(), countInvoices(), writeInvoice("B"), commit())
			a.Send(write("commits what it has prepared", "COMMIT PREPARED 'invoice'").simply())
			a.Wake()
			a.Answer()
		},
	}
}

func roundTheProxy() Story {
	return ofOrder(Story{
		Name:  "round-the-proxy",
		Title: "An old script goes round the proxy, straight to PostgreSQL",
		Case:  19,
		Text: "B holds the lock and writes. An old script that nobody remembers connects to PostgreSQL itself and knows no\n" +
			"locks. The table has a guard (fenceproxy protect orders --key 'order:{id}') and refuses it.",
		Guard: map[string]string{"orders": "order:{id}"},
		Codes: []fencing.Code{fencing.CodeTokenRequired},
		Play: func(s *Stage) {
			b, script := s.Worker("B"), s.Outsider("script")
			b.TakeOver(orderKey, setOrder("B", "paid"))
			script.ConnectWith(", untagged, straight to PostgreSQL")
			script.Do(setOrder("script", "new"))
		},
	})
}
