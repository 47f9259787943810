package wire_test

import (
	"fmt"
	"os"
	"sync"

	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// envProgress has people who wait for the scripts told how it goes.
const envProgress = "FENCEPROXY_WIRE_PROGRESS"

// progress counts the scripts of each file, and says when all of one are played.
type progress struct {
	mu     sync.Mutex
	files  map[string]*tally
	done   int
	failed int
	total  int
	test   string
}

// tally is of one file.
type tally struct{ scripts, left, failed int }

func newProgress(test string, all []*wire.Script) *progress {
	p := &progress{files: map[string]*tally{}, total: len(all), test: test}
	for _, s := range all {
		if p.files[s.File] == nil {
			p.files[s.File] = &tally{}
		}
		p.files[s.File].scripts++
		p.files[s.File].left++
	}
	return p
}

func (p *progress) played(s *wire.Script, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file := p.files[s.File]
	file.left--
	p.done++
	if failed {
		file.failed++
		p.failed++
	}
	if os.Getenv(envProgress) == "" {
		return
	}
	if file.left == 0 {
		result := "as in PostgreSQL"
		if file.failed > 0 {
			result = fmt.Sprintf("%d FAILED", file.failed)
		}
		fmt.Printf("%-28s %3d scripts  %s\n", s.File, file.scripts, result)
	}
	if p.done == p.total {
		fmt.Printf("%s: %d scripts, %d failed\n", p.test, p.total, p.failed)
	}
}
