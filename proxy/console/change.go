package console

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// change carries out KILL and RELOAD, for those who may at this moment.
func (cl *Client) change(ctx context.Context, cmd *command) error {
	access, err := cl.who.Again(ctx)
	if err != nil {
		return faultf(codeUnavailable, "it can't be told what role %q may do: %v", cl.who.Role, err)
	}
	if access != Administer {
		return faultf(codeDenied, "permission denied for %s", cmd.tag).hint("It is for the roles of admin_roles.")
	}
	if cmd.verb == verbReload {
		return cl.reload(ctx)
	}
	return cl.kill(ctx, cmd)
}

// reload reads the settings anew. What became of them is told in notices, and
// what is wrong with them in the error, each in a line.
func (cl *Client) reload(ctx context.Context) error {
	became, err := cl.console.Program.Reload(ctx)
	if err != nil {
		f := faultf(codeConfig, "settings not reloaded: they stay as they are").hint("Mend them and RELOAD again; fenceproxy serve --check-config looks at them.")
		f.Detail = err.Error()
		return f
	}
	for _, c := range became.Changed {
		cl.out.Write(wire.AppendNotice(nil, notice("NOTICE", "%s changed from %s to %s", c.Name, shown(c.From), shown(c.To))))
	}
	for _, name := range became.Restart {
		cl.out.Write(wire.AppendNotice(nil, notice("WARNING", "%s not changed: it needs a restart", name)))
	}
	return nil
}

// shown is a value that may be empty.
func shown(value string) string {
	if value == "" {
		return "nothing"
	}
	return value
}

func (cl *Client) kill(ctx context.Context, cmd *command) error {
	wanted, err := whole(cmd.id, "KILL")
	if err != nil {
		return err
	}
	var found []live.Session
	for _, s := range cl.console.Server.LiveSessions() {
		if cmd.bySession && int64(s.ID) == wanted || !cmd.bySession && s.PID != 0 && int64(s.PID) == wanted {
			found = append(found, s)
		}
	}
	what := "pid"
	if cmd.bySession {
		what = "number"
	}
	switch {
	case len(found) > 1: // on several servers
		var kills []string
		for _, s := range found {
			kills = append(kills, fmt.Sprintf("KILL SESSION %d", s.ID))
		}
		return faultf(codeAmbiguous, "%d sessions have the pid %d", len(found), wanted).hint("%s", strings.Join(kills, ", "))
	case len(found) == 0, !cl.console.Server.Kill(ctx, found[0].ID, cl.who.Role):
		return faultf(codeNoSuchThing, "there is no session with the %s %d", what, wanted).hint("SHOW SESSIONS lists them.")
	}
	return nil
}
