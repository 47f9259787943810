// Package steps is what Go's programs share: nothing in it knows a driver.
package steps

import (
	"bufio"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Say prints a step and what was seen.
func Say(step string, seen ...any) { fmt.Printf("%s: %s", step, fmt.Sprintln(seen...)) }

// Must ends the program at an error.
func Must[T any](value T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return value
}

// CodeOf is the SQLSTATE of an error; the drivers' own errors have it.
func CodeOf(err error) string {
	var coded interface{ SQLState() string }
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &coded):
		return coded.SQLState()
	default:
		return err.Error()
	}
}

// Version is that of a module which the program was built with.
func Version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dep := range build.Deps {
		if dep.Path == module {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "?"
}

// Wrong are statements that fail, each with another SQLSTATE.
func Wrong() []string {
	return []string{"INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)"}
}

// Codes runs the wrong statements.
func Codes(run func(sql string) string) string {
	var codes []string
	for _, sql := range Wrong() {
		codes = append(codes, run(sql))
	}
	return strings.Join(codes, " ")
}

// True counts what holds.
func True(all ...bool) (n int) {
	for _, ok := range all {
		if ok {
			n++
		}
	}
	return n
}

// Large is four megabytes.
func Large() string { return strings.Repeat("x", 4<<20) }

// Run does what the command line says. write writes a row in a session that
// was tagged at connect and stays open; ways writes rows with each way to tag.
func Run(play func(), write func(row int, name string) string, ways func(token string, row int, name string) string) {
	if os.Args[1] == "play" {
		play()
		return
	}
	token := os.Getenv("FENCE_TOKEN")
	Say("holder", write(1, "holder"), ways(token, 2, "holder"))
	Must(bufio.NewReader(os.Stdin).ReadString('\n')) // until the lock was lost
	Say("evicted", write(11, "stale"))
	Say("stale", ways(token, 12, "stale"))
	Say("unknown", ways(strconv.Itoa(Must(strconv.Atoi(token))+1000000), 15, "stale"))
}
