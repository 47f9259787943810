package fencing_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestSighting(t *testing.T) {
	for name, c := range map[string]struct {
		seen        fencing.Sighting
		newer, gone bool
	}{
		"the holder":                 {fencing.Sighting{Holder: 10, Revision: 12}, false, false},
		"a newer holder":             {fencing.Sighting{Holder: 11, Revision: 12}, true, true},
		"nobody":                     {fencing.Sighting{Revision: 12}, false, true},
		"nobody, at its revision":    {fencing.Sighting{Revision: 10}, false, true},
		"nobody, before its time":    {fencing.Sighting{Revision: 9}, false, false},
		"the holder before":          {fencing.Sighting{Holder: 7, Revision: 9}, false, false},
		"the holder before, waiting": {fencing.Sighting{Holder: 7, Revision: 12}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if newer, gone := c.seen.Newer(10), c.seen.Gone(10); newer != c.newer || gone != c.gone {
				t.Errorf("got newer %v, gone %v, want %v, %v", newer, gone, c.newer, c.gone)
			}
		})
	}
}
