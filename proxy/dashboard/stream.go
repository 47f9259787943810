package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// How a stream is paced. A page that can't follow misses events, and is told how many;
// the journal waits for nobody.
const (
	// streamPause gathers events, so that many are one write.
	streamPause = 250 * time.Millisecond
	// streamMost is how many one write has.
	streamMost = 250
	// streamRetry is when a browser comes again, in milliseconds.
	streamRetry = 2000
)

// happened is an event as the page gets it.
type happened struct {
	Number      uint64 `json:"n"`
	At          int64  `json:"at"` // ms
	Kind        string `json:"kind"`
	Words       string `json:"words"`
	Session     uint64 `json:"session,omitempty"`
	PID         uint32 `json:"pid,omitempty"`
	User        string `json:"user,omitempty"`
	Database    string `json:"database,omitempty"`
	Application string `json:"application,omitempty"`
	Remote      string `json:"remote,omitempty"`
	Key         string `json:"key,omitempty"`
	Token       string `json:"token,omitempty"`
	Higher      string `json:"higher,omitempty"`
	Code        string `json:"code,omitempty"`
	Detail      string `json:"detail,omitempty"`
	Hint        string `json:"hint,omitempty"`
	Took        int64  `json:"took,omitempty"` // ms
}

func shown(e live.Event) happened {
	return happened{
		Number: e.Number, At: e.At.UnixMilli(), Kind: e.Kind.String(), Words: Describe(e),
		Session: e.Session, PID: e.PID, User: e.User, Database: e.Database, Application: e.Application, Remote: e.Remote,
		Key: e.Key, Token: number(e.Token), Higher: number(e.Higher), Code: e.Code, Detail: e.Detail, Hint: e.Hint,
		Took: e.Took.Milliseconds(),
	}
}

// events streams what is kept, and then what happens, as server-sent events. The id
// of each is boot-number. A browser that comes again names the last that it has got,
// by Last-Event-ID or ?after=, and gets what followed.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d pages follow already", MostStreams), http.StatusServiceUnavailable)
		return
	}
	s := stream{to: w, control: http.NewResponseController(w), d: d, looked: time.Now()}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	boot, text, _ := strings.Cut(last, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	resumed := err == nil && boot == d.boot
	if resumed {
		s.last = number
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would gather them
	fmt.Fprintf(&s.out, "retry: %d\nevent: hello\ndata: {\"boot\":%q,\"resumed\":%t,\"restarted\":%t}\n\n",
		streamRetry, d.boot, resumed, last != "" && boot != d.boot)
	s.follow(r, resumed)
}

// A stream is one page's.
type stream struct {
	d       *Dashboard
	to      http.ResponseWriter
	control *http.ResponseController
	out     bytes.Buffer
	last    uint64    // number of the last event that was sent
	looked  time.Time // when it was known last that the browser may look
}

// follow returns when the browser has gone, is too slow, may look no more, or the
// dashboard closes.
func (s *stream) follow(r *http.Request, resumed bool) {
	silence := time.NewTimer(s.d.Silence)
	defer silence.Stop()
	for tell := resumed; ; tell = true {
		changed := s.d.Journal.Changed()
		more := s.gather(tell)
		if s.flush() != nil {
			return
		}
		if !more && !s.await(r, changed, silence) || !s.stillMay(r) {
			return
		}
		select { // events gather, and a quick reader is slowed down
		case <-r.Context().Done():
			return
		case <-s.d.closing:
			return
		case <-time.After(streamPause):
		}
	}
}

// await waits for something to send, and reports whether the stream goes on.
func (s *stream) await(r *http.Request, changed <-chan struct{}, silence *time.Timer) bool {
	silence.Reset(s.d.Silence)
	select {
	case <-changed:
	case <-silence.C:
		s.out.WriteString(": still here\n\n")
	case <-r.Context().Done():
		return false
	case <-s.d.closing:
		return false
	}
	return true
}

// stillMay asks now and then: the token may be another one by now.
func (s *stream) stillMay(r *http.Request) bool {
	if time.Since(s.looked) < s.d.Silence {
		return true
	}
	s.looked = time.Now()
	return s.d.Gate.Admits(r)
}

// gather puts events into out, and reports whether there are more. Whoever has just come
// is not told of what was before.
func (s *stream) gather(tell bool) (more bool) {
	events, _ := s.d.Journal.After(s.last)
	if len(events) > streamMost {
		events, more = events[:streamMost], true
	}
	if n := len(events); n > 0 && tell {
		if missed := events[n-1].Number - s.last - uint64(n); missed > 0 {
			fmt.Fprintf(&s.out, "event: missed\ndata: {\"count\":%d}\n\n", missed)
		}
	}
	for _, e := range events {
		text, err := json.Marshal(shown(e))
		if err != nil {
			continue // not reached: it is made of texts and numbers
		}
		fmt.Fprintf(&s.out, "id: %s-%d\nevent: happened\ndata: %s\n\n", s.d.boot, e.Number, text)
		s.last = e.Number
	}
	return more
}

// flush sends what is in out.
func (s *stream) flush() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.d.WriteWithin)); err != nil {
		return err
	}
	_, err := s.to.Write(s.out.Bytes())
	s.out.Reset()
	if err != nil {
		return err
	}
	return s.control.Flush()
}
