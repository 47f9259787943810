package scenario

import (
	"errors"
	"testing"
)

// A play whose first step can't be taken ends, and the steps after it do
// nothing: none of them stumbles over what never came.
func TestStory_Play_Failed(t *testing.T) {
	for _, story := range Stories() {
		for _, arm := range story.Arms() {
			t.Run(story.Name+"/"+arm.String(), func(t *testing.T) {
				failed := errors.New("the stage is on fire")
				s := &Stage{Arm: arm, History: NewHistory(), Gates: []*Gate{{}}, err: failed}
				story.Play(s)
				if !errors.Is(s.err, failed) || len(s.History.Events(0)) > 0 {
					t.Errorf("got %v, and %d events, want the first error and none", s.err, len(s.History.Events(0)))
				}
			})
		}
	}
}
