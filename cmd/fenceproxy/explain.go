package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// explainCommand tells what becomes of statements in a tagged session.
type explainCommand struct {
	conforming choice
	encoding   string
	together   bool
	untagged   bool
	json       bool
}

func newExplain() *cobra.Command {
	c := &explainCommand{conforming: choice{"on", []string{"on", "off"}}}
	cmd := &cobra.Command{
		Use:   "explain SQL|FILE|CODE|-",
		Short: "Tell how each statement is classified, and where its check goes; or what an error means",
		Long: `Tell for each statement of SQL, of a FILE, or of standard input (-): its class, the words
that decided it and where they stand, and where a tagged session checks it: early (before
it), late (at the end of its transaction, if that has written), nowhere, or that it is
refused. Nothing is asked: no PostgreSQL and no etcd.

The statements are taken as sent one by one, as psql and most programs send a file;
--together takes them as sent in one message, as psql -c sends them.

Of the CODE of a refusal (LF001) or its name (stale_token) it tells what that means, what
to do, and where the runbook goes on.`,
		Example: `  fenceproxy explain "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d"
  fenceproxy explain migration.sql
  fenceproxy explain LF001`,
		Args:              exactArgs("SQL, a FILE or a CODE"),
		ValidArgsFunction: proposeExplained,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code, ok := explainCode(args[0]); ok {
				return code.print(cmd.OutOrStdout(), c.json)
			}
			text, err := explainText(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			return c.run(text, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.json, "json", false, "print one JSON object instead of text")
	flags.BoolVar(&c.together, "together", false, "take the statements as sent in one message")
	flags.BoolVar(&c.untagged, "untagged", false, "take the session as one without a tag, where untagged_writes is reject: a check refuses then")
	flags.Var(&c.conforming, "standard-conforming-strings", "the session's setting of that name")
	flags.StringVar(&c.encoding, "client-encoding", "UTF8", "the session's `encoding`")
	return cmd
}

// explainText returns the text that an argument stands for: what a file of that
// name holds if there is one, and otherwise the argument itself.
func explainText(arg string, stdin io.Reader) ([]byte, error) {
	if arg == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	if info, err := os.Stat(arg); err == nil && !info.IsDir() {
		text, err := os.ReadFile(arg)
		if err != nil {
			return nil, fmt.Errorf("read the file: %w", err)
		}
		return text, nil
	}
	if looksLikeCode.MatchString(arg) {
		return nil, usagef("explain: there is no code %s: refusals have LF001 to LF009, and 3F000", arg)
	}
	if looksLikeName.MatchString(arg) {
		var names []string
		for _, c := range explainedCodes() {
			names = append(names, c.Name)
		}
		if near := didYouMean(arg, names, asItIs); near != "" {
			return nil, usagef("explain: there is no refusal called %s%s", arg, near)
		}
	}
	if looksLikeState.MatchString(arg) {
		return nil, usagef("explain: %s is no code of a refusal (LF001 to LF009, 3F000), but one of PostgreSQL's; docs/sql-locks.md has those of fence.acquire", arg)
	}
	if strings.HasSuffix(arg, ".sql") && !strings.ContainsAny(arg, " \t\n") {
		return nil, usagef("explain: there is no file %q, and it is no SQL either", arg)
	}
	return []byte(arg), nil
}

func (c *explainCommand) run(text []byte, stdout io.Writer) error {
	all, err := proxy.Explain(text, proxy.ExplainOptions{
		BackslashQuotes: c.conforming.value == "off", ClientEncoding: c.encoding, Together: c.together, Untagged: c.untagged,
	})
	report := explained{Statements: []explainedStatement{}}
	var whole *fencing.Error
	switch {
	case errors.As(err, &whole):
		report.Refusal = newRefusal(whole)
	case err != nil:
		return fmt.Errorf("explain: %w", err)
	}
	for i, x := range all {
		report.Statements = append(report.Statements, explainStatement(text, i+1, x))
	}
	if c.json {
		return json.NewEncoder(stdout).Encode(report)
	}
	return report.print(stdout)
}

// explained is what explain --json prints.
type explained struct {
	Statements []explainedStatement `json:"statements"`
	Refusal    *refusal             `json:"refusal,omitempty"` // of the whole text
}

type explainedStatement struct {
	Number int    `json:"statement"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`

	Class     string   `json:"class"`
	Reason    string   `json:"reason"`
	DecidedBy *decider `json:"decided_by,omitempty"` // not where a setting did
	Flags     []string `json:"flags,omitempty"`
	Tag       []string `json:"tag,omitempty"` // what it does to the tag

	Check   string   `json:"check"`
	Where   string   `json:"where"`
	Refusal *refusal `json:"refusal,omitempty"`
}

// decider are the words that decided a class.
type decider struct {
	Text   string `json:"text"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// refusal is what a session would be answered.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func newRefusal(e *fencing.Error) *refusal {
	if e == nil {
		return nil
	}
	return &refusal{string(e.Code), e.Message, e.Hint}
}

func explainStatement(text []byte, number int, x proxy.Explanation) explainedStatement {
	st := x.Statement
	out := explainedStatement{
		Number: number, Text: string(text[st.Start:st.End]),
		Class: st.Class.String(), Reason: st.Why.Reason.String(),
		Check: x.Check.String(), Where: x.Where,
		Refusal: newRefusal(x.Refusal),
	}
	out.Line, out.Column = sqlrewrite.Position(text, st.Start)
	if words := st.Why.In(text); words != "" {
		out.DecidedBy = &decider{Text: words}
		out.DecidedBy.Line, out.DecidedBy.Column = sqlrewrite.Position(text, st.Why.Start)
	}
	if names := st.Flags.String(); names != "" {
		out.Flags = strings.Split(names, ", ")
	}
	for _, s := range x.Settings {
		out.Tag = append(out.Tag, tagChange(s))
	}
	return out
}

// tagChange says what becomes of a setting that carries a tag.
func tagChange(s sqlrewrite.Setting) string {
	name, what := s.Name, s.Kind.String()
	switch bound := s.Bound.Name.Number; {
	case bound > 0:
		name = fmt.Sprintf("the setting that $%d names", bound)
	case name == "":
		name = "all settings"
	}
	switch {
	case s.Bound.Value.Number > 0:
		what = fmt.Sprintf("set to parameter $%d", s.Bound.Value.Number)
	case s.Bound != sqlrewrite.Bound{} && s.Value != "":
		what = sqlrewrite.Set.String()
	case s.Kind == sqlrewrite.Lock:
		what = "changed by the lock of fence." + s.Call.Verb.String()
	case s.Kind == sqlrewrite.Unknown:
		what = "set to what the text doesn't tell"
	case s.Kind == sqlrewrite.ResetAll:
		what = sqlrewrite.Reset.String()
	}
	switch bound := s.Bound.Local.Number; {
	case bound > 0:
		what += fmt.Sprintf(", for the transaction only if $%d says so", bound)
	case s.Local:
		what += " for the transaction"
	}
	return name + ": " + what
}

func (e explained) print(out io.Writer) error {
	var p page
	for i, st := range e.Statements {
		if i > 0 {
			p.line("")
		}
		st.print(&p, len(fmt.Sprint(len(e.Statements))))
	}
	switch {
	case e.Refusal != nil:
		p.labelled("", "check", "refused, "+e.Refusal.Code+": "+e.Refusal.Message)
		p.labelled("", "hint", e.Refusal.Hint)
	case len(e.Statements) == 0:
		p.line("no statement")
	}
	return p.write(out)
}

// print prints a statement whose number has room for so many digits.
func (st explainedStatement) print(p *page, digits int) {
	number := fmt.Sprintf("%*d  ", digits, st.Number)
	p.line(number + cut(strings.Join(strings.Fields(st.Text), " "), pageWidth-len(number)))
	indent := strings.Repeat(" ", len(number))
	p.labelled(indent, "class", st.Class)
	why := st.Reason
	if d := st.DecidedBy; d != nil {
		why = fmt.Sprintf("%s at %d:%d: %s", cut(strings.Join(strings.Fields(d.Text), " "), 40), d.Line, d.Column, why)
	}
	p.labelled(indent, "why", why)
	p.labelled(indent, "flags", strings.Join(st.Flags, ", "))
	p.labelled(indent, "tag", strings.Join(st.Tag, "; "))
	switch r := st.Refusal; {
	case r != nil:
		p.labelled(indent, "check", "refused, "+r.Code+": "+r.Message)
		p.labelled(indent, "hint", r.Hint)
	default:
		p.labelled(indent, "check", st.Check+": "+st.Where)
	}
}
