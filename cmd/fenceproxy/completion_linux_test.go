package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programFolder is a folder that has the program under its own name, and the
// variables with which a shell finds it there.
func programFolder(t testing.TB) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "fenceproxy")); err != nil {
		t.Fatal(err)
	}
	return dir, append(os.Environ(), asProgram+"=1", "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb", "PS1=$ ")
}

// People type into shells and press Tab.
func TestCompletion_InShells(t *testing.T) {
	for name, shell := range map[string]struct {
		argv  []string
		setUp string
	}{
		"bash": {[]string{"bash", "--norc", "--noprofile", "-i"}, `. /usr/share/bash-completion/bash_completion; eval "$(fenceproxy completion bash)"`},
		"zsh":  {[]string{"zsh", "-f", "-i"}, `autoload -U compinit; compinit -u; source <(fenceproxy completion zsh)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, env := programFolder(t)
			if err := os.WriteFile(filepath.Join(dir, "settings.yaml"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(shell.argv[0], shell.argv[1:]...)
			cmd.Env, cmd.Dir = env, dir
			term := showOnTerminal(t, cmd)
			term.enter(t, shell.setUp+"; echo re''ady\n")
			term.shows(t, "ready")
			for _, typed := range []struct{ keys, shows string }{
				{"fenceproxy hea\t", "fenceproxy health "},
				{"fenceproxy lock job:1 --on-l\t", "--on-lost "},
				{"fenceproxy lock job:1 --on-lost k\t", "--on-lost kill "},
				{"fenceproxy demo lost-\t", "demo lost-claim "},
				{"fenceproxy serve --config sett\t", "--config settings.yaml"},
				{"fenceproxy lock job:1 -- fencep\t", "-- fenceproxy"},
				{"fenceproxy completion f\t", "completion fish "},
			} {
				term.enter(t, typed.keys)
				term.shows(t, typed.shows)
				term.enter(t, "\x15") // the line is given up
			}
			term.enter(t, "exit\n")
			term.wait(t)
		})
	}
}

// fish tells by itself what it would propose.
func TestCompletion_InFish(t *testing.T) {
	dir, env := programFolder(t)
	script := "fenceproxy completion fish | source\n"
	cases := []struct{ typed, want string }{
		{"fenceproxy hea", "health"},
		{"fenceproxy lock job:1 --on-lost ", "ignore kill term"},
		{"fenceproxy lock ", ""},
		{"fenceproxy lock job:1 -- fencepro", "fenceproxy"},
		{"fenceproxy serve --admin-listen ", ""},
	}
	for _, c := range cases {
		script += "complete -C '" + c.typed + "'; echo end\n"
	}
	cmd := exec.Command("fish", "--no-config", "-c", script)
	cmd.Env, cmd.Dir = env, dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	answers := strings.SplitAfter(string(out), "end\n")
	for i, c := range cases {
		var got []string
		for line := range strings.Lines(strings.TrimSuffix(answers[i], "end\n")) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %q, want %q", c.typed, got, c.want)
		}
	}
}
