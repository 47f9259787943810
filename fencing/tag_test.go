package fencing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestParseTag_ManyKeys(t *testing.T) {
	keys := func(n int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `, "k%d": 1`, i)
		}
		return "{" + strings.TrimPrefix(all.String(), ",") + "}"
	}
	if tag, err := fencing.ParseTag("", "", keys(fencing.MaxPairs)); err != nil || len(tag) != fencing.MaxPairs {
		t.Errorf("as many as may be: got %d, %v", len(tag), err)
	}
	var refusal *fencing.Error
	if _, err := fencing.ParseTag("", "", keys(fencing.MaxPairs+1)); !errors.As(err, &refusal) || refusal.Code != fencing.CodeMalformedTag {
		t.Errorf("one more: got %v, want %s", err, fencing.CodeMalformedTag)
	}
}
