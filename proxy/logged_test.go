package proxy_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// A logged is what a proxy has logged, as text.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// by has a server log here.
func (l *logged) by(s *proxy.Server) { s.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// line returns the first line that has all the words, "" if none does.
func (l *logged) line(words ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		return strings.TrimSpace(line)
	}
	return ""
}
