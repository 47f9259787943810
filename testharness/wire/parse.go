package wire

import (
	"errors"
	"fmt"
	"strings"
)

// Parse reads the scripts of a file; name is told in errors and in scripts.
func Parse(name, text string) ([]*Script, error) {
	p := parser{file: name}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		line, from := strings.TrimRight(lines[i], " \t"), i+1
		for i++; i < len(lines) && continues(lines[i]); i++ {
			line += "\n" + strings.TrimRight(lines[i], " \t")
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p.line = from
		if err := p.take(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, from, err)
		}
	}
	for _, s := range p.scripts {
		if len(s.Steps) == 0 {
			return nil, fmt.Errorf("%s: script %s has no steps", name, s.Name)
		}
	}
	return p.scripts, nil
}

// continues says whether a line goes on with the one before it.
func continues(line string) bool {
	return strings.TrimSpace(line) != "" && (line[0] == ' ' || line[0] == '\t')
}

type parser struct {
	file    string
	line    int
	shared  []string // SQL before every script of the file
	scripts []*Script
	split   bool
}

// take reads one line.
func (p *parser) take(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	if verb == "script" {
		return p.begin(rest)
	}
	if len(p.scripts) == 0 {
		if verb != "setup" {
			return fmt.Errorf("%s before the first script", verb)
		}
		p.shared = append(p.shared, rest)
		return nil
	}
	s := p.scripts[len(p.scripts)-1]
	switch verb {
	case "setup":
		s.Setup = append(s.Setup, rest)
	case "only":
		s.Only = append(s.Only, rest)
	case "untagged":
		s.Untagged = rest
	case "unix":
		s.Unix = rest
	case "alone":
		s.Alone = rest
	case "differs":
		s.DiffersIn, s.Reason, _ = strings.Cut(rest, " ")
		if s.Reason == "" {
			return errors.New("differs needs a condition and a reason")
		}
	case "fault":
		s.FaultIn, s.Fault, _ = strings.Cut(rest, " ")
		if s.Fault == "" {
			return errors.New("fault needs a condition and what it is")
		}
	case "split":
		p.split = true
	case ">":
		return p.send(s, rest)
	default:
		if condition, ok := strings.CutPrefix(verb, "<"); ok {
			return p.expect(s, condition, rest)
		}
		return p.act(s, verb, rest)
	}
	return nil
}

func (p *parser) begin(name string) error {
	for _, s := range p.scripts {
		if s.Name == name {
			return fmt.Errorf("a second script %q", name)
		}
	}
	if name == "" {
		return errors.New("a script without a name")
	}
	p.split = false
	p.scripts = append(p.scripts, &Script{File: p.file, Name: name, Setup: p.shared[:len(p.shared):len(p.shared)]})
	return nil
}

// send adds a message to the write before it, if there is one.
func (p *parser) send(s *Script, text string) error {
	m, err := ParseMessage(text)
	if err != nil {
		return err
	}
	if n := len(s.Steps); n > 0 && s.Steps[n-1].Action == ActSend && !p.split && m.cancel == "" {
		if last := &s.Steps[n-1]; last.Messages[0].cancel == "" {
			last.Messages = append(last.Messages, m)
			return nil
		}
	}
	s.Steps = append(s.Steps, Step{Line: p.line, Action: ActSend, Messages: []Message{m}, Split: p.split})
	p.split = false
	return nil
}

// expect adds what must come: a line under another of its kind goes on with
// it, and one with a condition stands in the place of those without.
func (p *parser) expect(s *Script, condition, text string) error {
	wants, err := parseWants(text)
	if err != nil {
		return err
	}
	if condition != "" {
		if _, err := (Where{}).holds(condition); err != nil {
			return err
		}
	}
	n := len(s.Steps)
	goesOn := n > 0 && s.Steps[n-1].Action == ActExpect
	if goesOn && condition == "" {
		alternatives := s.Steps[n-1].Expect
		goesOn = alternatives[len(alternatives)-1].Condition == ""
	}
	if !goesOn {
		if condition != "" {
			return errors.New("there is no line whose place this one takes")
		}
		s.Steps = append(s.Steps, Step{Line: p.line, Action: ActExpect})
		n++
	}
	step := &s.Steps[n-1]
	if last := len(step.Expect) - 1; last >= 0 && step.Expect[last].Condition == condition {
		step.Expect[last].Wants = append(step.Expect[last].Wants, wants...)
		return nil
	}
	step.Expect = append(step.Expect, Alternative{condition, wants})
	return nil
}

// act adds a step that neither sends nor expects.
func (p *parser) act(s *Script, verb, rest string) error {
	step := Step{Line: p.line}
	switch verb {
	case "on", "dial":
		words, err := fields(rest)
		if err != nil {
			return err
		}
		if len(words) == 0 {
			return fmt.Errorf("%s needs the name of a session", verb)
		}
		step.Action, step.Session = ActOn, words[0]
		if verb == "dial" {
			step.Action = ActDial
		}
		if step.Params, err = pairs(words[1:]); err != nil {
			return err
		}
	case "tls":
		step.Action = ActTLS
		words, err := fields(rest)
		if err != nil {
			return err
		}
		if step.Params, err = pairs(words); err != nil {
			return err
		}
		if _, err := clientTLS(step.Params); err != nil {
			return err
		}
	case "close":
		step.Action = ActClose
	case "half-close":
		step.Action = ActHalfClose
	case "wait":
		step.Action, step.SQL = ActWait, rest
	case "admin":
		step.Action, step.SQL = ActAdmin, rest
	default:
		return fmt.Errorf("%q is nothing that a script does", verb)
	}
	s.Steps = append(s.Steps, step)
	return nil
}

// pairs reads words of the form name=value.
func pairs(words []string) (params []string, err error) {
	e := encoder{words: words}
	for e.err == nil && len(e.words) > 0 {
		params = append(params, e.pair()...)
	}
	return params, e.err
}
