package scenario

import "fmt"

// What the stories of tags share.
const (
	otherKey    = "order:9000"
	twoOrders   = orderTables + "; INSERT INTO orders VALUES (9000, 'new', 'nobody')"
	tagNowhere  = "the connection carries no tag any more"
	setSession  = "SET"
	setForBlock = "SET LOCAL"
)

// Tag has the actor present one of its locks, by one of the statements that
// set a setting, from now on or to the end of its transaction.
func (a *Actor) Tag(set string, h Hold) Reply {
	a.session, a.shows = true, []Hold{h}
	return a.Do(step(fmt.Sprintf("tags by %s: %s token %d", set, h.Key, h.Token),
		fmt.Sprintf("%[1]s fence.key = '%[2]s'; %[1]s fence.token = %[3]d", set, h.Key, h.Token)).simply())
}

// Presents says what is left of a Tag, and why.
func (a *Actor) Presents(why string, holds ...Hold) {
	a.shows = holds
	a.tell(KindNote, why)
}

// setOrderOf is setOrder for one of several orders.
func setOrderOf(id int, worker, state string) Act {
	return write(fmt.Sprintf("sets order %d to %s", id, state),
		"UPDATE orders SET state = $1, written_by = $2 WHERE id = $3::int", state, worker, fmt.Sprint(id))
}

func pooledConnection() Story {
	return Story{
		Name:  "pooled-connection",
		Title: "A job's pooled connection goes on to somebody else",
		Case:  15,
		Text: "An application's jobs and its page views share a pooled connection. A job tags it for one transaction, or takes\n" +
			"the tag off when it gives it back. The stale job must be refused, and a page view that comes after it must not.",
		Tables: orderTables + "; CREATE TABLE view (nr int GENERATED ALWAYS AS IDENTITY)",
		Result: orderResult + ` UNION ALL SELECT pg_catalog.format('%s page views', count(*)) FROM view`,
		Wrong: orderWrong + ` UNION ALL SELECT pg_catalog.format('of 5 page views only %s were counted', count(*))
			FROM view HAVING count(*) <> 5`,
		Right:    "paid, says B, and all 5 page views counted",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playPooledConnection,
	}
}

func playPooledConnection(s *Stage) {
	view := write("counts a page view", "INSERT INTO view DEFAULT VALUES")
	app := s.Worker("app")
	b := s.Beside(app, "B") // its claim finds the connection, if anybody's does
	app.Lock(orderKey)
	app.ConnectWith(", untagged: the connection of its pool")
	app.Do(begin())
	app.Tag(setForBlock, app.hold())
	app.Do(setOrder("app", "packed").in(), commit())
	app.Presents("COMMIT: " + tagNowhere)
	app.Do(view)
	for _, giveBack := range []string{"DISCARD ALL", "RESET ALL"} {
		app.Tag(setSession, app.hold())
		app.Do(setOrder("app", "labelled"), step("gives the connection back: "+giveBack, giveBack).simply())
		app.Presents(giveBack + ": " + tagNowhere)
		app.Do(view)
	}
	s.HandOver(app, b, orderKey)
	b.Do(setOrder("B", "paid"))
	app.Wake()
	app.Do(view, begin())
	if app.Tag(setForBlock, app.hold()).Error == "" {
		app.Do(setOrder("app", "shipped").in(), commit())
	} else {
		app.Do(step("gives up", "ROLLBACK").simply())
	}
	app.Presents("The transaction is over: " + tagNowhere)
	app.Do(view)
}

func rolledBackTag() Story {
	return Story{
		Name:  "rolled-back-tag",
		Title: "A tag is set in a transaction, or behind a savepoint, that is rolled back",
		Case:  16,
		Text: "A holds the locks of two orders, and turns to the other one in a transaction, and then behind a savepoint. Both\n" +
			"are rolled back, so that its session shows the lock of the first one again; and that one is lost by then.",
		Tables:   twoOrders,
		Result:   orderResult + " ORDER BY id",
		Wrong:    orderWrong + " AND id = 8472 UNION ALL SELECT 'A, who holds it, could not write order 9000' FROM orders WHERE id = 9000 AND state <> 'packed'",
		Right:    "8472 paid, says B, and 9000 packed, says A",
		Controls: []Arm{ArmEtcd},
		Codes:    tookOver,
		Play:     playRolledBackTag,
	}
}

func playRolledBackTag(s *Stage) {
	a, b := s.Worker("A"), s.Worker("B")
	a.Lock(orderKey)
	first := a.hold()
	a.Lock(otherKey)
	other := a.last()
	a.ConnectWith(fmt.Sprintf(", tagged %s token %d", first.Key, first.Token), first)
	turn := func(rollBack string) {
		a.Tag(setSession, other)
		a.Do(setOrderOf(9000, "A", "labelled").in(), step("thinks better of it: "+rollBack, rollBack).simply())
		a.Presents(rollBack+": the tag is that of "+first.Key+" again", first)
	}
	a.Do(begin())
	turn("ROLLBACK")
	a.Do(setOrderOf(8472, "A", "packed"))
	a.Do(begin(), step("marks the place: SAVEPOINT turn", "SAVEPOINT turn").simply())
	turn("ROLLBACK TO turn")
	s.Revoke(a, orderKey)
	b.TakeOver(orderKey, setOrderOf(8472, "B", "paid"))
	if a.Do(setOrderOf(8472, "A", "shipped").in()).Error == "" {
		a.Do(commit())
	}
	a.ConnectWith(fmt.Sprintf(" again, with the lock that is left: %s token %d", other.Key, other.Token), other)
	a.Do(setOrderOf(9000, "A", "packed"))
}
