package live

// A Setting is one of the program's, as it counts now.
type Setting struct {
	Name    string // as the file has it
	Value   string // "(hidden)" in the place of a secret
	Default string
	// Source is what set it: "default", a flag, a variable, or a line of the file.
	Source     string
	Changeable bool // a reload can change it
}

// A Stat is a sample of /metrics.
type Stat struct {
	Name   string
	Labels string // name="value", joined with commas
	Value  float64
}

// A Reloaded is what became of settings that were read anew.
type Reloaded struct {
	Changed []Change
	// Restart are the names of those that are other ones now and need a restart.
	Restart []string
}

// A Change is of one setting.
type Change struct{ Name, From, To string }
