package queue_test

import (
	"math/rand/v2"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
)

// dice are choices that the fuzzer makes.
type dice struct{ left []byte }

func (d *dice) roll(n int) int {
	if len(d.left) == 0 {
		return 0
	}
	v := int(d.left[0]) % n
	d.left = d.left[1:]
	return v
}

// A request is on its way to the model server.
type request struct {
	queue.Entry
	// copies tells for each statement whether it is a copy from the client.
	copies []bool
}

// A model is a server that answers as PostgreSQL does, with what it might
// answer left to the dice, and a client that keeps to the protocol. Requests
// and replies take their time in between.
type model struct {
	dice    dice
	sent    []request // by the client, not yet read by the server
	replies []string  // by the server, each with what is to become of it

	discarding bool // until a Sync
	ran        bool // something did since the last ReadyForQuery
	failed     bool
	failedIn   queue.Purpose
	copying    *request // the statement of it that copies is number at
	at         int
	hidEarly   bool // a ReadyForQuery of the client's was hidden for one that wasn't yet
}

// client returns the requests of the next thing that the client does.
func (m *model) client() []request {
	hidden := [...]queue.Purpose{queue.Client, queue.Client, queue.Prepare, queue.Early, queue.Late, queue.LateCommit, queue.Raise, queue.Examine}
	extended := [...]queue.Kind{queue.Parse, queue.Bind, queue.DescribeStatement, queue.DescribePortal, queue.Execute, queue.Close}
	switch m.dice.roll(10) {
	case 0, 1:
		return []request{{Entry: queue.Entry{Kind: queue.Sync}}}
	case 2:
		return []request{{Entry: queue.Entry{Kind: queue.Function}}}
	case 3:
		return m.query()
	case 4:
		p := [...]queue.Purpose{queue.Probe, queue.Readback, queue.Rollback}[m.dice.roll(3)]
		var own []request
		for _, k := range [...]queue.Kind{queue.Parse, queue.Bind, queue.Execute, queue.Close, queue.Sync} {
			own = append(own, request{Entry: queue.Entry{Kind: k, Purpose: p}})
		}
		return own
	case 5:
		r := []request{{Entry: queue.Entry{Kind: queue.Execute}, copies: []bool{true}}}
		return append(append(r, m.data()...), request{Entry: queue.Entry{Kind: queue.Sync}})
	case 6:
		return []request{{Entry: queue.Entry{Kind: [...]queue.Kind{queue.CopyData, queue.CopyEnd}[m.dice.roll(2)]}}}
	}
	return []request{{Entry: queue.Entry{
		Kind:    extended[m.dice.roll(len(extended))],
		Purpose: hidden[m.dice.roll(len(hidden))],
	}}}
}

// query is a Query of some statements with a plan or without one, and the data
// that goes with it.
func (m *model) query() []request {
	r := request{Entry: queue.Entry{Kind: queue.Query}}
	inserted := [...]queue.Purpose{queue.Early, queue.Late, queue.LateCommit, queue.Raise}
	planned := m.dice.roll(2) == 1
	var data []request
	for range 1 + m.dice.roll(4) {
		purpose := queue.Client
		if planned && m.dice.roll(2) == 1 {
			purpose = inserted[m.dice.roll(len(inserted))]
		}
		copies := purpose == queue.Client && m.dice.roll(3) == 1
		if copies {
			data = append(data, m.data()...)
		}
		r.copies = append(r.copies, copies)
		if planned {
			r.Plan = append(r.Plan, purpose)
		}
	}
	return append([]request{r}, data...)
}

// data is what a client sends for a copy, with Syncs that it should not send.
func (m *model) data() []request {
	var all []request
	for range m.dice.roll(5) {
		all = append(all, request{Entry: queue.Entry{Kind: [...]queue.Kind{queue.Sync, queue.CopyData}[m.dice.roll(2)]}})
	}
	return append(all, request{Entry: queue.Entry{Kind: queue.CopyEnd}})
}

// serve lets the server read one request.
func (m *model) serve() {
	r := m.sent[0]
	m.sent = m.sent[1:]
	switch {
	case m.copying != nil:
		m.copy(r.Kind)
	case m.discarding && r.Kind != queue.Sync, r.Kind == queue.CopyData, r.Kind == queue.CopyEnd:
	case r.Kind == queue.Sync:
		if r.Purpose == queue.Client && m.ran && !m.discarding && m.dice.roll(8) == 1 {
			m.report(queue.Client) // a deferred constraint
		}
		m.discarding = false
		m.ready(r)
	case r.Kind == queue.Query:
		m.statements(r, 0)
	case r.Purpose != queue.Resolve && m.dice.roll(6) == 1:
		m.report(r.Purpose)
		if r.Kind == queue.Function {
			m.ready(r)
		} else {
			m.discarding = true
		}
	default:
		m.answer(r)
	}
}

// answer answers a request of the extended protocol, or a call.
func (m *model) answer(r request) {
	options := map[queue.Kind][]string{
		queue.Parse: {"1"}, queue.Bind: {"2"}, queue.Close: {"3"},
		queue.DescribeStatement: {"tT", "tn"}, queue.DescribePortal: {"T", "n"},
		queue.Execute:  {"C", "DDC", "I", "Ds", "s", "HddcC"},
		queue.Function: {"V"},
	}[r.Kind]
	if len(r.copies) > 0 && r.copies[0] {
		m.begin(r, 0)
		return
	}
	if r.Purpose == queue.Readback && r.Kind == queue.Execute {
		m.replies = append(m.replies, "D@", "C-")
		return
	}
	m.say(options[m.dice.roll(len(options))], r.Purpose)
	if r.Kind == queue.Function {
		m.ready(r)
	}
}

// statements runs a Query from statement n on.
func (m *model) statements(r request, n int) {
	for ; n < len(r.copies); n++ {
		purpose := purposeOf(r, n)
		switch {
		case m.dice.roll(8) == 1:
			m.report(purpose)
			m.ready(r)
			return
		case r.copies[n]:
			m.begin(r, n)
			return
		}
		m.say([...]string{"TDDC", "C", "TC", "HddcC"}[m.dice.roll(4)], purpose)
	}
	m.ready(r)
}

func purposeOf(r request, n int) queue.Purpose {
	if r.Plan != nil {
		return r.Plan[n]
	}
	return r.Purpose
}

// begin enters copy-in mode, and may leave it at once.
func (m *model) begin(r request, n int) {
	m.say("G", queue.Client)
	if m.dice.roll(4) == 1 {
		m.broken(r)
		return
	}
	m.copying, m.at = &r, n
}

// copy reads a message in copy-in mode.
func (m *model) copy(k queue.Kind) {
	r := *m.copying
	switch {
	case k == queue.Sync:
	case k == queue.CopyData && m.dice.roll(4) != 1:
	case k == queue.CopyEnd && m.dice.roll(3) != 1:
		m.copying = nil
		m.say("C", queue.Client)
		if r.Kind == queue.Query {
			m.statements(r, m.at+1)
		}
	default:
		m.copying = nil
		m.broken(r)
	}
}

// broken reports the failure of a copy.
func (m *model) broken(r request) {
	m.report(queue.Client)
	if r.Kind == queue.Query {
		m.ready(r)
	} else {
		m.discarding = true
	}
}

func (m *model) say(letters string, p queue.Purpose) {
	m.ran = true
	sign := "-"
	if p == queue.Client {
		sign = ""
	}
	for _, l := range letters {
		m.replies = append(m.replies, string(l)+sign)
	}
}

// report sends an error of a part with purpose p.
func (m *model) report(p queue.Purpose) {
	m.failed, m.failedIn = true, p
	sign := "!"
	switch p {
	case queue.Client, queue.Examine:
		sign = ""
	case queue.Readback, queue.Rollback:
		sign = "-"
	}
	m.replies = append(m.replies, "E"+sign)
}

func (m *model) ready(r request) {
	reply := "Z"
	switch {
	case r.Purpose == queue.Readback, r.Purpose == queue.Resolve, r.Purpose == queue.Probe && !m.failed:
		reply += "-"
	case m.failed && m.failedIn == queue.LateCommit:
		reply += "~"
	}
	if m.failed {
		reply += "?" + m.failedIn.String()
	}
	m.replies = append(m.replies, reply)
	m.failed, m.ran = false, false
}

// deliver gives the queue the oldest reply.
func (m *model) deliver(t *testing.T, q *queue.Queue) {
	want := m.replies[0]
	m.replies = m.replies[1:]
	out, err := q.Reply(want[0])
	got := told(want[0], out, err)
	if out.Failed && want[0] != 'Z' {
		t.Errorf("%s: failed", got)
	}
	// Of the answers to Syncs in doubt and to the one that resolves them the
	// first is hidden: they say the same.
	switch {
	case !m.hidEarly && want[0] == 'Z' && got == "Z-"+want[1:]:
		m.hidEarly = true
	case m.hidEarly && want == "Z-" && got == "Z":
		m.hidEarly = false
	case got != want:
		t.Fatalf("got %s, want %s (%v)", got, want, err)
	}
}

// FuzzQueue lets a client and a server talk with each other, each message
// under way for as long as it likes: the queue takes every reply, says of each
// what its request says, and in the end nothing is due.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 7, 0, 0, 8, 4, 3, 0, 0, 1, 2, 3, 2, 3, 2, 3})
	f.Add([]byte{0, 5, 3, 0, 1, 1, 0, 0, 2, 1, 1, 3, 3, 3, 0, 3, 1, 2, 2, 2})
	f.Add([]byte{0, 3, 1, 2, 1, 2, 0, 0, 1, 2, 1, 0, 2, 3, 3, 3, 3})
	f.Fuzz(converse)
}

// TestQueue_Model is FuzzQueue over choices drawn at random.
func TestQueue_Model(t *testing.T) {
	for seed := range uint64(5_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		choices := make([]byte, random.IntN(300))
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		converse(t, choices)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// A pump is who pushes: it keeps to what the queue asks for when a copy has
// failed.
type pump struct {
	m         *model
	q         queue.Queue
	ahead     []request
	resolving bool
	dropping  bool // up to a Sync, which the server has had already
}

// push announces and sends one request, unless it must wait for replies.
func (p *pump) push() bool {
	k := p.ahead[0].Kind
	data := k == queue.CopyData || k == queue.CopyEnd
	switch {
	case p.resolving:
		if p.q.Len() > 0 {
			return false
		}
		p.resolving, p.dropping = false, p.q.TakeReopened()
	case p.q.InDoubt() && !data:
		if p.q.Len() > 0 {
			return false
		}
		p.resolving = true
		p.send(request{Entry: queue.Entry{Kind: queue.Sync, Purpose: queue.Resolve}})
		p.send(request{Entry: queue.Entry{Kind: queue.Close, Purpose: queue.Resolve}})
		return true
	case p.q.Unclear() && !data && k != queue.Sync:
		return false
	}
	r := p.ahead[0]
	p.ahead = p.ahead[1:]
	if p.dropping && k != queue.Sync {
		return true
	}
	p.dropping = false
	p.send(r)
	return true
}

func (p *pump) send(r request) {
	p.q.Push(r.Entry)
	p.m.sent = append(p.m.sent, r)
}

// converse lets client, queue and server talk by the given choices.
func converse(t *testing.T, choices []byte) {
	m := &model{dice: dice{choices}}
	p := pump{m: m}
	for len(m.dice.left) > 0 {
		switch m.dice.roll(4) {
		case 0, 1:
			if len(p.ahead) == 0 {
				p.ahead = m.client()
			}
			p.push()
		case 2:
			if len(m.sent) > 0 {
				m.serve()
			}
		case 3:
			if len(m.replies) > 0 {
				m.deliver(t, &p.q)
			}
		}
		if err := p.q.Audit(); err != nil {
			t.Fatal(err)
		}
	}
	p.ahead = append(p.ahead, request{Entry: queue.Entry{Kind: queue.Sync}})
	for len(p.ahead) > 0 || len(m.sent) > 0 || len(m.replies) > 0 {
		switch {
		case len(m.sent) > 0:
			m.serve()
		case len(m.replies) > 0:
			m.deliver(t, &p.q)
		case !p.push():
			t.Fatal("the client waits for replies that don't come")
		}
	}
	settled(t, &p.q)
}

// FuzzQueueAnything: whatever is pushed and whatever comes, the queue keeps
// its count, and after an error it is still whole.
func FuzzQueueAnything(f *testing.F) {
	f.Add([]byte("PBES12CZ"))
	f.Add([]byte("QdcSGECZZ"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		d := dice{choices}
		var q queue.Queue
		const replies = "123CDEGHIKNRSTVWZAcdnstv?"
		for len(d.left) > 0 {
			before := q.Len()
			if d.roll(2) == 0 {
				e := queue.Entry{Kind: queue.Kind(d.roll(int(queue.CopyEnd) + 1)), Purpose: queue.Purpose(d.roll(int(queue.Rollback) + 1))}
				if n := d.roll(4); n > 0 {
					e.Plan = []queue.Purpose{queue.Early, queue.Client, queue.LateCommit}[:n]
				}
				q.Push(e)
			} else if _, err := q.Reply(replies[d.roll(len(replies))]); err == nil && q.Len() > before {
				t.Fatalf("a reply made %d entries of %d", q.Len(), before)
			}
			if err := q.Audit(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
