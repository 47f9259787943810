package proxy

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// hostile are texts that try to end a quote early.
var hostile = []string{
	"plain", "it's", `back\slash`, "100 % of %s", "line\nbreak", "ключ", "\u2026",
	"$v0$", "$v0", "v0$", "$", "$$", "a$v0$b$v1$c", "ends in $v0", "$v0$v0$", "$b0$", "ends in $b0", "$b0$ $b1$ $v0$ $v1$",
	"'; END $b0$; DROP TABLE t; --", "/* comment", "-- comment",
}

// TestRaiseSQL: PostgreSQL raises exactly what it was to raise, whatever the
// texts are and however the session reads strings.
func TestRaiseSQL(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	conn, err := pgx.Connect(t.Context(), pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, strings := range []string{"on", "off"} {
		if _, err := conn.Exec(t.Context(), "SET standard_conforming_strings = "+strings); err != nil {
			t.Fatal(err)
		}
		for i, text := range hostile {
			other := hostile[(i+7)%len(hostile)]
			want := &fencing.Error{Code: fencing.CodeStale, Message: text, Detail: other, Hint: text + other}
			switch i % 3 {
			case 0:
				want.Detail, want.Hint = "", ""
			case 1:
				want.Message, want.Detail, want.Hint = "m", "d", text
			}
			_, err := conn.Exec(t.Context(), raiseSQL(want, ""), pgx.QueryExecModeSimpleProtocol)
			var got *pgconn.PgError
			if !errors.As(err, &got) {
				t.Errorf("%q: got %v", text, err)
				continue
			}
			if got.Code != string(want.Code) || got.Message != want.Message || got.Detail != want.Detail || got.Hint != want.Hint {
				t.Errorf("%q: got %s %q, %q, %q", text, got.Code, got.Message, got.Detail, got.Hint)
			}
		}
	}
}

func TestDollarTag(t *testing.T) {
	for _, a := range hostile {
		for _, b := range hostile {
			tag := dollarTag('v', a, b)
			for _, text := range []string{a, b} {
				if at := strings.Index(text+tag, tag); at != len(text) {
					t.Errorf("%q ends %q at %d, want %d", tag, text, at, len(text))
				}
			}
		}
	}
	if got, want := dollarTag('v', "plain"), "$v0$"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A batch that is used again holds on to what a check needs, and to no more.
func TestBatch_Reset(t *testing.T) {
	var b batch
	for _, c := range []struct {
		name string
		fill func()
		kept bool
	}{
		{"a check", func() { b.check(queue.Early) }, true},
		{"a long refusal", func() { b.raise(fencing.Refuse(fencing.CodeStale, "%s", strings.Repeat("x", 1<<16))) }, false},
		{"another check", func() { b.check(queue.Late) }, true},
		{"many checks", func() { b.check(queue.Late); b.check(queue.Late) }, false},
	} {
		b.reset()
		if len(b.bytes) != 0 || len(b.entries) != 0 {
			t.Errorf("before %s: got %d bytes and %d entries, want none", c.name, len(b.bytes), len(b.entries))
		}
		c.fill()
		b.reset()
		if got := cap(b.bytes) > 0 && cap(b.entries) > 0; got != c.kept {
			t.Errorf("%s: got %v, want %v, that its memory is kept", c.name, got, c.kept)
		}
	}
}

// A batch hands over as many entries as its messages have replies.
func TestBatch(t *testing.T) {
	var b batch
	b.prepare(checks{early: earlySQL, late: lateSQL}, 3)
	b.check(queue.Early)
	b.check(queue.LateCommit)
	b.raise(fencing.Refuse(fencing.CodeStale, "x"))
	var types []byte
	for r := wire.NewReader(bytes.NewReader(b.bytes)); ; {
		typ, _, err := r.Next()
		if err != nil {
			break
		}
		types = append(types, typ)
		r.Skip()
	}
	if got, want := string(types), "CPCPBECBECCPBEC"; got != want {
		t.Errorf("messages: got %s, want %s", got, want)
	}
	kinds := map[byte]queue.Kind{'C': queue.Close, 'P': queue.Parse, 'B': queue.Bind, 'E': queue.Execute}
	for i, e := range b.entries {
		if e.Kind != kinds[types[i]] || e.Purpose == queue.Client {
			t.Errorf("entry %d: got a %v for %v, want one for %c that is hidden", i, e.Kind, e.Purpose, types[i])
		}
		if want := map[bool]int{true: 3}[i == 3]; e.Confirms != want {
			t.Errorf("entry %d: confirms %d, want %d", i, e.Confirms, want)
		}
	}
	for _, own := range []string{earlyName, lateName, raiseName} {
		if own == "" || !bytes.Contains(b.bytes, []byte(own)) {
			t.Errorf("%q isn't used: the unnamed statement and portal are the client's", own)
		}
	}
}

func TestOwn_Ready(t *testing.T) {
	for _, c := range []struct {
		own  own
		want bool
	}{
		{own{0, 0}, false}, {own{1, 0}, false}, {own{1, 1}, true}, {own{2, 1}, false}, {own{2, 2}, true},
	} {
		if got := c.own.ready(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.own, got, c.want)
		}
	}
}
