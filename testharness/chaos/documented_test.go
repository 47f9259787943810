package chaos_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// around is what the documentation leaves out of its program.
const around = `package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
`

// The program and the worker of docs/your-workload.md, as they stand there, but
// for the minute.
func TestWorkload_Documented(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := strings.Replace(block(t, "go"), "time.Minute", "5 * time.Second", 1)
	documented, worker := filepath.Join(dir, "main.go"), filepath.Join(dir, "worker.py")
	for path, text := range map[string]string{documented: around + program + "\n}\n", worker: block(t, "python") + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "documented", "main.go"): documented}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	mine, fenceproxy := filepath.Join(dir, "mine"), build(t, dir, "cmd/fenceproxy")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", mine, "./documented").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v: %s", err, out)
	}
	past := filepath.Join(dir, "history")
	out, err := exec.CommandContext(t.Context(), mine, fenceproxy, past, "python3", worker, fenceproxy).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if unharmed := regexp.MustCompile(`I2 barrier +judged +[1-9]\d*, violations 0\n`); !unharmed.Match(out) {
		t.Errorf("got\n%s\nwant %s", out, unharmed)
	}
	h, err := history.Load(past)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Tables.Rows) == 0 || len(h.Faults) == 0 {
		t.Errorf("got %d rows and %d faults, want some", len(h.Tables.Rows), len(h.Faults))
	}
}
