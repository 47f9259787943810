package wire

import (
	"fmt"
	"strings"
)

// String is the script as it stands in a file.
func (s *Script) String() string {
	var b strings.Builder
	line := func(verb, rest string) { fmt.Fprintln(&b, strings.TrimRight(verb+" "+rest, " ")) }
	for _, sql := range s.Setup {
		line("setup", sql)
	}
	line("script", s.Name)
	for _, condition := range s.Only {
		line("only", condition)
	}
	for _, o := range []struct{ verb, rest string }{
		{"untagged", s.Untagged}, {"unix", s.Unix}, {"alone", s.Alone},
		{"differs", s.DiffersIn + " " + s.Reason}, {"fault", s.FaultIn + " " + s.Fault},
	} {
		if strings.TrimSpace(o.rest) != "" {
			line(o.verb, o.rest)
		}
	}
	for _, step := range s.Steps {
		step.format(line)
	}
	return b.String()
}

func (s Step) format(line func(verb, rest string)) {
	switch s.Action {
	case ActSend:
		if s.Split {
			line("split", "")
		}
		for _, m := range s.Messages {
			line(">", m.Text)
		}
	case ActExpect:
		for _, a := range s.Expect {
			var wants []string
			for _, w := range a.Wants {
				wants = append(wants, w.String())
			}
			line("<"+a.Condition, strings.Join(wants, " "))
		}
	case ActOn, ActDial, ActTLS:
		rest := s.Session
		for i := 0; i < len(s.Params); i += 2 {
			rest += fmt.Sprintf(" %s=%q", s.Params[i], s.Params[i+1])
		}
		line(s.Action.String(), strings.TrimSpace(rest))
	default:
		line(s.Action.String(), s.SQL)
	}
}
