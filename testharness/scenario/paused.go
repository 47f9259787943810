package scenario

import (
	"context"
	"fmt"
	"strconv"
)

// pausedHolder is a worker that is paused between two transactions and then
// writes what it had worked out before, in both protocols.
func pausedHolder() Story {
	return Story{
		Name:  "paused-holder",
		Title: "A lock holder is paused, loses its lock, wakes up and writes",
		Case: "Two workers book payments on account 7 under the lock account:7, each by reading the balance,\n" +
			"adding its payment and writing the sum. A is paused after it has looked at its lock once more.",
		Tables: `CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, written_by text);
			CREATE TABLE booking (nr int GENERATED ALWAYS AS IDENTITY, account int, worker text, amount int);
			INSERT INTO account VALUES (7, 100, 'nobody')`,
		Result: `SELECT pg_catalog.format('account %s: balance %s, last written by %s', id, balance, written_by) FROM account
			UNION ALL SELECT pg_catalog.format('booking: %s by %s', amount, worker) FROM (SELECT * FROM booking ORDER BY nr) b`,
		Right: "balance 150 and B's booking of 50; A's payment is still to be booked by the next holder",
		Play:  playPausedHolder,
	}
}

const accountKey = "account:7"

func readBalance() Act {
	return Act{Verb: VerbExec, SQL: "SELECT balance FROM account WHERE id = $1::int", Args: []string{"7"},
		Kind: KindRead, Story: "reads the balance"}
}

func writeBalance(worker string, balance int) Act {
	return Act{Verb: VerbExec, SQL: "UPDATE account SET balance = $1::int, written_by = $2 WHERE id = 7",
		Args: []string{strconv.Itoa(balance), worker}, Kind: KindCommit, Story: fmt.Sprintf("writes balance %d (extended protocol)", balance)}
}

func writeBooking(worker string, amount int) Act {
	return Act{Verb: VerbSimple, SQL: fmt.Sprintf("INSERT INTO booking (account, worker, amount) VALUES (7, '%s', %d)", worker, amount),
		Kind: KindCommit, Story: fmt.Sprintf("books %d (simple protocol)", amount)}
}

func playPausedHolder(ctx context.Context, s *Stage) error {
	a, b, err := s.pair()
	if err != nil {
		return err
	}
	if err := a.takeOver(ctx, accountKey, readBalance()); err != nil {
		return err
	}
	s.note("A will write 100 + 10 = 110.")
	if err := s.pauseUntilTakenOver(ctx, a, b, accountKey); err != nil {
		return err
	}
	if err := b.doAll(ctx, readBalance(), writeBalance("B", 150), writeBooking("B", 50)); err != nil {
		return err
	}
	write := writeBalance("A", 110)
	if err := a.Begin(write); err != nil {
		return err
	}
	if err := a.Resume(); err != nil {
		return err
	}
	if _, err := a.End(ctx, write); err != nil {
		return err
	}
	return a.doAll(ctx, writeBooking("A", 10))
}

// pausedInTransaction is a worker that is paused in the middle of a
// transaction, with its COMMIT still to come.
func pausedInTransaction() Story {
	return Story{
		Name:  "paused-in-transaction",
		Title: "A lock holder is paused inside a transaction, loses its lock, wakes up and commits",
		Case: "Two servers write the invoice of customer 8472 for July under the lock invoice:8472, if there is none\n" +
			"yet. A is paused between its INSERT and its COMMIT.",
		Tables: `CREATE TABLE invoice (nr int GENERATED ALWAYS AS IDENTITY, customer int, month text, written_by text)`,
		Result: `SELECT pg_catalog.format('invoice of customer %s for %s, written by %s', customer, month, written_by) FROM invoice ORDER BY nr`,
		Right:  "one invoice, B's",
		Play:   playPausedInTransaction,
	}
}

const invoiceKey = "invoice:8472"

func countInvoices() Act {
	return Act{Verb: VerbExec, SQL: "SELECT count(*) FROM invoice WHERE customer = $1::int AND month = 'July'", Args: []string{"8472"},
		Kind: KindRead, Story: "counts the invoices that are there"}
}

func writeInvoice(worker string) Act {
	return Act{Verb: VerbExec, SQL: "INSERT INTO invoice (customer, month, written_by) VALUES (8472, 'July', $1)",
		Args: []string{worker}, Kind: KindStep, Story: "writes the invoice"}
}

func begin() Act {
	return Act{Verb: VerbSimple, SQL: "BEGIN", Kind: KindStep, Story: "begins a transaction"}
}

func commit() Act {
	return Act{Verb: VerbSimple, SQL: "COMMIT", Kind: KindCommit, Story: "commits"}
}

func playPausedInTransaction(ctx context.Context, s *Stage) error {
	a, b, err := s.pair()
	if err != nil {
		return err
	}
	if err := a.takeOver(ctx, invoiceKey, begin(), countInvoices(), writeInvoice("A")); err != nil {
		return err
	}
	if err := s.pauseUntilTakenOver(ctx, a, b, invoiceKey); err != nil {
		return err
	}
	if err := b.doAll(ctx, begin(), countInvoices(), writeInvoice("B"), commit()); err != nil {
		return err
	}
	if err := a.Begin(commit()); err != nil {
		return err
	}
	if err := a.Resume(); err != nil {
		return err
	}
	_, err = a.End(ctx, commit())
	return err
}

// pair hires the two workers of most stories.
func (s *Stage) pair() (a, b *Actor, err error) {
	if a, err = s.Hire("A"); err != nil {
		return nil, nil, err
	}
	if b, err = s.Hire("B"); err != nil {
		return nil, nil, err
	}
	return a, b, nil
}

// takeOver has the actor become the holder, connect, and run acts.
func (a *Actor) takeOver(ctx context.Context, key string, acts ...Act) error {
	if err := a.Lock(ctx, key); err != nil {
		return err
	}
	if err := a.Connect(ctx); err != nil {
		return err
	}
	return a.doAll(ctx, acts...)
}

func (a *Actor) doAll(ctx context.Context, acts ...Act) error {
	for _, act := range acts {
		if _, err := a.Do(ctx, act); err != nil {
			return err
		}
	}
	return nil
}

// pauseUntilTakenOver pauses a right after it has seen that the lock is its
// own, waits until its lease has run out, and has b take over.
func (s *Stage) pauseUntilTakenOver(ctx context.Context, a, b *Actor, key string) error {
	if err := b.LineUp(key); err != nil {
		return err
	}
	s.note("B stands in line for the lock.")
	if err := a.Held(ctx); err != nil {
		return err
	}
	if err := a.Pause(); err != nil {
		return err
	}
	if err := s.AwaitExpiry(ctx, a); err != nil {
		return err
	}
	if err := b.Locked(ctx, key); err != nil {
		return err
	}
	return b.Connect(ctx)
}
