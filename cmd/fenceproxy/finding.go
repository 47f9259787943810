package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// A level says how bad a finding is.
type level uint8

const (
	// levelOK: as it should be.
	levelOK level = iota
	// levelWarn: it works, and there is a way round the guarantee or a risk.
	levelWarn
	// levelFail: fencing doesn't work, or anybody can switch it off.
	levelFail
)

var levelNames = [...]string{"ok", "warn", "fail"}

func (l level) String() string { return levelNames[l] }

// MarshalText is how a level stands in JSON.
func (l level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// A finding is one thing that doctor looked at.
type finding struct {
	Area  string `json:"area"`
	Level level  `json:"level"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// A diagnosis is what doctor found so far.
type diagnosis struct {
	findings []finding
	area     string // of the findings that come next
}

func (d *diagnosis) add(l level, do, format string, args ...any) {
	d.findings = append(d.findings, finding{d.area, l, fmt.Sprintf(format, args...), do})
}

func (d *diagnosis) ok(format string, args ...any)       { d.add(levelOK, "", format, args...) }
func (d *diagnosis) warn(do, format string, args ...any) { d.add(levelWarn, do, format, args...) }
func (d *diagnosis) fail(do, format string, args ...any) { d.add(levelFail, do, format, args...) }

// unseen tells that something couldn't be looked at.
func (d *diagnosis) unseen(what string, err error) {
	d.warn("", "%s can't be looked at: %v", what, said(err))
}

// count returns how many findings are of a level.
func (d *diagnosis) count(l level) (n int) {
	for _, f := range d.findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

func (d *diagnosis) json(out io.Writer) error {
	return json.NewEncoder(out).Encode(struct {
		Findings []finding `json:"findings"`
		OK       int       `json:"ok"`
		Warn     int       `json:"warn"`
		Fail     int       `json:"fail"`
	}{d.findings, d.count(levelOK), d.count(levelWarn), d.count(levelFail)})
}

// print prints the findings below the areas that they are of.
func (d *diagnosis) print(out io.Writer, colour bool) error {
	var p page
	area := ""
	for _, f := range d.findings {
		if f.Area != area {
			if area != "" {
				p.line("")
			}
			area = f.Area
			p.line(area)
		}
		p.coloured = ""
		if colour {
			p.coloured = [...]string{"\x1b[32m", "\x1b[33m", "\x1b[31m"}[f.Level]
		}
		p.hanging("  "+pad(f.Level.String(), 6), f.Text)
		p.coloured = ""
		if f.Do != "" {
			p.hanging("        ", "→ "+f.Do)
		}
	}
	p.line("")
	p.line(fmt.Sprintf("%d ok, %s, %s", d.count(levelOK), counted(d.count(levelWarn), "warning"), counted(d.count(levelFail), "failure")))
	return p.write(out)
}

// counted is a number of things in words.
func counted(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
