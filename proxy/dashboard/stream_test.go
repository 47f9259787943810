package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// serve has a dashboard answer at the URL that is returned.
func serve(t *testing.T, d *dashboard.Dashboard) string {
	t.Helper()
	s := httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		d.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// A message is one server-sent event.
type message struct{ id, event, data string }

// A follower reads a stream.
type follower struct {
	t     *testing.T
	lines *bufio.Scanner
	leave context.CancelFunc
}

// follow opens a stream behind the event of an id, with a token if there is one.
func follow(t *testing.T, url, last string, token ...string) *follower {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), 2*poll.Deadline) // whoever waits gives up before
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	if len(token) > 0 {
		r.Header.Set("Authorization", "Bearer "+token[0])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &follower{t, bufio.NewScanner(resp.Body), leave}
}

// next is the next message, comments left out; the zero message is the stream's end.
func (f *follower) next() (m message) {
	for f.lines.Scan() {
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case "":
			if m != (message{}) {
				return m
			}
		}
	}
	return message{}
}

// ends expects the end of the stream, and nothing before it.
func (f *follower) ends() {
	f.t.Helper()
	if m := f.next(); m != (message{}) || f.lines.Err() != nil {
		f.t.Errorf("got %+v, %v, want the end", m, f.lines.Err())
	}
}

// happened is the number and the words of a message that tells of an event.
func (f *follower) happened() (n int, words, id string) {
	f.t.Helper()
	m := f.next()
	var e struct {
		N     int
		Words string
	}
	if err := json.Unmarshal([]byte(m.data), &e); err != nil || m.event != "happened" {
		f.t.Fatalf("got %+v, %v, want an event", m, err)
	}
	return e.N, e.Words, m.id
}

// Who comes for the first time gets all that is kept, then what happens; who comes
// again gets what followed, and nothing twice.
func TestDashboard_Events(t *testing.T) {
	d := newDashboard()
	d.Journal.Add(live.Event{Kind: live.Claimed, Key: "k", Token: 7, What: "raised"})
	url := serve(t, d)
	first := follow(t, url, "")
	hello := first.next()
	if hello.event != "hello" || !strings.Contains(hello.data, `"resumed":false,"restarted":false`) {
		t.Errorf("got %+v", hello)
	}
	n, words, id := first.happened()
	if n != 1 || !strings.HasPrefix(words, "Token 7 was accepted") {
		t.Errorf("got %d %q", n, words)
	}
	d.Journal.Add(live.Event{Kind: live.StatementRefused, Message: "a\nb: c"})
	if n, words, _ := first.happened(); n != 2 || !strings.HasSuffix(words, "a\nb: c") {
		t.Errorf("got %d %q, want the second with its lines", n, words)
	}
	first.leave()
	again := follow(t, url, id)
	if hello := again.next(); !strings.Contains(hello.data, `"resumed":true,"restarted":false`) {
		t.Errorf("got %+v", hello)
	}
	if n, _, _ := again.happened(); n != 2 {
		t.Errorf("got %d, want the one that followed", n)
	}
	for _, other := range []string{"anotherone-1", "nonsense"} {
		restarted := follow(t, url, other)
		if hello := restarted.next(); !strings.Contains(hello.data, `"resumed":false,"restarted":true`) {
			t.Errorf("%s: got %+v", other, hello)
		}
		if n, _, _ := restarted.happened(); n != 1 {
			t.Errorf("%s: got %d, want all from the first on", other, n)
		}
		restarted.leave()
	}
}

// What is kept no longer is counted, once, for those who were there before.
func TestDashboard_EventsMissed(t *testing.T) {
	d := newDashboard()
	url := serve(t, d)
	d.Journal.Add(live.Event{Kind: live.Claimed})
	first := follow(t, url, "")
	first.next()
	_, _, id := first.happened()
	first.leave()
	const more = live.DefaultRecent + 20
	for range more {
		d.Journal.Add(live.Event{Kind: live.ClaimRefused})
	}
	again := follow(t, url, id)
	again.next()
	if m := again.next(); m.event != "missed" || m.data != `{"count":20}` {
		t.Errorf("got %+v, want 20 missed", m)
	}
	for want := 22; want <= more+1; want++ {
		if n, _, _ := again.happened(); n != want {
			t.Fatalf("got %d, want %d", n, want)
		}
	}
	if m := follow(t, url, "").next(); m.event != "hello" {
		t.Errorf("got %+v", m)
	}
	fresh := follow(t, url, "")
	fresh.next()
	if m := fresh.next(); m.event != "happened" {
		t.Errorf("who has just come: got %+v, want nothing of what was missed", m)
	}
}

// There are so many streams and no more, and one that ends makes room.
func TestDashboard_EventsBounded(t *testing.T) {
	d := newDashboard()
	url := serve(t, d)
	var all []*follower
	for range dashboard.MostStreams {
		f := follow(t, url, "")
		f.next()
		all = append(all, f)
	}
	resp, err := http.Get(url + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("got %d, want 503 and when to come again", resp.StatusCode)
	}
	if body := get(d.Handler(), "/api/state").Body.String(); !strings.Contains(body, `"full":true`) {
		t.Errorf("got %s, want it to say that it is full", body)
	}
	all[0].leave()
	room(t, url)
}

// room waits until there is room for a stream.
func room(t *testing.T, url string) {
	t.Helper()
	poll.Until(t, "room for another stream", func() bool {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// A browser that takes nothing is given up, and whoever adds events doesn't wait for it.
func TestDashboard_EventsStuck(t *testing.T) {
	d := newDashboard()
	d.WriteWithin = 50 * time.Millisecond
	url := serve(t, d)
	for range dashboard.MostStreams - 1 {
		follow(t, url, "").next()
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	poll.Until(t, "the stuck one has the last place", func() bool {
		return strings.Contains(get(d.Handler(), "/api/state").Body.String(), `"full":true`)
	})
	long := strings.Repeat("x", 1000)
	poll.Until(t, "the stuck one is given up", func() bool {
		for range 100 {
			d.Journal.Add(live.Event{Kind: live.StatementRefused, Message: long, Detail: long, Hint: long})
		}
		return strings.Contains(get(d.Handler(), "/api/state").Body.String(), `"full":false`)
	})
}

// A stream ends when its browser may look no more.
func TestDashboard_EventsEndWithToken(t *testing.T) {
	d := newDashboard()
	d.Silence = 20 * time.Millisecond
	var changed atomic.Bool
	d.Gate.Token = func() (string, error) {
		if changed.Load() {
			return "another-token-0123456789", nil
		}
		return canary, nil
	}
	url := serve(t, d)
	f := follow(t, url, "", canary)
	if m := f.next(); m.event != "hello" {
		t.Fatalf("got %+v", m)
	}
	changed.Store(true)
	f.ends()
}

// A stream lasts longer than the server gives other requests and answers.
func TestDashboard_EventsLast(t *testing.T) {
	d := newDashboard()
	d.Silence = 20 * time.Millisecond
	s := httptest.NewUnstartedServer(d.Handler())
	s.Config.ReadTimeout, s.Config.WriteTimeout = 100*time.Millisecond, 100*time.Millisecond
	s.Start()
	t.Cleanup(func() {
		d.Close()
		s.Close()
	})
	f := follow(t, s.URL, "")
	for silences := 0; silences < 4; { // of 250 ms each, for the pause
		if !f.lines.Scan() {
			t.Fatalf("it has ended: %v", f.lines.Err())
		}
		if strings.HasPrefix(f.lines.Text(), ":") {
			silences++
		}
	}
	d.Journal.Add(live.Event{Kind: live.Claimed})
	if n, _, _ := f.happened(); n != 1 {
		t.Errorf("got %d, want the first event", n)
	}
}

// The end of the dashboard is the end of its streams.
func TestDashboard_Close(t *testing.T) {
	d := newDashboard()
	f := follow(t, serve(t, d), "")
	f.next()
	d.Close()
	d.Close()
	f.ends()
}
