package pgstore

import (
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// statements puts the tables' schema into SQL, where "@" stands for it, so that
// nothing depends on the search_path, which handlers may change. It converts each statement once.
type statements struct {
	schema string // quoted, with its dot
	done   sync.Map
}

func newStatements(schema string) *statements {
	return &statements{schema: pgx.Identifier{schema}.Sanitize() + "."}
}

func (t *statements) text(sql string) string {
	if text, ok := t.done.Load(sql); ok {
		return text.(string)
	}
	text := strings.ReplaceAll(sql, "@", t.schema)
	t.done.Store(sql, text)
	return text
}

// clean makes text storable in PostgreSQL, which takes UTF-8 without NUL: other bytes become
// U+FFFD.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
