package steps_test

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// A request is what one ReadyForQuery answers.
type request struct {
	messages []pgproto3.FrontendMessage
	of       *history.Op // what it is a part of, nil if it decides nothing
	last     bool        // its answer is the operation's
}

// A flight is requests that are sent at once.
type flight []request

// A form is a way to claim and write.
type form struct {
	name string
	keys int // how many locks it takes
	// startup says that the login carries the tag.
	startup bool
	// local says that each transaction presents the tag.
	local   bool
	flights func(a *attempt) []flight
}

func forms() []form {
	return []form{
		{"simple", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.simple(1)) }},
		{"several statements", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.simple(2)) }},
		{"block", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.block()...) }},
		{"savepoint", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.savepoint()...) }},
		{"chain", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.chain()...) }},
		{"extended", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), flight{a.extended(2)}) }},
		{"prepared", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.prepared()...) }},
		{"pipeline", 1, false, false, func(a *attempt) []flight {
			return a.then(a.set(), flight{a.extended(1), a.extended(1), a.extended(2)})
		}},
		{"pipeline in a block", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.pipelinedBlock()) }},
		{"copy", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), a.copies()) }},
		{"unseen", 1, false, false, func(a *attempt) []flight { return a.then(a.set(), flight{a.whole(query(a.unseen()))}) }},
		{"unseen, extended", 1, false, false, func(a *attempt) []flight {
			return a.then(a.set(), flight{a.whole(append(unnamed(a.unseen()), &pgproto3.Sync{})...)})
		}},
		{"behind its claim", 1, false, false, func(a *attempt) []flight { return []flight{append(a.set(), a.simple(1)...)} }},
		{"startup", 1, true, false, func(a *attempt) []flight { return []flight{a.simple(1)} }},
		{"set_config", 1, false, false, func(a *attempt) []flight { return a.then(a.setConfig(), a.simple(1)) }},
		{"two locks", 2, false, false, func(a *attempt) []flight { return a.then(a.tokens(), a.block()...) }},
		{"set local", 1, false, true, func(a *attempt) []flight { return a.setLocal() }},
	}
}

func (a *attempt) then(first flight, rest ...flight) []flight {
	return append([]flight{first}, rest...)
}

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

// unnamed is Parse, Bind and Execute of a statement without parameters.
func unnamed(sql string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}}
}

// claimOp is the operation of presenting the tag.
func (a *attempt) claimOp() *history.Op {
	return &history.Op{Kind: history.KindClaim, Form: a.form.name, Tag: a.tag}
}

func (a *attempt) claiming(messages ...pgproto3.FrontendMessage) flight {
	return flight{{messages, a.claimOp(), true}}
}

func (a *attempt) set() flight {
	p := a.tag[0]
	return a.claiming(query(fmt.Sprintf("SET %s = '%s'; SET %s = %d", fencing.SettingKey, p.Key, fencing.SettingToken, p.Token)))
}

func (a *attempt) setConfig() flight {
	p := a.tag[0]
	return a.claiming(
		&pgproto3.Parse{Query: "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2, false)"},
		&pgproto3.Bind{Parameters: [][]byte{[]byte(p.Key), []byte(p.Token.String())}},
		&pgproto3.Execute{}, &pgproto3.Sync{})
}

func (a *attempt) tokens() flight {
	return a.claiming(query(fmt.Sprintf(`SET fence.tokens = '{"%s": %d, "%s": %d}'`,
		a.tag[0].Key, a.tag[0].Token, a.tag[1].Key, a.tag[1].Token)))
}

// row makes a row that a write is to leave behind: of each lock in turn.
func (a *attempt) row(w *history.Op) (insert string) {
	p := a.tag[len(w.Rows)%len(a.tag)]
	r := history.Row{ID: a.play.nextID(), Key: p.Key, Token: p.Token}
	w.Rows = append(w.Rows, r)
	return fmt.Sprintf("WITH c AS (UPDATE counter SET n = n + 1 WHERE key = '%s' RETURNING n) INSERT INTO entry SELECT %d, '%s', %d, c.n FROM c",
		r.Key, r.ID, r.Key, r.Token)
}

func (a *attempt) write() *history.Op {
	return &history.Op{Kind: history.KindWrite, Form: a.form.name, Tag: a.tag}
}

// whole is a write in one request, whose row was the last to be made.
func (a *attempt) whole(messages ...pgproto3.FrontendMessage) request {
	return request{messages, a.unseenOp, true}
}

func (a *attempt) simple(rows int) flight {
	w, text := a.write(), ""
	for range rows {
		text += a.row(w) + ";"
	}
	return flight{{[]pgproto3.FrontendMessage{query(text)}, w, true}}
}

func (a *attempt) extended(rows int) request {
	r := request{of: a.write(), last: true}
	for range rows {
		r.messages = append(r.messages, unnamed(a.row(r.of))...)
	}
	r.messages = append(r.messages, &pgproto3.Sync{})
	return r
}

// unseen writes behind an operator.
func (a *attempt) unseen() string {
	a.unseenOp = a.write()
	a.row(a.unseenOp)
	r := a.unseenOp.Rows[0]
	return fmt.Sprintf("SELECT %d::bigint <# '%s %d'", r.ID, r.Key, r.Token)
}

func (a *attempt) block() (all []flight) {
	w := a.write()
	return a.queries(w, "BEGIN", a.row(w), a.row(w), "COMMIT")
}

// queries are parts of a write, each sent when the one before is answered. The
// last one's answer is the write's.
func (a *attempt) queries(w *history.Op, texts ...string) (all []flight) {
	for i, sql := range texts {
		all = append(all, flight{{[]pgproto3.FrontendMessage{query(sql)}, w, i == len(texts)-1}})
	}
	return all
}

// savepoint takes a row back, and the check's lock with it.
func (a *attempt) savepoint() []flight {
	w := a.write()
	return a.queries(w, "BEGIN", "SAVEPOINT s", a.row(a.write()), "ROLLBACK TO s", a.row(w), "COMMIT")
}

// chain has a transaction begin where another one commits.
func (a *attempt) chain() []flight {
	first, second := a.write(), a.write()
	return append(a.queries(first, "BEGIN", a.row(first), "COMMIT AND CHAIN"), a.queries(second, a.row(second), "COMMIT")...)
}

func (a *attempt) setLocal() []flight {
	p := a.tag[0]
	all := a.block()
	local := a.claiming(query(fmt.Sprintf("SET LOCAL %s = '%s'; SET LOCAL %s = %d", fencing.SettingKey, p.Key, fencing.SettingToken, p.Token)))
	all[0][0].of = nil // the write begins behind the claim
	return append([]flight{all[0], local}, all[1:]...)
}

func (a *attempt) prepared() []flight {
	w := a.write()
	return []flight{
		{{[]pgproto3.FrontendMessage{&pgproto3.Parse{Name: "s", Query: a.row(w)}, &pgproto3.Sync{}}, nil, false}},
		{{[]pgproto3.FrontendMessage{&pgproto3.Bind{PreparedStatement: "s"}, &pgproto3.Execute{}, &pgproto3.Sync{}}, w, true}},
	}
}

func (a *attempt) pipelinedBlock() flight {
	r := request{of: a.write(), last: true}
	for _, sql := range []string{"BEGIN", a.row(r.of), a.row(r.of), "COMMIT"} {
		r.messages = append(r.messages, unnamed(sql)...)
	}
	r.messages = append(r.messages, &pgproto3.Sync{})
	return flight{r}
}

// copies writes without the counter, whose lock would hide a race.
func (a *attempt) copies() flight {
	w := a.write()
	r := request{[]pgproto3.FrontendMessage{query("COPY entry (id, key, token) FROM STDIN")}, w, true}
	for range 2 {
		a.row(w)
		row := w.Rows[len(w.Rows)-1]
		r.messages = append(r.messages, &pgproto3.CopyData{Data: fmt.Appendf(nil, "%d\t%s\t%d\n", row.ID, row.Key, row.Token)})
	}
	r.messages = append(r.messages, &pgproto3.CopyDone{})
	return flight{r}
}
