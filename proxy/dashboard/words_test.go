package dashboard_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

func TestDescribe(t *testing.T) {
	const stale = "stale_token: k token 4 was superseded by 5"
	for want, e := range map[string]live.Event{
		"Session 3 of app began, from 127.0.0.1:9":       {Kind: live.SessionStarted, Session: 3, User: "app", Remote: "127.0.0.1:9"},
		"Session 3 ended: client left":                   {Kind: live.SessionEnded, Session: 3, What: "client left"},
		"Token 5 was accepted: its holder may write now": {Kind: live.Claimed, Token: 5, What: "raised"},
		"Token 5 was confirmed again":                    {Kind: live.Claimed, Token: 5, What: "held"},
		"Token 5 was accepted: its holder may write now; 1 session and 2 processes in PostgreSQL with a lower token ended for it": {
			Kind: live.Claimed, Token: 5, What: "raised", Evicted: 1, Ended: 2,
		},
		"Token 4 was not accepted: " + stale:                             {Kind: live.ClaimRefused, Token: 4, Message: stale},
		"A statement of session 3 of app was refused: " + stale:          {Kind: live.StatementRefused, Session: 3, User: "app", What: "early", Message: stale},
		"The tag that session 3 of app began with was refused: " + stale: {Kind: live.StatementRefused, Session: 3, User: "app", What: "startup", Message: stale},
		"The next statement of session 3 of app was refused: " + stale:   {Kind: live.StatementRefused, Session: 3, User: "app", What: "session", Message: stale},
		"Session 3 of app was ended: its token 4 was superseded by 5":    {Kind: live.SessionEvicted, Session: 3, User: "app", Token: 4, Higher: 5},
		"Session 3 of app was ended: " + stale:                           {Kind: live.SessionEvicted, Session: 3, User: "app", Message: stale},
		"A claim ended what blocked it in PostgreSQL: pid 7":             {Kind: live.BackendEnded, What: "pid 7"},
	} {
		if got := dashboard.Describe(e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
