package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build makes the programs that `make chaos` runs, with a protection taken out
// of both: schema fence is installed by the second one.
func build(ctx context.Context, m mutant, dir string) error {
	into, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the folder to build into: %w", err)
	}
	overlay, err := m.write(filepath.Join(into, "source"))
	if err != nil {
		return err
	}
	for name, folder := range map[string]string{"fenceproxy": "./cmd/fenceproxy", "chaos": "./testharness/chaos/cmd"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", filepath.Join(into, name), folder)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s without %s: %w: %s", name, m.without, err, text)
		}
	}
	return nil
}
