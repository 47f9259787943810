package main

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pageWidth is how wide text for people is: that of a plain terminal.
const pageWidth = 80

// A page is text for people, as it grows line by line.
type page struct {
	strings.Builder
	coloured string // the escape sequence that heads are coloured with; "" for none
}

func (p *page) line(text string) {
	p.WriteString(strings.TrimRight(text, " "))
	p.WriteByte('\n')
}

// labelled adds a text behind a short label, its lines below each other; nothing
// where there is no text.
func (p *page) labelled(indent, label, text string) {
	if text != "" {
		p.hanging(indent+pad(label, 7), text)
	}
}

// hanging adds a text that begins behind head and goes on below its beginning.
// A word that is wider than the page stands out.
func (p *page) hanging(head, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	line := head
	if p.coloured != "" {
		defer p.colourFrom(p.Len(), head)
	}
	for i, word := range strings.Fields(text) {
		word = visible(word)
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > pageWidth:
			p.line(line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	p.line(line)
}

// table adds rows whose columns stand below each other. The first column is cut
// where they would be wider than the page.
func (p *page) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	others := 0
	for _, w := range widths[1:] {
		others += w + 2
	}
	widths[0] = min(widths[0], max(pageWidth-others, 10))
	for _, row := range rows {
		line := pad(cut(row[0], widths[0]), widths[0])
		for i, cell := range row[1:] {
			line += "  " + pad(cell, widths[i+1])
		}
		p.line(line)
	}
}

// colourFrom colours the head of what was added since the page was that long.
func (p *page) colourFrom(begin int, head string) {
	text := p.String()
	p.Reset()
	p.WriteString(text[:begin] + p.coloured + head + "\x1b[0m" + text[begin+len(head):])
}

func (p *page) write(out io.Writer) error {
	_, err := io.WriteString(out, p.String())
	return err
}

// visible is a text with what nobody sees, or a terminal obeys, written out: names of
// roles and databases may have anything in them.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// pad fills a text up to a width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// cut shortens a text that is wider than width, and says so with a dot.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
