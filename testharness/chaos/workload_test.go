package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// A program that puts workers of one's own under the whole run: its arguments are
// the program fenceproxy, a folder for the history, and the command of a worker.
// The run starts it again, as its members of etcd.
func ExampleWorkload() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // so that it clears up
	defer stop()
	if os.Args[1] == "part" {
		must(chaos.Serve(ctx, os.Args[2:], os.Stdin, os.Stdout))
		return
	}
	options := chaos.NewOptions([]string{os.Args[1]}, []string{os.Args[0], "part"})
	options.Workers, options.Keys, options.Duration = 10, 4, time.Minute
	options.Dir, options.Out = os.Args[2], os.Stdout
	options.Workload = &chaos.Workload{
		Command: os.Args[3:],
		Setup:   []string{"CREATE TABLE entry (id bigint PRIMARY KEY, key text NOT NULL, token bigint NOT NULL)"},
		Collect: func(ctx context.Context, conn *pgx.Conn) (t history.Tables, err error) {
			if t.Marks, err = chaos.Marks(ctx, conn); err != nil {
				return t, err
			}
			rows, err := conn.Query(ctx, "SELECT id, key, token FROM entry")
			if err != nil {
				return t, err
			}
			t.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r history.Row, err error) {
				err = row.Scan(&r.ID, &r.Key, &r.Token)
				return r, err
			})
			return t, err
		},
	}
	result, err := chaos.Run(ctx, options)
	must(err)
	result.Print(os.Stdout)
	if !result.Report.OK() {
		log.Fatal("the promise was broken")
	}
}

// block is the first block of a language in docs/your-workload.md.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/your-workload.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, begun := strings.Cut(string(page), "\n```"+language+"\n")
	text, _, ended := strings.Cut(after, "\n```\n")
	if !begun || !ended {
		t.Fatalf("docs/your-workload.md has no block of %s", language)
	}
	return text
}

// The program of the documentation is the example, which compiles.
func TestWorkload_DocumentedProgram(t *testing.T) {
	source, err := os.ReadFile("workload_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(source), "\nfunc ExampleWorkload() {\n")
	body, _, _ := strings.Cut(after, "\n}\n")
	if got := block(t, "go"); got != body {
		t.Errorf("docs/your-workload.md: got\n%s\nwant the body of ExampleWorkload\n%s", got, body)
	}
}

// The assignment and the lines of a history that the documentation shows are what
// a worker is given, and what the checkers read.
func TestWorkload_DocumentedLines(t *testing.T) {
	decoder := json.NewDecoder(strings.NewReader(block(t, "json")))
	decoder.DisallowUnknownFields()
	var a chaos.Assignment
	if err := decoder.Decode(&a); err != nil {
		t.Fatalf("the assignment: %v", err)
	}
	if text, err := json.Marshal(a); err != nil || len(a.Keys) == 0 || !bytes.Contains(text, []byte(`"history":"`+a.History)) {
		t.Errorf("got %s, %v, want an assignment with keys and a history", text, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "worker.jsonl"), []byte(block(t, "jsonl")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := history.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range h.Ops {
		got = append(got, h.Ops[i].String())
	}
	want := []string{
		"worker-01.1 claim account:02 token 57 → ok",
		"worker-01.1 write account:02 token 57: row 10010000000 → ok",
		"worker-01.1 write account:02 token 57: row 10010000001 → refused LF001 ",
		"worker-01.1 write account:02 token 57: row 10010000002 → unknown",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
