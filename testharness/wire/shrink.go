package wire

import "reflect"

// Shrink returns the smallest script it can find that still fails; s fails.
// It takes away pipelines first, then waits, then writes, then messages: half
// of them at once, and less and less.
func Shrink(s *Script, fails func(*Script) bool) *Script {
	best := fewer(pipelines(s), func(units [][]Step) *Script { return like(s, units) }, fails, s)
	if one := together(best); fails(one) {
		best = one
	}
	for _, cut := range []func([]Step) [][]Step{writes, single} {
		units := cut(unended(best))
		best = fewer(units, func(units [][]Step) *Script { return ended(s, apart(units)) }, fails, best)
	}
	if one := together(best); fails(one) {
		best = one
	}
	return best
}

// fewer takes units away for as long as what is made of the rest fails. It
// returns best where nothing can be taken away.
func fewer(units [][]Step, script func([][]Step) *Script, fails func(*Script) bool, best *Script) *Script {
	for size := max(1, len(units)/2); size > 0; size /= 2 {
		for at := 0; at+size <= len(units) && len(units) > size; {
			rest := append(units[:at:at], units[at+size:]...)
			if candidate := script(rest); fails(candidate) {
				units, best = rest, candidate
			} else {
				at += size
			}
		}
	}
	return best
}

// like makes a script of other steps.
func like(s *Script, units [][]Step) *Script {
	other := *s
	other.Steps = nil
	for _, steps := range units {
		other.Steps = append(other.Steps, steps...)
	}
	return &other
}

// ended makes a script of steps, with an end to it: what isn't flushed before
// a session ends may come or not.
func ended(s *Script, units [][]Step) *Script {
	send, expect := ending("the end")
	return like(s, append(units[:len(units):len(units)], []Step{{Action: ActOn, Session: "a"}, send, expect}))
}

// unended are the steps of a script without the end that ended gave it.
func unended(s *Script) []Step {
	n := len(s.Steps)
	if _, expect := ending("the end"); n > 3 && reflect.DeepEqual(s.Steps[n-1], expect) {
		return s.Steps[:n-3]
	}
	return s.Steps
}

// pipelines cuts a generated script behind the wait at the end of each.
func pipelines(s *Script) (all [][]Step) {
	from := 0
	for i, step := range s.Steps {
		if step.Action == ActExpect && len(step.Expect[0].Wants) > 1 && step.Expect[0].Wants[1].Letter == "D" {
			all = append(all, s.Steps[from:i+1])
			from = i + 1
		}
	}
	if rest := s.Steps[from:]; len(rest) > 0 {
		all = append(all, rest)
	}
	return all
}

// writes are the steps that send.
func writes(steps []Step) (all [][]Step) {
	for _, step := range steps {
		if step.Action == ActSend {
			all = append(all, []Step{step})
		}
	}
	return all
}

// single is a step for each message.
func single(steps []Step) (all [][]Step) {
	for _, step := range steps {
		for _, m := range step.Messages {
			all = append(all, []Step{{Action: ActSend, Messages: []Message{m}}})
		}
	}
	return all
}

// apart puts between steps that send what keeps them apart.
func apart(units [][]Step) (all [][]Step) {
	for i, unit := range units {
		if i > 0 {
			all = append(all, []Step{{Action: ActOn, Session: "a"}})
		}
		all = append(all, unit)
	}
	return all
}

// together is the script with all messages in one write, and no waits.
func together(s *Script) *Script {
	one := Step{Action: ActSend}
	for _, step := range unended(s) {
		one.Messages = append(one.Messages, step.Messages...)
	}
	return ended(s, [][]Step{{one}})
}
