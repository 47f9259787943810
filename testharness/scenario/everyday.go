package scenario

import (
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// tookOver are the codes that a stale worker may hear. Which one depends on
// whether its proxy has ended its session by then.
var tookOver = []fencing.Code{fencing.CodeStale, fencing.CodeEvicted}

// everyday finishes a story of everyday work: it is told with no lock, with
// one that expires and with one in etcd, and then through the proxy.
func everyday(s Story) Story {
	s.Controls = []Arm{ArmNone, ArmExpiring, ArmEtcd}
	s.Codes = tookOver
	return s
}

// A chore is what most background work is: look what is to be done, then do
// it. A lock is there so that nobody does it who has looked too long ago.
type chore struct {
	key  string
	look Act
	// do makes the statement that a worker runs after what it has found, or
	// says that there is nothing to do.
	do func(worker string, found Reply) (act Act, busy bool)
}

// rush has workers do a chore. Without a lock all of them look before the
// first one writes. With a lock the first one is paused after it has looked,
// until the others are done.
func (s *Stage) rush(c chore, names ...string) {
	workers := s.Workers(names...)
	if s.Arm == ArmNone {
		s.atOnce(c, workers)
		return
	}
	slow, others := workers[0], workers[1:]
	slow.TakeOver(c.key)
	act, busy := c.do(slow.Name, slow.Do(c.look))
	for i, other := range others {
		if i == 0 {
			s.HandOver(slow, other, c.key)
		} else {
			other.TakeOver(c.key)
		}
		if act, busy := c.do(other.Name, other.Do(c.look)); busy {
			other.Do(act)
		} else {
			s.Note("Nothing is left to do for %s.", other.Name)
		}
		other.Release()
	}
	if busy {
		slow.Send(act)
		slow.Wake()
		slow.Answer()
	}
}

// atOnce is rush without a lock: nobody waits for anybody.
func (s *Stage) atOnce(c chore, workers []*Actor) {
	found := make([]Reply, len(workers))
	for i, w := range workers {
		w.Connect()
		found[i] = w.Do(c.look)
	}
	s.Note("All have looked, and now all do it.")
	for i, w := range workers {
		if act, busy := c.do(w.Name, found[i]); busy {
			w.Do(act)
		}
	}
}

// array is values as PostgreSQL reads an array of numbers.
func array(values []string) string { return "{" + strings.Join(values, ",") + "}" }

func monthlyInvoices() Story {
	return everyday(Story{
		Name:  "monthly-invoices",
		Title: "Four servers, and the month's invoices are to go out once",
		Text: "On the first of the month a timer fires on all four servers. Each looks which customers have no\n" +
			"invoice for July yet, and writes those.",
		Tables: `CREATE TABLE customer (id int PRIMARY KEY); INSERT INTO customer SELECT pg_catalog.generate_series(1, 5);
			CREATE TABLE invoice (nr int GENERATED ALWAYS AS IDENTITY, customer int, month text, written_by text)`,
		Result: `SELECT pg_catalog.format('%s invoices, written by %s', count(*), written_by) FROM invoice GROUP BY written_by ORDER BY written_by`,
		Wrong: `SELECT pg_catalog.format('customer %s gets %s invoices for July', customer.id, count(invoice))
			FROM customer LEFT JOIN invoice ON customer = customer.id GROUP BY customer.id HAVING count(invoice) <> 1 ORDER BY customer.id`,
		Right: "one invoice for each of five customers",
		Play: func(s *Stage) {
			s.rush(chore{
				key: "invoices:2026-07",
				look: read("looks who has no invoice yet",
					"SELECT id FROM customer WHERE NOT EXISTS (SELECT FROM invoice WHERE customer = customer.id AND month = 'July') ORDER BY id"),
				do: func(worker string, found Reply) (Act, bool) {
					return write("writes "+strconv.Itoa(len(found.Rows))+" invoices",
						"INSERT INTO invoice (customer, month, written_by) SELECT c, 'July', $2 FROM pg_catalog.unnest($1::int[]) AS c",
						array(found.column()), worker), len(found.Rows) > 0
				},
			}, "S1", "S2", "S3", "S4")
		},
	})
}

func nightlyInterest() Story {
	return everyday(Story{
		Name:  "nightly-interest",
		Title: "The night's interest is to be booked once",
		Text: "Two servers book interest on all accounts at midnight, if that night's isn't booked yet. It is one\n" +
			"statement, so it happens as a whole or not at all; but how often?",
		Tables: `CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL);
			INSERT INTO account VALUES (1, 100000), (2, 250000);
			CREATE TABLE night (day date, booked_by text)`,
		Result: `SELECT pg_catalog.format('account %s: %s cents', id, cents) FROM account
			UNION ALL SELECT pg_catalog.format('%s booked by %s', day, booked_by) FROM night`,
		Wrong: `SELECT pg_catalog.format('account 1 has %s cents, one percent of interest makes 101000', cents) FROM account WHERE id = 1 AND cents <> 101000
			UNION ALL SELECT pg_catalog.format('%s was booked %s times', day, count(*)) FROM night GROUP BY day HAVING count(*) > 1`,
		Right: "one percent on each account, booked once",
		Play: func(s *Stage) {
			s.rush(chore{
				key:  "interest:2026-07-31",
				look: read("looks how often the night is booked", "SELECT count(*) FROM night WHERE day = '2026-07-31'"),
				do: func(worker string, found Reply) (Act, bool) {
					return write("books one percent on every account",
						`WITH booked AS (INSERT INTO night VALUES ('2026-07-31', $1)) UPDATE account SET cents = cents * 101 / 100`,
						worker), found.value() == "0"
				},
			}, "S1", "S2")
		},
	})
}

func paymentWebhook() Story {
	return everyday(Story{
		Name:  "payment-webhook",
		Title: "A payment provider delivers its webhook twice",
		Text: "The provider had no answer in time and sends the event again, to another server. Each handler looks\n" +
			"whether the order is paid, and if not credits the customer and marks it as paid.",
		Tables: `CREATE TABLE orders (id int PRIMARY KEY, paid_by text);
			INSERT INTO orders VALUES (8472, NULL);
			CREATE TABLE credit (nr int GENERATED ALWAYS AS IDENTITY, order_id int, amount int, handler text)`,
		Result: `SELECT pg_catalog.format('credit of %s for order %s by %s', amount, order_id, handler) FROM credit ORDER BY nr`,
		Wrong:  `SELECT pg_catalog.format('order 8472 was credited %s times', count(*)) FROM credit HAVING count(*) <> 1`,
		Right:  "one credit of 50",
		Play: func(s *Stage) {
			s.rush(chore{
				key:  "order:8472",
				look: read("looks by whom the order is paid", "SELECT coalesce(paid_by, 'nobody') FROM orders WHERE id = 8472"),
				do: func(worker string, found Reply) (Act, bool) {
					return write("credits 50 and marks the order as paid",
						`WITH credited AS (INSERT INTO credit (order_id, amount, handler) VALUES (8472, 50, $1))
							UPDATE orders SET paid_by = $1 WHERE id = 8472`, worker), found.value() == "nobody"
				},
			}, "H1", "H2")
		},
	})
}

func lastLaptop() Story {
	return everyday(Story{
		Name:  "last-laptop",
		Title: "Three customers want the last laptop in stock",
		Text: "Each checkout reads the stock, and if there is one left, takes it and confirms the order. Stock is\n" +
			"written as the number that was read less one.",
		Tables: `CREATE TABLE stock (item text PRIMARY KEY, pieces int NOT NULL); INSERT INTO stock VALUES ('laptop', 1);
			CREATE TABLE confirmation (nr int GENERATED ALWAYS AS IDENTITY, item text, customer text)`,
		Result: `SELECT pg_catalog.format('%s in stock: %s', item, pieces) FROM stock
			UNION ALL SELECT pg_catalog.format('a %s was promised to %s', item, customer) FROM confirmation`,
		Wrong: `SELECT pg_catalog.format('1 laptop was sold to %s customers', count(*)) FROM confirmation HAVING count(*) <> 1`,
		Right: "one confirmation, and none in stock",
		Play: func(s *Stage) {
			s.rush(chore{
				key:  "stock:laptop",
				look: read("reads the stock", "SELECT pieces FROM stock WHERE item = 'laptop'"),
				do: func(customer string, found Reply) (Act, bool) {
					pieces, err := strconv.Atoi(found.value())
					return write("takes one and confirms the order",
						`WITH confirmed AS (INSERT INTO confirmation (item, customer) VALUES ('laptop', $2))
							UPDATE stock SET pieces = $1::int WHERE item = 'laptop'`,
						strconv.Itoa(pieces-1), customer), err == nil && pieces > 0
				},
			}, "Ada", "Ben", "Cy")
		},
	})
}

func campaign() Story {
	return everyday(Story{
		Name:  "campaign",
		Title: "One campaign, five mailers, and nobody wants it twice",
		Text: "Five mailers look who of the campaign's readers has no mail yet and put theirs into the outbox. (What\n" +
			"has left the outbox is out of any database's reach: only the outbox can be fenced.)",
		Tables: `CREATE TABLE reader (address text PRIMARY KEY); INSERT INTO reader VALUES ('ann@example.org'), ('bob@example.org'), ('cat@example.org');
			CREATE TABLE outbox (nr int GENERATED ALWAYS AS IDENTITY, address text, mailer text)`,
		Result: `SELECT pg_catalog.format('%s mails by %s', count(*), mailer) FROM outbox GROUP BY mailer ORDER BY mailer`,
		Wrong: `SELECT pg_catalog.format('%s gets the campaign %s times', address, count(outbox.nr))
			FROM reader LEFT JOIN outbox USING (address) GROUP BY address HAVING count(outbox.nr) <> 1 ORDER BY address`,
		Right: "one mail for each of three readers",
		Play: func(s *Stage) {
			s.rush(chore{
				key: "campaign:summer",
				look: read("looks who has no mail yet",
					"SELECT address FROM reader WHERE NOT EXISTS (SELECT FROM outbox WHERE outbox.address = reader.address) ORDER BY address"),
				do: func(worker string, found Reply) (Act, bool) {
					return write("puts "+strconv.Itoa(len(found.Rows))+" mails into the outbox",
						"INSERT INTO outbox (address, mailer) SELECT a, $2 FROM pg_catalog.unnest($1::text[]) AS a",
						array(found.column()), worker), len(found.Rows) > 0
				},
			}, "M1", "M2", "M3", "M4", "M5")
		},
	})
}

// dailyReport has two layers: the unique index keeps the rows single, and
// the lock keeps old figures off new ones. Either alone isn't enough.
func dailyReport() Story {
	return everyday(Story{
		Name:  "daily-report",
		Title: "One report for each customer and day: a unique index and a lock",
		Case:  22,
		Text: "The unique index sees to it that there is one row; what stands in it is for the lock to see to. A counts\n" +
			"the day's orders and is paused; another order comes in; B makes the report; A wakes up and writes its own over it.",
		Tables: `CREATE TABLE orders (id int PRIMARY KEY, customer int); INSERT INTO orders VALUES (1, 8472), (2, 8472);
			CREATE TABLE report (customer int, day date, orders int, made_by text, UNIQUE (customer, day))`,
		Result: `SELECT pg_catalog.format('customer %s on %s: %s orders, counted by %s', customer, day, orders, made_by) FROM report`,
		Wrong: `SELECT pg_catalog.format('the report says %s orders; there were 3 when it was last made', orders) FROM report WHERE orders <> 3
			UNION ALL SELECT 'there is no report' WHERE NOT EXISTS (SELECT FROM report)`,
		Right: "one report of 3 orders",
		Play:  playDailyReport,
	})
}

const reportKey = "report:8472:2026-07-31"

func playDailyReport(s *Stage) {
	count := read("counts the orders", "SELECT count(*) FROM orders WHERE customer = 8472")
	report := func(worker string, found Reply) Act {
		return write("writes the report: "+found.value()+" orders", `INSERT INTO report VALUES (8472, '2026-07-31', $1::int, $2)
			ON CONFLICT (customer, day) DO UPDATE SET orders = excluded.orders, made_by = excluded.made_by`, found.value(), worker)
	}
	a, b, shop := s.Worker("A"), s.Worker("B"), s.Worker("shop")
	shop.ConnectWith(", untagged")
	a.TakeOver(reportKey)
	old := a.Do(count)
	shop.Do(write("takes another order", "INSERT INTO orders VALUES (3, 8472)"))
	s.HandOver(a, b, reportKey)
	b.Do(report("B", b.Do(count)))
	a.Send(report("A", old))
	a.Wake()
	a.Answer()
}
