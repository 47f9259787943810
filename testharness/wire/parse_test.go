package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// Every script that is written down again is read as the same.
func TestScript_String(t *testing.T) {
	for _, s := range scripts(t) {
		again, err := wire.Parse(s.File, s.String())
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if diff := cmp.Diff(s, again[0], cmpopts.IgnoreFields(wire.Step{}, "Line"), cmpopts.IgnoreUnexported(wire.Message{})); diff != "" {
			t.Errorf("%s: read again (-want +got):\n%s", s.Name, diff)
		}
	}
}
