package main

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// lockEnv is base with what tells a command its lock: FENCE_KEY, FENCE_TOKEN,
// and PGOPTIONS, with which every program that uses libpq is tagged.
func lockEnv(base []string, key string, token fencing.Token) []string {
	options := ""
	env := make([]string, 0, len(base)+3)
	for _, entry := range base {
		switch name, value, _ := strings.Cut(entry, "="); name {
		case "PGOPTIONS":
			options = value
		case "FENCE_KEY", "FENCE_TOKEN":
		default:
			env = append(env, entry)
		}
	}
	return append(env,
		"FENCE_KEY="+key,
		"FENCE_TOKEN="+token.String(),
		"PGOPTIONS="+tagOptions(options, key, token))
}

// tagOptions appends the tag to the command-line options that libpq sends at
// startup. The server reads options from the left, so the tag wins.
func tagOptions(options, key string, token fencing.Token) string {
	if options != "" {
		options += " "
	}
	return options + "-c " + fencing.SettingKey + "=" + escapeOption(key) +
		" -c " + fencing.SettingToken + "=" + token.String()
}

// escapeOption puts a backslash before what would end an option or escape
// the next character (PostgreSQL's pg_split_opts, src/backend/utils/init/postinit.c).
func escapeOption(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte("\\ \t\n\v\f\r", s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
