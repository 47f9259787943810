package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
		s = w.claimAtStartup(ctx, op)
	} else {
		ctx, cancel := finishing(ctx, requestTimeout)
		defer cancel()
		op.Via, op.Opened, op.Retag = w.via(s.gate), s.open, len(s.tag) > 0
		w.record.Begin(op)
		err := s.present(ctx, op.Form, tag)
		settle(op, err)
		w.end(op)
		s.tag, s.local = tag, op.Form == formLocal
	}
	if s != nil {
		s = s.after(op)
	}
	return s, op
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
	return draw(w, formStartup, formSet, formParams, formTokens, formLocal)
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
		s.tag = op.Tag
	}
	return s
}

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
		_, err := s.conn.Exec(ctx, "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2, false)", key, token)
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
