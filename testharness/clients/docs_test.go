package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/testharness/clients"
)

const page = "../../docs/clients.md"

// recipes are those of all programs as they stand.
func recipes(t *testing.T) string {
	t.Helper()
	got, err := clients.Recipes(clients.All(), func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join("programs", name))
		return string(text), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestRecipes_InDocs: what users copy is what the programs do.
func TestRecipes_InDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got, err := clients.Section(string(text), "recipes")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(recipes(t), got); diff != "" {
		t.Errorf("docs/clients.md is not what `make clients` writes (-want +got):\n%s", diff)
	}
}

// TestNames_InDocs: the names that CLIENTS takes can be read there.
func TestNames_InDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := "`" + strings.Join(clients.Names(), "`, `") + "`"; !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("docs/clients.md doesn't have %s", want)
	}
}

// TestSelect_Unknown: who misspells a name is told those that there are.
func TestSelect_Unknown(t *testing.T) {
	_, err := clients.Select("psql,pgxx")
	if want := `no client is called "pgxx"; there are psql, pgbench, `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}

// write puts recipes into the docs and, if they are those of all clients,
// results.
func write(t *testing.T, results []clients.Result) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := clients.Replace(string(text), "recipes", recipes(t))
	if err == nil && len(results) == len(clients.All()) {
		doc, err = clients.Replace(doc, "results", clients.Table(results))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(doc), 0o644); err != nil {
		t.Fatal(err)
	}
}
