package main

import (
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

// TestMain is the etcd of a rig, in the process that is one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == memberRole {
		command.Main("bench", run)
		return
	}
	os.Exit(m.Run())
}
