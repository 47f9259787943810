package clients_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/testharness/clients"
)

func transcript(lines ...string) (t clients.Transcript) {
	for _, line := range lines {
		t.Add(line)
	}
	return t
}

func TestTranscript_Add(t *testing.T) {
	got := transcript("noise before", "commit: 1", "more of it: here", "notify: a: b")
	want := clients.Transcript{{"", "\nnoise before"}, {"commit", "1\nmore of it: here"}, {"notify", "a: b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTranscript_Differences(t *testing.T) {
	straight := transcript("commit: 1", "cancel: 57014")
	for _, c := range []struct {
		name  string
		other clients.Transcript
		want  int
	}{
		{"the same", transcript("commit: 1", "cancel: 57014"), 0},
		{"another code", transcript("commit: 1", "cancel: ok"), 1},
		{"a step less", transcript("commit: 1"), 1},
		{"a step more", transcript("commit: 1", "cancel: 57014", "notify: x"), 1},
		{"noise", transcript("commit: 1", "a warning", "cancel: 57014"), 1},
		{"nothing", nil, 2},
	} {
		if got := straight.Differences(c.other); len(got) != c.want {
			t.Errorf("%s: got %q, want %d differences", c.name, got, c.want)
		}
	}
}

func TestTranscript_Lacks(t *testing.T) {
	wants := map[string]string{"commit": "1", "version": ""}
	for _, c := range []struct {
		name string
		got  clients.Transcript
		want int
	}{
		{"all is there", transcript("version: 3", "commit: 1"), 0},
		{"another value", transcript("version: 3", "commit: 0"), 1},
		{"anything must be something", transcript("commit: 1"), 1},
	} {
		if got := c.got.Lacks(wants); len(got) != c.want {
			t.Errorf("%s: got %q, want %d", c.name, got, c.want)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		names string
		want  int
	}{{"all", len(clients.All())}, {"pgx,SQLAlchemy on asyncpg", 2}, {"", 6}} {
		got, err := clients.Select(c.names)
		if err != nil || len(got) != c.want {
			t.Errorf("%q: got %d clients and %v, want %d", c.names, len(got), err, c.want)
		}
	}
	if _, err := clients.Select("pgx,psql8"); err == nil {
		t.Error("got nil, want an error that names psql8")
	}
}
