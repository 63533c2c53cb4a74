package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

var parameter = regexp.MustCompile(`([^:\w]):(\w+)`)

// dialect returns the grammar of a block's database, by the heading above it or by its page.
func dialect(b Block) string {
	place := strings.ToLower(b.Heading + " " + b.File)
	switch {
	case strings.Contains(place, "postgres"):
		return "postgres"
	case strings.Contains(place, "mysql"):
		return "mysql"
	case strings.Contains(place, "sql server"), strings.Contains(place, "sqlserver"), strings.Contains(place, "azure sql"), strings.Contains(b.Text, "CLUSTERED"):
		return "tsql"
	}
	return "sqlite"
}

// TestSQL parses the statements of the pages by the grammars of sqlfluff.
func TestSQL(t *testing.T) {
	need.SQLFluff(t)
	statements := map[string][]string{}
	for _, b := range blocks(t, "sql") {
		d := dialect(b)
		t.Logf("%s: %s", b, d)
		statements[d] = append(statements[d], parameter.ReplaceAllString(b.Text, "${1}1"))
	}
	for _, d := range slices.Sorted(maps.Keys(statements)) {
		sqlgrammar.MustParse(t, d, statements[d])
	}
}
