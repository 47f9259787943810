package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// link is a Markdown link or image, [text](target), or an image in HTML.
var link = regexp.MustCompile(`\]\(([^()\s]+)\)|<img src="([^"]+)"`)

// prose returns the lines of a page that are not in a block of code.
func prose(text string) []string {
	var lines []string
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// anchors returns what a page's headings can be linked by, as GitHub makes it:
// in lower case, without punctuation, with hyphens for spaces, and numbered
// where it stood before.
func anchors(text string) map[string]bool {
	found, times := map[string]bool{}, map[string]int{}
	for _, line := range prose(text) {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		heading = link.ReplaceAllString(heading, "]")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(heading))
		n := times[anchor]
		times[anchor]++
		if n > 0 {
			anchor += "-" + strconv.Itoa(n)
		}
		found[anchor] = true
	}
	return found
}

// dangling returns the links of a page that lead nowhere. Those to other sites
// are not followed.
func dangling(files fs.FS, page string) ([]string, error) {
	text, err := fs.ReadFile(files, page)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, m := range link.FindAllStringSubmatch(strings.Join(prose(string(text)), "\n"), -1) {
		target := m[1] + m[2] // one of them is empty
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(target, "#")
		to := page
		if file != "" {
			to = path.Join(path.Dir(page), file)
		}
		if _, err := fs.Stat(files, to); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
			lost = append(lost, target)
			continue
		} else if err != nil {
			return nil, err
		}
		if anchor == "" {
			continue
		}
		there, err := fs.ReadFile(files, to)
		if err != nil {
			return nil, err
		}
		if !anchors(string(there))[anchor] {
			lost = append(lost, target)
		}
	}
	return lost, nil
}

// Every link from one page of the repository to another leads somewhere, to the
// heading that it names.
func TestLinks(t *testing.T) {
	files := os.DirFS(root)
	seen := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "deploy/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, full := range pages {
			page, err := filepath.Rel(root, full)
			if err != nil {
				t.Fatal(err)
			}
			lost, err := dangling(files, filepath.ToSlash(page))
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range lost {
				t.Errorf("%s links to %s, which isn't there", page, target)
			}
			seen++
		}
	}
	if seen < 2 {
		t.Errorf("got %d pages, want README.md and those of docs", seen)
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# A word, and `code`\n## Same\n## Same\n```\n# no heading\n```\n#hash\n### [Linked](x.md): I1–I10\n## fence.check_tag\n")
	want := map[string]bool{"a-word-and-code": true, "same": true, "same-1": true, "linked-i1i10": true, "fencecheck_tag": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
}
