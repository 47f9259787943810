package scenario

// An Act is a statement that an actor runs, and how the history tells it.
type Act struct {
	Verb  Verb // VerbExec, VerbSimple or VerbBatch
	SQL   string
	Args  []string
	Batch []string // of VerbBatch, in the place of SQL
	Kind  Kind     // of the event if it succeeds
	Story string   // what the statement is in the story
}

// read is a statement that changes nothing. Its event tells what it found.
func read(story, sql string, args ...string) Act {
	return Act{Verb: VerbExec, SQL: sql, Args: args, Kind: KindRead, Story: story}
}

// write is a statement that is a transaction of its own.
func write(story, sql string, args ...string) Act {
	return Act{Verb: VerbExec, SQL: sql, Args: args, Kind: KindCommit, Story: story}
}

// step is a statement inside a transaction that goes on.
func step(story, sql string, args ...string) Act {
	return Act{Verb: VerbExec, SQL: sql, Args: args, Kind: KindStep, Story: story}
}

// in is the act inside a transaction that goes on.
func (a Act) in() Act {
	a.Kind = KindStep
	return a
}

// simply is the act in the simple protocol, which has no arguments.
func (a Act) simply() Act {
	a.Verb = VerbSimple
	return a
}

func begin() Act { return step("begins a transaction", "BEGIN").simply() }

func commit() Act { return write("commits", "COMMIT").simply() }
