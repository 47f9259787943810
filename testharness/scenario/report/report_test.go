package report_test

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/scenario/report"
)

// history is a takeover through two proxies, and the write that comes too
// late: accepted or refused.
func history(late scenario.Event) []scenario.Event {
	late.Actor, late.Via, late.Key, late.Token, late.At = "A", "proxy 1", "k", 2, 3*time.Second
	return []scenario.Event{
		{Actor: "A", Via: "proxy 1", Kind: scenario.KindLock, Key: "k", Token: 2, Text: "holds the lock"},
		{Actor: "A", Via: "proxy 1", Kind: scenario.KindConnected, Key: "k", Token: 2, Text: "connects"},
		{Actor: "A", Via: "proxy 1", Kind: scenario.KindPause, Key: "k", Token: 2, Text: "is paused"},
		{Actor: "etcd", Kind: scenario.KindExpired, Key: "k", Token: 2, Text: "takes the lock away", At: 2 * time.Second},
		{Actor: "B", Via: "proxy 2", Kind: scenario.KindLock, Key: "k", Token: 3, Text: "holds the lock", At: 2 * time.Second},
		{Actor: "B", Via: "proxy 2", Kind: scenario.KindConnected, Key: "k", Token: 3, Text: "connects", At: 2 * time.Second},
		{Actor: "B", Via: "proxy 2", Kind: scenario.KindCommit, Key: "k", Token: 3, Text: "writes", At: 2 * time.Second},
		{Actor: "A", Via: "proxy 1", Kind: scenario.KindResume, Key: "k", Token: 2, Text: "wakes up", At: 3 * time.Second},
		late,
		{Kind: scenario.KindRows, Text: "<b>one & only</b>", At: 3 * time.Second},
	}
}

func results() []scenario.Result {
	story := scenario.Story{Name: "s", Title: "A title", Case: 2, Text: "What\nhappens.", Right: "one", Codes: []fencing.Code{fencing.CodeStale}}
	accepted := scenario.Event{Kind: scenario.KindCommit, Text: "writes late"}
	refused := scenario.Event{Kind: scenario.KindRefused, Story: "writes late", Code: fencing.CodeStale, Text: "stale_token: k"}
	control := scenario.Judge(scenario.ArmEtcd, history(accepted))
	control.Wrong = []string{"two"}
	return []scenario.Result{scenario.NewResult(story, []scenario.Verdict{control, scenario.Judge(scenario.ArmFenced, history(refused))})}
}

func write(t *testing.T, results []scenario.Result) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, report.Contents{By: "by a test", Results: results}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestWrite(t *testing.T) {
	page := write(t, results())
	for _, want := range []string{
		"All as promised", "1 stale write", "no damage, 1 refused (LF001)", "a STALE WRITE", "writes late: REFUSED LF001",
		">proxy 1</text>", ">proxy 2</text>", ">etcd</text>", ">PostgreSQL</text>", "&lt;b&gt;one &amp; only&lt;/b&gt;",
		`class="pause"`, `class="lease hue0"`, `class="lease hue1"`, "What happens.", "prefers-color-scheme: dark", "by a test",
		"LF001 stale_token.", "Case 2 of docs/proof.md", "@media print",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q in the page", want)
		}
	}
}

// A run that isn't as promised is told so at the top, in the table and in its
// own place.
func TestWrite_NotAsPromised(t *testing.T) {
	all := results()
	all[0].Protected = all[0].Unprotected
	if got := strings.Count(write(t, all), "Not as promised"); got != 3 {
		t.Errorf("got it %d times, want 3", got)
	}
}

// A page that lacks a story doesn't say that all is well.
func TestWrite_Missing(t *testing.T) {
	var out bytes.Buffer
	if err := report.Write(&out, report.Contents{Results: results(), Missing: []string{"play x: it <broke>"}}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if strings.Contains(page, "All as promised") || !strings.Contains(page, "Not played: play x: it &lt;broke&gt;") {
		t.Errorf("got %s", page[strings.Index(page, "<h1>"):strings.Index(page, "<table")])
	}
}

// The file is all there is: nothing is fetched, nothing is run.
func TestWrite_SelfContained(t *testing.T) {
	page := write(t, results())
	tokens := html.NewTokenizer(strings.NewReader(page))
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		token := tokens.Token()
		switch token.Data {
		case "script", "link", "img", "iframe", "object", "image", "use":
			t.Errorf("got <%s>", token.Data)
		}
		for _, a := range token.Attr {
			if strings.HasPrefix(a.Key, "on") || (a.Key == "src" || a.Key == "href") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("got %s=%q", a.Key, a.Val)
			}
		}
	}
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") {
		t.Error("the style sheet fetches something")
	}
}

// Every tag is closed, in the right order, and every name that something refers
// to is there once.
func TestWrite_WellFormed(t *testing.T) {
	tokens := html.NewTokenizer(strings.NewReader(write(t, results())))
	var open []string
	ids, links := map[string]int{}, map[string]bool{}
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		token := tokens.Token()
		for _, a := range token.Attr {
			switch a.Key {
			case "id":
				ids[a.Val]++
			case "href":
				links[strings.TrimPrefix(a.Val, "#")] = true
			}
		}
		switch {
		case kind == html.StartTagToken && token.Data != "meta":
			open = append(open, token.Data)
		case kind == html.EndTagToken && (len(open) == 0 || open[len(open)-1] != token.Data):
			t.Fatalf("got </%s> inside %v", token.Data, open)
		case kind == html.EndTagToken:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("%v are not closed", open)
	}
	for link := range links {
		if ids[link] != 1 {
			t.Errorf("got %d elements called %q, want one", ids[link], link)
		}
	}
	if len(links) == 0 {
		t.Error("got no links")
	}
}

// Two locks that a worker holds at once are two bars, and its writes carry two
// numbers.
func TestWrite_TwoLeases(t *testing.T) {
	hold := func(key string, token fencing.Token) scenario.Event {
		return scenario.Event{Actor: "A", Kind: scenario.KindLock, Key: key, Token: token, Text: "holds a lock"}
	}
	events := []scenario.Event{hold("k", 2), hold("l", 3), {Actor: "A", Kind: scenario.KindReleased, Key: "k", Token: 2, Text: "gives one back"}, hold("m", 4),
		{Actor: "A", Kind: scenario.KindCommit, Key: "l", Token: 3, Also: []scenario.Hold{{Key: "m", Token: 4}}, Text: "writes"}}
	page := write(t, []scenario.Result{scenario.NewResult(results()[0].Story, []scenario.Verdict{
		scenario.Judge(scenario.ArmEtcd, events), scenario.Judge(scenario.ArmFenced, events),
	})})
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`<rect class="lease (hue\d)" x="([0-9.]+)"`).FindAllStringSubmatch(page, -1) {
		got[m[1]] = m[2]
	}
	if len(got) != 3 || got["hue0"] == got["hue1"] || got["hue0"] != got["hue2"] {
		t.Errorf("got bars at %v, want three, the second beside the first, and the third in the place of the first", got)
	}
	if !strings.Contains(html.UnescapeString(page), `>3+4</text>`) {
		t.Error("want both numbers on the write")
	}
}

// The texts of two events never stand on one another, and none is wider than
// its column.
func TestWrite_Texts(t *testing.T) {
	long := scenario.Event{Kind: scenario.KindRefused, Code: fencing.CodeStale, Story: "writes late",
		Text: strings.Repeat("superseded ", 12) + strings.Repeat("x", 100)}
	story := results()[0].Story
	page := write(t, []scenario.Result{scenario.NewResult(story, []scenario.Verdict{
		scenario.Judge(scenario.ArmEtcd, history(long)), scenario.Judge(scenario.ArmFenced, history(long)),
	})})
	texts := regexp.MustCompile(`<text class="(?:plain|note|lock|fault|good|bad|refused)" x="[0-9.]+" y="([0-9.]+)">(.*)</text>`)
	tags := regexp.MustCompile(`<[^>]*>`)
	figures := strings.Split(page, "<figure")[1:]
	for _, figure := range figures {
		last := 0.0
		for _, m := range texts.FindAllStringSubmatch(figure, -1) {
			plain, y := html.UnescapeString(tags.ReplaceAllString(m[2], "")), number(t, m[1])
			if n := len([]rune(plain)); n > 38 {
				t.Errorf("got %d characters in a line: %s", n, plain)
			}
			if y < last+14 {
				t.Errorf("%q is at %v, and the line before at %v, want at least 14 between them", plain, y, last)
			}
			last = y
		}
		if last == 0 {
			t.Error("got no texts")
		}
	}
	if len(figures) != 2 {
		t.Errorf("got %d figures, want 2", len(figures))
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
