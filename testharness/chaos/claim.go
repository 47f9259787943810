package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// The ways to present a tag. Those from formSet on need a session.
const (
	formStartup = "startup"
	formSet     = "set"
	formParams  = "set_config"
	formTokens  = "tokens"
	formLocal   = "set local"
	formAhead   = "set_config ahead of a write"
)

// claim presents a tag, in a way that is drawn: in a session of its own, or in
// the one that is there, whose former tag it takes away first. What came of it
// stands in the operation that it returns; the session is nil if it is gone.
func (w *worker) claim(ctx context.Context, s *session, tag []fencing.Pair, lie bool) (*session, *history.Op) {
	op := &history.Op{Kind: history.KindClaim, Tag: tag, Lie: lie, Form: w.claimForm(s, tag)}
	if op.Form == formStartup {
		if s != nil {
			s.close()
		}
		if s = w.claimAtStartup(ctx, op); s == nil {
			return nil, op
		}
		return s.after(op), op
	}
	ctx, cancel := finishing(ctx, requestTimeout)
	defer cancel()
	op.Via, op.Opened, op.Retag = w.via(s.gate), s.open, len(s.tag) > 0
	if op.Form == formAhead {
		return w.claimAhead(ctx, s, op), op
	}
	w.record.Begin(op)
	settle(op, s.present(ctx, op.Form, tag))
	w.end(op)
	s.tag, s.local = tag, op.Form == formLocal
	s.claimed = !s.local && op.Outcome == history.OutcomeOK
	return s.after(op), op
}

// claimAhead presents a tag and writes under it in one round trip, without
// waiting for the claim's answer. One transaction is what both are: if the write
// fails, the tag is taken back, and so the session is given up then.
func (w *worker) claimAhead(ctx context.Context, s *session, op *history.Op) *session {
	p := op.Tag[0]
	write := &history.Op{Kind: history.KindWrite, Form: "behind its claim", Tag: op.Tag, Via: op.Via, Opened: op.Opened, Retag: op.Retag,
		Rows: []history.Row{{ID: w.id(), Key: p.Key, Token: p.Token}}}
	w.record.Begin(op)
	w.record.Begin(write)
	var err error
	if len(s.tag) > 0 {
		err = s.exec(ctx, untag)
	}
	claimed := false
	if err == nil {
		b := &pgx.Batch{}
		b.Queue(setConfig, p.Key, p.Token.String()).Exec(func(pgconn.CommandTag) error { claimed = true; return nil })
		queue(b, write.Rows)
		err = s.conn.SendBatch(ctx, b).Close()
	}
	settle(write, err)
	if w.end(write); claimed {
		err = nil
	}
	settle(op, err)
	w.end(op)
	s.claimed = op.Outcome == history.OutcomeOK
	if s.tag, s.local = op.Tag, false; write.Outcome != history.OutcomeOK {
		s.close()
		return nil
	}
	return s.after(op)
}

func (w *worker) claimForm(s *session, tag []fencing.Pair) string {
	switch {
	case s == nil && len(tag) == 1 && w.chance(0.5):
		return formStartup
	case len(tag) > 1:
		return formTokens
	case s == nil:
		return formStartup
	}
	return draw(w, formStartup, formSet, formParams, formTokens, formLocal, formAhead)
}

// claimAtStartup has the login carry the tag. A refusal is a WARNING then.
func (w *worker) claimAtStartup(ctx context.Context, op *history.Op) *session {
	gate := draw(w, w.Gates...)
	op.Via = w.via(gate)
	w.record.Begin(op)
	s, err := open(ctx, gate, map[string]string{
		fencing.SettingKey: op.Tag[0].Key, fencing.SettingToken: op.Tag[0].Token.String(),
	})
	if err == nil && s.warning != nil {
		warning := pgconn.PgError(*s.warning)
		settle(op, &warning)
	} else {
		settle(op, err)
	}
	w.end(op)
	if s != nil {
		s.tag, s.claimed = op.Tag, op.Outcome == history.OutcomeOK
	}
	return s
}

const setConfig = "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2, false)"

// untag takes a tag away. RESET would bring back the one of the login.
const untag = "SET fence.key = ''; SET fence.token = ''; SET fence.tokens = ''"

// present tags a session that may have another tag.
func (s *session) present(ctx context.Context, form string, tag []fencing.Pair) error {
	if len(s.tag) > 0 {
		if err := s.exec(ctx, untag); err != nil {
			return err
		}
	}
	key, token := tag[0].Key, tag[0].Token.String()
	switch form {
	case formSet:
		return s.exec(ctx, fmt.Sprintf("SET fence.key = '%s'; SET fence.token = %s", key, token))
	case formParams:
		_, err := s.conn.Exec(ctx, setConfig, key, token)
		return err
	case formLocal:
		err := s.exec(ctx, "BEGIN")
		if err == nil {
			err = s.exec(ctx, setLocal(tag))
		}
		return s.finish(ctx, err)
	default:
		_, err := s.conn.Exec(ctx, "SELECT set_config('fence.tokens', $1, false)", tokens(tag))
		return err
	}
}

func setLocal(tag []fencing.Pair) string {
	return fmt.Sprintf("SET LOCAL fence.key = '%s'; SET LOCAL fence.token = %s", tag[0].Key, tag[0].Token)
}

// tokens is a tag as fence.tokens has it.
func tokens(tag []fencing.Pair) string {
	object := map[string]json.Number{}
	for _, p := range tag {
		object[p.Key] = json.Number(p.Token.String())
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic("encode a map of numbers: " + err.Error()) // can't fail
	}
	return string(text)
}

// via names a gate by its address, without the password.
func (w *worker) via(gate string) string {
	_, addr, _ := strings.Cut(gate, "@")
	addr, _, _ = strings.Cut(addr, "/")
	return addr
}
