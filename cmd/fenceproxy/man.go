package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manSection is that of programs that anybody may run.
const manSection = "1"

// newMan is a hidden subcommand that releases are made with: each command's
// manual page, of what its help text is made of, so that the two say the same.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args:   exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate()
			if err != nil {
				return err
			}
			for _, page := range manPages(cmd.Root()) {
				path := filepath.Join(args[0], page.name()+"."+manSection)
				if err := os.WriteFile(path, page.render(date), 0o644); err != nil {
					return fmt.Errorf("write manual page: %w", err)
				}
			}
			return nil
		},
	}
}

// manDate is the day that the pages bear: SOURCE_DATE_EPOCH, so that a release
// made again has the same bytes, or today.
func manDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usagef("SOURCE_DATE_EPOCH: %q is no number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// A page of the manual is a command's.
type manPage struct{ cmd *cobra.Command }

// manPages are those of root and of all commands that it tells people of.
func manPages(root *cobra.Command) []manPage {
	pages := []manPage{{root}}
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			pages = append(pages, manPage{cmd})
		}
	}
	return pages
}

func (p manPage) name() string { return strings.ReplaceAll(p.cmd.CommandPath(), " ", "-") }

// render writes the page in man(7).
func (p manPage) render(date time.Time) []byte {
	p.cmd.InitDefaultHelpFlag()
	p.cmd.InitDefaultVersionFlag()
	var r roff
	r.line(".TH " + roffText(strings.ToUpper(p.name())) + " " + manSection + " " + date.Format(time.DateOnly) + ` fenceproxy "User Commands"`)
	r.macro("SH", "NAME")
	r.line(p.name() + ` \- ` + roffText(p.cmd.Short))
	r.macro("SH", "SYNOPSIS")
	if p.cmd.HasParent() {
		r.line(roffText(p.cmd.UseLine()))
	} else {
		r.line(roffText(p.cmd.Name() + " COMMAND [flags]"))
	}
	if long := p.cmd.Long; long != "" {
		r.macro("SH", "DESCRIPTION")
		r.text(long)
	}
	p.commands(&r)
	p.options(&r)
	if p.cmd.Example != "" {
		r.macro("SH", "EXAMPLES")
		r.verbatim(p.cmd.Example)
	}
	p.seeAlso(&r)
	return r.Bytes()
}

// commands lists what the program can do, and what is true of all of it.
func (p manPage) commands(r *roff) {
	if p.cmd.HasParent() {
		return
	}
	r.macro("SH", "COMMANDS")
	for _, page := range manPages(p.cmd)[1:] {
		r.entry(page.cmd.Use, page.cmd.Short)
	}
	r.macro("SH", "ENVIRONMENT")
	r.text(`A flag of a command that has --config can also be set by a variable, FENCEPROXY_CLAIM_TIMEOUT
for --claim-timeout. A flag wins over a variable, a variable over the file.`)
	r.macro("SH", "FILES")
	r.entry("/etc/fenceproxy/fenceproxy.yaml", `The settings of the service that the Debian package has, with all that there are and what they do.
Other commands take them by --config, too.`)
	r.macro("SH", "EXIT STATUS")
	r.text(`0 for success, 1 for failure, 2 for a command line, variable or file that can't be carried out;
the page of a command says what else.`)
}

func (p manPage) options(r *roff) {
	r.macro("SH", "OPTIONS")
	p.cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if value != "" {
			term += " " + value
		}
		if f.DefValue != "" && f.Value.Type() != "bool" {
			usage += " (default " + f.DefValue + ")"
		}
		r.entry(term, usage)
	})
}

// seeAlso names the program's page, or those of all commands.
func (p manPage) seeAlso(r *roff) {
	r.macro("SH", "SEE ALSO")
	others := []manPage{{p.cmd.Root()}}
	if !p.cmd.HasParent() {
		others = manPages(p.cmd)[1:]
	}
	for i, other := range others {
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		r.macro("BR", other.name(), "("+manSection+")"+end)
	}
}

// roff is a text in the language of manual pages.
type roff struct{ bytes.Buffer }

func (r *roff) line(text string) {
	r.WriteString(text)
	r.WriteByte('\n')
}

func (r *roff) macro(name string, args ...string) {
	line := "." + name
	for _, arg := range args {
		line += ` "` + strings.ReplaceAll(roffText(arg), `"`, `\(dq`) + `"`
	}
	r.line(line)
}

// entry is an item of a list and what it means.
func (r *roff) entry(term, meaning string) {
	r.line(".TP")
	r.line(`\fB` + roffText(term) + `\fR`)
	r.line(roffText(meaning))
}

// text writes paragraphs that an empty line parts; lines that are indented stay as
// they are.
func (r *roff) text(paragraphs string) {
	for i, paragraph := range strings.Split(paragraphs, "\n\n") {
		if i > 0 {
			r.line(".PP")
		}
		lines, kept := 0, []string(nil)
		for line := range strings.SplitSeq(paragraph, "\n") {
			switch {
			case strings.HasPrefix(line, "  "):
				kept = append(kept, line)
			default:
				r.line(roffText(line))
				lines++
			}
		}
		if len(kept) > 0 && lines > 0 {
			r.line(".PP")
		}
		if len(kept) > 0 {
			r.verbatim(strings.Join(kept, "\n"))
		}
	}
}

// verbatim writes lines as they are.
func (r *roff) verbatim(lines string) {
	r.line(".nf")
	r.line(roffLines(lines))
	r.line(".fi")
}

// roffLines is roffText of each line.
func roffLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = roffText(lines[i])
	}
	return strings.Join(lines, "\n")
}

// roffText has no character in it that means something to roff: backslashes, a
// dash that would become a hyphen, and what begins a request at a line's start.
func roffText(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
