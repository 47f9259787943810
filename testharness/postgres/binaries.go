package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// EnvBinaries names the folder of the server binaries, ahead of all search.
const EnvBinaries = "FENCEPROXY_PG_BIN"

// versionFolders are where packages put server binaries off PATH: Debian,
// PGDG on Red Hat, Homebrew, and PostgreSQL's own default.
var versionFolders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/usr/local/pgsql/bin",
}

// FindBinaries returns the folder that holds initdb and postgres: the one that
// FENCEPROXY_PG_BIN names, else the first on PATH, else the usual version
// folders, highest version first. The error names what to install.
func FindBinaries() (string, error) {
	if dir := os.Getenv(EnvBinaries); dir != "" {
		if missing := missingIn(dir); missing != "" {
			return "", fmt.Errorf("%s is %s, and there is no program %s in it", EnvBinaries, dir, missing)
		}
		return dir, nil
	}
	candidates := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range versionFolders {
		found, _ := filepath.Glob(pattern) // fails on a malformed pattern only
		slices.SortFunc(found, func(a, b string) int { return compareVersions(b, a) })
		candidates = append(candidates, found...)
	}
	for _, dir := range candidates {
		if filepath.IsAbs(dir) && missingIn(dir) == "" {
			return behindLinks(dir), nil
		}
	}
	return "", fmt.Errorf("no PostgreSQL server binaries (initdb, postgres) on PATH or in the usual folders: "+
		"install the server package (Debian and Ubuntu: postgresql; Fedora and Red Hat: postgresql-server; Homebrew: postgresql) "+
		"or set %s to their folder", EnvBinaries)
}

// behindLinks returns the folder that dir's programs really stand in, where the
// rest of the installation is too; a PATH often has links to a few of them.
func behindLinks(dir string) string {
	real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil || missingIn(filepath.Dir(real)) != "" {
		return dir
	}
	return filepath.Dir(real)
}

// missingIn returns the first program that dir lacks, or "".
func missingIn(dir string) string {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return name
		}
	}
	return ""
}

// compareVersions orders paths so that 9.6 < 10 < 18: by their numbers, and by
// their text where they have the same numbers.
func compareVersions(a, b string) int {
	numbers := func(s string) (out []int) {
		for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
			n, _ := strconv.Atoi(field) // digits only; an overflow sorts last, which is as good as any
			out = append(out, n)
		}
		return out
	}
	if c := slices.Compare(numbers(a), numbers(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}
