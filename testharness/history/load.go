package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Tables are what stands in the database at the end.
type Tables struct {
	Counters map[string]int64 `json:"counters"`
	Rows     []Row            `json:"rows"`
	Balances map[string]int64 `json:"balances"`
	// Marks are nil where nobody looked, or nobody fenced; without any they are
	// empty.
	Marks map[string]fencing.Token `json:"marks"`
	// Opening is what each account was opened with.
	Opening int64 `json:"opening"`
}

// MarksSeen is what the marks were while a run went on: behind a failover, say.
type MarksSeen struct {
	Asked Moment                   `json:"asked"`
	Marks map[string]fencing.Token `json:"marks"` // by resource key
}

// A History is a whole run.
type History struct {
	Ops    []Op // by Invoke
	Locks  []LockEvent
	Faults []Fault
	Marks  []MarksSeen
	Tables Tables
}

// Load reads all files in dir whose names end in .jsonl.
func Load(dir string) (*History, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("look for histories: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no history in %s", dir)
	}
	m := merge{at: map[name]int{}}
	for _, path := range paths {
		if err := m.file(path); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return m.finish(), nil
}

// Read reads a history from one stream, such as the files of all workers one
// after the other.
func Read(from io.Reader) (*History, error) {
	m := merge{at: map[name]int{}}
	if err := m.read(from); err != nil {
		return nil, err
	}
	return m.finish(), nil
}

type name struct {
	worker string
	seq    int64
}

// merge puts files together.
type merge struct {
	history History
	glances []Glance
	at      map[name]int // where an operation stands in history.Ops
}

func (m *merge) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return m.read(f)
}

// read takes the lines in. A last line that is not whole is a killed worker's. A
// field that is misspelt would count as never said, and nothing be held against it.
func (m *merge) read(from io.Reader) error {
	lines := json.NewDecoder(bufio.NewReaderSize(from, 1<<16))
	lines.DisallowUnknownFields()
	for number := 1; ; number++ {
		var r Record
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err == nil {
			err = m.take(r)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// errSilent is a record without any of its fields.
var errSilent = errors.New("it says nothing that is known")

// take takes a record in.
func (m *merge) take(r Record) error {
	switch {
	case r.Op != nil:
		return m.op(r.Op)
	case r.Lock != nil:
		m.history.Locks = append(m.history.Locks, *r.Lock)
	case r.Glance != nil:
		m.glances = append(m.glances, *r.Glance)
	case r.Fault != nil:
		m.history.Faults = append(m.history.Faults, *r.Fault)
	case r.Marks != nil:
		m.history.Marks = append(m.history.Marks, *r.Marks)
	case r.Tables != nil:
		m.history.Tables = *r.Tables
	default:
		return errSilent
	}
	return nil
}

// op takes an operation in, or its end.
func (m *merge) op(o *Op) error {
	if err := o.sound(); err != nil {
		return err
	}
	n := name{o.Worker, o.Seq}
	at, ok := m.at[n]
	if !ok {
		m.at[n] = len(m.history.Ops)
		m.history.Ops = append(m.history.Ops, *o)
		return nil
	}
	if err := o.follows(&m.history.Ops[at]); err != nil {
		return err
	}
	m.history.Ops[at] = *o
	return nil
}

func (m *merge) finish() *History {
	h := &m.history
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return cmp.Compare(a.Invoke, b.Invoke) })
	Bound(h.Locks, m.glances)
	return h
}
