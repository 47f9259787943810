package scenario

import (
	"fmt"
	"strconv"
)

// pausedHolder is a worker that is paused between two transactions and then
// writes what it had worked out before, in both protocols.
func pausedHolder() Story {
	return Story{
		Name:  "paused-holder",
		Title: "A lock holder is paused, loses its lock, wakes up and writes",
		Case:  2,
		Text: "Two workers book payments on account 7 under the lock account:7, each by reading the balance,\n" +
			"adding its payment and writing the sum. A is paused after it has looked at its lock once more.",
		Tables: `CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, written_by text);
			CREATE TABLE booking (nr int GENERATED ALWAYS AS IDENTITY, account int, worker text, amount int);
			INSERT INTO account VALUES (7, 100, 'nobody')`,
		Result: `SELECT pg_catalog.format('account %s: balance %s, last written by %s', id, balance, written_by) FROM account
			UNION ALL SELECT pg_catalog.format('booking: %s by %s', amount, worker) FROM (SELECT * FROM booking ORDER BY nr) b`,
		Wrong: `SELECT pg_catalog.format('the balance is %s, and the bookings make %s', balance, 100 + sum)
			FROM account, (SELECT pg_catalog.sum(amount) FROM booking) b WHERE balance <> 100 + sum
			UNION ALL SELECT 'the holder B could not book' WHERE NOT EXISTS (SELECT FROM booking WHERE worker = 'B')`,
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Right:    "balance 150 and B's booking of 50; A's payment is still to be booked by the next holder",
		Play:     playPausedHolder,
	}
}

const accountKey = "account:7"

func readBalance() Act {
	return read("reads the balance", "SELECT balance FROM account WHERE id = $1::int", "7")
}

func writeBalance(worker string, balance int) Act {
	return write(fmt.Sprintf("writes balance %d (extended protocol)", balance),
		"UPDATE account SET balance = $1::int, written_by = $2 WHERE id = 7", strconv.Itoa(balance), worker)
}

func writeBooking(worker string, amount int) Act {
	return write(fmt.Sprintf("books %d (simple protocol)", amount),
		fmt.Sprintf("INSERT INTO booking (account, worker, amount) VALUES (7, '%s', %d)", worker, amount)).simply()
}

func playPausedHolder(s *Stage) {
	a, b := s.Worker("A"), s.Worker("B")
	a.TakeOver(accountKey, readBalance())
	s.Note("A will write 100 + 10 = 110.")
	s.HandOver(a, b, accountKey)
	b.Do(readBalance(), writeBalance("B", 150), writeBooking("B", 50))
	a.Send(writeBalance("A", 110))
	a.Wake()
	a.Answer()
	a.Do(writeBooking("A", 10))
}

// pausedInTransaction is a worker that is paused in the middle of a
// transaction, with its COMMIT still to come.
func pausedInTransaction() Story {
	return Story{
		Name:  "paused-in-transaction",
		Title: "A lock holder is paused inside a transaction, loses its lock, wakes up and commits",
		Case:  1,
		Text: "Two servers write the invoice of customer 8472 for July under the lock invoice:8472, if there is none\n" +
			"yet. A is paused between its INSERT and its COMMIT.",
		Tables: invoiceTables, Result: invoiceResult, Wrong: invoiceWrong,
		Right:    "one invoice, B's",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playPausedInTransaction,
	}
}

// The stories of one invoice share these.
const (
	invoiceKey    = "invoice:8472"
	invoiceTables = `CREATE TABLE invoice (nr int GENERATED ALWAYS AS IDENTITY, customer int, month text, written_by text)`
	invoiceResult = `SELECT pg_catalog.format('invoice of customer %s for %s, written by %s', customer, month, written_by) FROM invoice ORDER BY nr`
	invoiceWrong  = `SELECT pg_catalog.format('customer 8472 got %s invoices for July', count(*)) FROM invoice HAVING count(*) <> 1`
)

func countInvoices() Act {
	return read("counts the invoices that are there", "SELECT count(*) FROM invoice WHERE customer = $1::int AND month = 'July'", "8472")
}

func writeInvoice(worker string) Act {
	return step("writes the invoice", "INSERT INTO invoice (customer, month, written_by) VALUES (8472, 'July', $1)", worker)
}

func playPausedInTransaction(s *Stage) {
	a, b := s.Worker("A"), s.Worker("B")
	a.TakeOver(invoiceKey, begin(), countInvoices(), writeInvoice("A"))
	s.HandOver(a, b, invoiceKey)
	b.Do(begin(), countInvoices(), writeInvoice("B"), commit())
	a.Send(commit())
	a.Wake()
	a.Answer()
}
