package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/console"
)

// consoleFlags say where the console is and who may use it.
type consoleFlags struct {
	database databaseName
	admins   roleNames
	watchers roleNames
}

func newConsoleFlags() consoleFlags { return consoleFlags{database: console.DefaultDatabase} }

func (c *consoleFlags) add(flags *pflag.FlagSet) {
	flags.Var(&c.database, "console-database", "the `NAME` of the database that is the console, which has no database of PostgreSQL's by that name reached; empty is none")
	flags.Var(&c.admins, "admin-roles", "roles of PostgreSQL that may use the console, and roles whose members may; nobody may without any")
	flags.Var(&c.watchers, "stats-roles", "roles that may only look there, and roles whose members may")
}

func (c *consoleFlags) settings() console.Settings {
	return console.Settings{Database: string(c.database), Admins: c.admins, Watchers: c.watchers}
}

// databaseName is a name as PostgreSQL takes it.
type databaseName string

func (d *databaseName) Set(text string) error {
	if err := proxy.CheckPattern(text); err != nil {
		return err
	}
	*d = databaseName(text)
	return nil
}
func (d *databaseName) String() string { return string(*d) }
func (*databaseName) Type() string     { return "name" }

// roleNames are names of roles, joined with commas.
type roleNames []string

func (r *roleNames) Set(text string) error {
	var all []string
	for item := range strings.SplitSeq(text, ",") {
		name := strings.TrimSpace(item)
		if name == "" && text != "" {
			return fmt.Errorf("names of roles joined with commas are expected, such as dba,oncall")
		}
		if err := proxy.CheckPattern(name); err != nil {
			return err
		}
		if name != "" {
			all = append(all, name)
		}
	}
	*r = all
	return nil
}
func (r *roleNames) String() string { return strings.Join(*r, ",") }
func (*roleNames) Type() string     { return "role,..." }
