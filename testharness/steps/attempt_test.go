package steps_test

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// patience bounds what must happen; no healthy run comes near it.
const patience = 20 * time.Second

// An attempt is a session in which a worker claims and writes, in one form.
type attempt struct {
	play *play
	form form
	name string
	tag  []fencing.Pair

	conn     net.Conn
	fe       *pgproto3.Frontend
	opened   history.Moment
	seq      int64
	unseenOp *history.Op
	refusal  fencing.Code // of a tag at startup, which is a warning
	said     string       // with the last error
	broken   bool         // the session is gone, or was told no
}

// open logs in, with startup parameters. It returns false if the connection
// broke.
func (a *attempt) open(s *side, params map[string]string) bool {
	a.opened = history.Now()
	conn, err := net.DialTimeout("tcp", s.client.Addr(), patience)
	if err != nil {
		a.broken = true
		return false
	}
	a.conn = conn
	conn.SetDeadline(time.Now().Add(patience))
	a.fe = pgproto3.NewFrontend(conn, conn)
	all := map[string]string{"user": role, "database": a.play.lane.name, "application_name": a.name}
	for name, value := range params {
		all[name] = value
	}
	a.fe.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: all})
	if a.fe.Flush() != nil {
		a.broken = true
		return false
	}
	code, _, ok := a.answer()
	a.broken = !ok || code != ""
	return !a.broken
}

func (a *attempt) close() {
	if a.conn != nil {
		a.conn.Close()
	}
}

// answer reads up to ReadyForQuery. It returns the code of an error, the last
// row, and false if the connection broke before the end.
func (a *attempt) answer() (code fencing.Code, row []string, ok bool) {
	rolledBack := false
	for {
		m, err := a.fe.Receive()
		if err != nil {
			return code, row, false
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			if code == "" {
				code, a.said = fencing.Code(m.Code), m.Message+" "+m.Detail
			}
		case *pgproto3.NoticeResponse:
			if strings.HasPrefix(m.Code, "LF") {
				a.refusal, a.said = fencing.Code(m.Code), m.Message+" "+m.Detail
			}
		case *pgproto3.CommandComplete:
			rolledBack = string(m.CommandTag) == "ROLLBACK"
		case *pgproto3.DataRow:
			row = nil
			for _, v := range m.Values {
				row = append(row, string(v))
			}
		case *pgproto3.ReadyForQuery:
			if code == "" && rolledBack && m.TxStatus == 'I' { // not to a savepoint
				code = "ROLLBACK"
			}
			return code, row, true
		}
	}
}

// begin records that an operation begins, at its first request.
func (a *attempt) begin(op *history.Op) {
	if op == nil || op.Seq != 0 {
		return
	}
	a.seq++
	op.Worker, op.Seq, op.Opened, op.Invoke = a.name, a.seq, a.opened, history.Now()
	a.play.record(op)
}

// end records what came of an operation.
func (a *attempt) end(op *history.Op, code fencing.Code, answered bool) {
	if op == nil || op.Return != 0 {
		return
	}
	op.Return = history.Now()
	switch {
	case code != "" && !history.Lost(string(code)):
		op.Outcome, op.Code = history.OutcomeRefused, code
	case code == "" && answered:
		op.Outcome = history.OutcomeOK
	}
	op.Code = code
}

// run claims and writes by a side, as far as it comes.
func (a *attempt) run(s *side) {
	if a.form.startup {
		claim := a.claimOp()
		a.begin(claim)
		ok := a.open(s, map[string]string{fencing.SettingKey: a.tag[0].Key, fencing.SettingToken: a.tag[0].Token.String()})
		a.end(claim, a.refusal, ok)
		a.broken = a.broken || a.refusal != ""
	} else if a.conn == nil {
		a.open(s, nil)
	}
	for _, f := range a.form.flights(a) {
		if a.broken {
			return
		}
		a.fly(f)
	}
}

// goOn writes once more, as if the lock were still held.
func (a *attempt) goOn() {
	if a.form.local {
		a.run(nil)
	} else if !a.broken {
		a.fly(a.simple(1))
	}
}

// fly sends requests at once and reads their answers.
func (a *attempt) fly(f flight) {
	for _, r := range f {
		a.begin(r.of)
		for _, m := range r.messages {
			a.fe.Send(m)
		}
	}
	sent := a.fe.Flush() == nil
	for _, r := range f {
		code, _, ok := fencing.Code(""), []string(nil), false
		if sent {
			code, _, ok = a.answer()
		}
		sent = ok
		if r.last || code != "" || !ok {
			a.end(r.of, code, ok)
		}
		a.broken = a.broken || code != "" || !ok
	}
}

// look reads a key for the first time after its claim.
func (a *attempt) look() {
	p := a.tag[0]
	op := &history.Op{Kind: history.KindRead, Tag: a.tag, Key: p.Key, First: true}
	a.begin(op)
	a.fe.Send(query("SELECT (SELECT n FROM counter WHERE key = '" + p.Key + "'), count(*), coalesce(sum(id), 0)::bigint, coalesce(bit_xor(id), 0)" +
		" FROM entry WHERE key = '" + p.Key + "' AND token < " + p.Token.String()))
	sent := a.fe.Flush() == nil
	code, row, ok := a.answer()
	if sent && ok && code == "" && len(row) == 4 {
		var n [4]int64
		for i := range n {
			n[i], _ = strconv.ParseInt(row[i], 10, 64) // bigints
		}
		op.Seen = &history.Seen{N: n[0], Count: n[1], Sum: n[2], Xor: n[3]}
	}
	a.end(op, code, ok)
	a.broken = a.broken || code != "" || !ok
}

// took is how long the attempt's claim was on its way.
func (a *attempt) took() time.Duration {
	a.play.mu.Lock()
	defer a.play.mu.Unlock()
	for _, op := range a.play.ops {
		if op.Worker == a.name && op.Kind == history.KindClaim && op.Return != 0 {
			return op.Return.Since(op.Invoke)
		}
	}
	return 0
}
