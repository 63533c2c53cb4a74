// Package migrations writes the migrations of Sluice's tables as files that goose and
// golang-migrate read.
package migrations

import (
	"fmt"
	"path"
	"strings"
	"testing/fstest"
)

// Migration makes one version of a component's tables out of the one before.
type Migration struct {
	Component string
	// Statements are what a store sends, each in a call of its own.
	Statements []string
}

// Write adds a file NNNN_component.up.sql to a directory for each migration, with the numbers from
// 1 on. A tool that knows nothing of goose's annotations reads them as comments.
func Write(to fstest.MapFS, dir string, all []Migration) {
	for i, m := range all {
		var b strings.Builder
		b.WriteString("-- +goose Up\n")
		for _, statement := range m.Statements {
			fmt.Fprintf(&b, "-- +goose StatementBegin\n%s\n-- +goose StatementEnd\n", terminated(statement))
		}
		to[path.Join(dir, fmt.Sprintf("%04d_%s.up.sql", i+1, m.Component))] = &fstest.MapFile{Data: []byte(b.String()), Mode: 0o444}
	}
}

// terminated adds the semicolon that separates a statement from the next one in its file, unless it
// has one.
func terminated(statement string) string {
	statement = strings.TrimSpace(statement)
	last := statement[strings.LastIndexByte(statement, '\n')+1:]
	code, _, commented := strings.Cut(last, "--")
	switch {
	case strings.HasSuffix(strings.TrimSpace(code), ";"):
		return statement
	case commented:
		return statement + "\n;"
	}
	return statement + ";"
}
