package scenario

import "fmt"

// A Tone is how an event is to be shown.
type Tone int

// The tones.
const (
	TonePlain Tone = iota
	ToneNote       // what explains, or leads up to something
	ToneLock       // a lock was got
	ToneFault      // something broke or was mended
	ToneGood       // a right write was accepted, or a wrong one refused
	ToneBad        // damage, or a failure
)

func (t Tone) String() string {
	switch t {
	case ToneNote:
		return "note"
	case ToneLock:
		return "lock"
	case ToneFault:
		return "fault"
	case ToneGood:
		return "good"
	case ToneBad:
		return "bad"
	default:
		return "plain"
	}
}

// A Telling is an event as a person is told of it.
type Telling struct {
	Who  string // and with which token
	Text string
	Tone Tone
}

// A Teller tells the events of one run, in their order.
type Teller struct{ at *front }

// NewTeller is for one run.
func NewTeller() *Teller { return &Teller{newFront()} }

// Tell puts an event into words.
func (t *Teller) Tell(e Event) Telling {
	t.at.advance(e)
	told := Telling{Who: e.Actor, Text: e.Text}
	if e.Token > 0 && e.Kind != KindExpired {
		told.Who = fmt.Sprintf("%s/%d", e.Actor, e.Token)
	}
	switch e.Kind {
	case KindNote, KindLine, KindSent:
		told.Tone = ToneNote
	case KindLock:
		told.Tone = ToneLock
	case KindPause, KindExpired, KindResume, KindCrash, KindFault, KindHeal, KindRenewed:
		told.Tone = ToneFault
	case KindCommit:
		told.Text, told.Tone = t.commit(e)
	case KindRefused:
		told.Text, told.Tone = fmt.Sprintf("%s: REFUSED %s %s", e.Story, e.Code, e.Text), ToneGood
	case KindFailed:
		told.Text, told.Tone = fmt.Sprintf("%s: failed %s %s", e.Story, e.Code, e.Text), ToneBad
	case KindRows:
		told.Who, told.Text = "", "in the database: "+e.Text
	case KindWrong:
		told.Who, told.Text, told.Tone = "", "WRONG: "+e.Text, ToneBad
	case KindConnected, KindHeld, KindRead, KindStep, KindReleased:
	}
	return told
}

// commit tells a commit, and whether it should have been accepted.
func (t *Teller) commit(e Event) (string, Tone) {
	if t.at.forged(e) {
		return e.Text + ": accepted, though no lock gave that number: a FORGED WRITE", ToneBad
	}
	if newest := t.at.stale(e); newest != 0 {
		return fmt.Sprintf("%s: accepted, though token %d is at work: a STALE WRITE", e.Text, newest), ToneBad
	}
	return e.Text + ": accepted", ToneGood
}
