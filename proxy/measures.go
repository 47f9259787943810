package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// measures are what the metrics know of one session. Its mu guards them, but for
// added.
type measures struct {
	began   time.Time   // of the transaction at hand
	section time.Time   // when the tag at hand was claimed; zero: there is none
	tag     fencing.Tag // that tag
	added   bool        // guarded by srv.mu: its bytes are in the server's sum
}

// A traffic is what went through sessions, in bytes by direction.
type traffic struct{ fromClient, toPostgres, fromPostgres, toClient uint64 }

func (b *traffic) add(o traffic) {
	b.fromClient += o.fromClient
	b.toPostgres += o.toPostgres
	b.fromPostgres += o.fromPostgres
	b.toClient += o.toClient
}

// relayed is what has gone through a session whose login is done.
func (s *session) relayed() traffic {
	return traffic{s.fromClient.Total(), s.toBackend.Total(), s.fromBackend.Total(), s.toClient.Total()}
}

// sectionLocked takes the tag that the session has from now on, as the end of
// the section under the former one. The caller holds mu.
func (s *session) sectionLocked(tag fencing.Tag) {
	m := &s.measured
	if !m.section.IsZero() {
		if slices.Equal(tag, m.tag) {
			return
		}
		s.srv.Metrics.Sections.Observe(time.Since(m.section).Seconds())
		m.section, m.tag = time.Time{}, nil
	}
	if len(tag) > 0 {
		m.section, m.tag = time.Now(), tag
	}
}

// transactionEndedLocked takes the end of a transaction in which the settings of
// the tag had changed: those of SET LOCAL are gone, and a rollback brings the
// former ones back. Where only a readback tells, which comes with the next request,
// the section ends here: what follows is idle. The caller holds mu.
func (s *session) transactionEndedLocked() {
	tag, incomplete, err := s.mirror.tag()
	if incomplete || err != nil || s.mirror.unsure {
		tag = nil
	}
	s.sectionLocked(tag)
}

// measuredEnd takes the end of a session.
func (s *session) measuredEnd() {
	s.mu.Lock()
	s.sectionLocked(nil)
	s.mu.Unlock()
	s.srv.mu.Lock()
	s.srv.relayed.add(s.relayed())
	s.measured.added = true
	s.srv.mu.Unlock()
}

// uniqueViolation is PostgreSQL's code for a row that is there already
// (errcodes.txt).
const uniqueViolation = "23505"

// classProtocol is what the SQLSTATEs begin with of broken connections and
// broken protocol.
const classProtocol = "08"

// countProtocol counts an error that the protocol was broken with. A function of
// the client's may raise any code of the class, so only PostgreSQL's own are
// labels.
func (s *session) countProtocol(code string) {
	if !strings.HasPrefix(code, classProtocol) {
		return
	}
	if !slices.Contains(protocolCodes(), code) {
		code = "08000"
	}
	s.srv.Metrics.ProtocolErrors.WithLabelValues(code).Inc()
}

// countErrorLocked takes an error of PostgreSQL's that doesn't end the session.
// The caller holds mu.
func (s *session) countErrorLocked(code string) {
	if code == uniqueViolation && !s.measured.section.IsZero() {
		s.srv.Metrics.Duplicates.Inc()
	}
	s.countProtocol(code)
}

// What is added up when it is asked for.
func bytesDesc() *prometheus.Desc {
	return prometheus.NewDesc("fenceproxy_bytes_total", "Bytes of opened sessions, by direction, without encryption.", []string{"direction"}, nil)
}

func fencedDesc() *prometheus.Desc {
	return prometheus.NewDesc("fenceproxy_fenced_transactions", "Transactions of tagged sessions that are open or being carried out.", nil, nil)
}

func oldestDesc() *prometheus.Desc {
	return prometheus.NewDesc("fenceproxy_fenced_transaction_oldest_seconds", "How long ago the oldest of the fenced transactions began; 0 without any.", nil, nil)
}

// Describe is prometheus.Collector's.
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	to <- bytesDesc()
	to <- fencedDesc()
	to <- oldestDesc()
}

// Collect is prometheus.Collector's: it adds up what the sessions count, so that
// none of them shares a counter with another.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	sum, fenced, oldest := s.measure(time.Now())
	for direction, n := range map[string]uint64{
		"client_to_proxy": sum.fromClient, "proxy_to_postgres": sum.toPostgres,
		"postgres_to_proxy": sum.fromPostgres, "proxy_to_client": sum.toClient,
	} {
		to <- prometheus.MustNewConstMetric(bytesDesc(), prometheus.CounterValue, float64(n), direction)
	}
	to <- prometheus.MustNewConstMetric(fencedDesc(), prometheus.GaugeValue, float64(fenced))
	to <- prometheus.MustNewConstMetric(oldestDesc(), prometheus.GaugeValue, oldest.Seconds())
}

func (s *Server) measure(now time.Time) (sum traffic, fenced int, oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum = s.relayed
	for ses := range s.sessions {
		ses.mu.Lock()
		if ses.opened && !ses.measured.added {
			sum.add(ses.relayed())
		}
		if ses.fencedLocked() {
			fenced++
			oldest = max(oldest, now.Sub(ses.measured.began))
		}
		ses.mu.Unlock()
	}
	return sum, fenced, oldest
}

// fencedLocked reports whether the session has a transaction under a tag. The
// caller holds mu.
func (s *session) fencedLocked() bool {
	if s.measured.section.IsZero() || s.over {
		return false
	}
	return s.status != wire.StatusIdle || s.queue.Len() > 0 || s.idle.waiting && s.idle.segment
}
