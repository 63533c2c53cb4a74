package sqlstore

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/tables"
)

// mssqlUnique has the columns of the unique indexes of a table.
const mssqlUnique = `
	SELECT i.name, c.name,
		CASE WHEN i.has_filter = 1 THEN 'filtered' WHEN i.is_disabled = 1 THEN 'disabled' WHEN i.ignore_dup_key = 1 THEN 'made with IGNORE_DUP_KEY' ELSE '' END,
		CAST(c.is_nullable AS bit)
	FROM sys.indexes AS i JOIN sys.index_columns AS x ON x.object_id = i.object_id AND x.index_id = i.index_id
		JOIN sys.columns AS c ON c.object_id = i.object_id AND c.column_id = x.column_id
	WHERE i.object_id = OBJECT_ID(@p1) AND i.is_unique = 1 AND x.is_included_column = 0
	ORDER BY i.name, x.key_ordinal`

func (d mssqlDialect) keyFits(ctx context.Context, q querier, w *keyed.Write) error {
	return fits(ctx, d, q, w, mssqlUnique, quoteTable(d, w.Table))
}

// upsert stages the keys. MERGE would race with others, or lock ranges of keys and deadlock. The
// temporary tables are made without parameters, because those of sp_executesql end with it; by a
// join, whose columns may be NULL and have no IDENTITY.
func (d mssqlDialect) upsert(ctx context.Context, t *Tx, w *keyed.Write) error {
	words := mssqlStaging
	if d.plain {
		words.fill = nil
	}
	return newStaged(t, w, words).run(ctx)
}

var mssqlStaging = stagingWords{
	keys: "#sluice_keys", changes: "#sluice_changes",
	drop: func(table string) string {
		return "IF OBJECT_ID(N'tempdb.." + table + "') IS NOT NULL DROP TABLE " + table
	},
	create: func(table, columns, from string) string {
		return "SELECT TOP (0) " + columns + " INTO " + table + " FROM (SELECT 1 AS one) AS x LEFT JOIN " + from + " AS t ON 1 = 0"
	},
	remove: func(table, staged, match, where string) string {
		return "DELETE t FROM " + table + " AS t JOIN " + staged + " AS g ON " + match + " WHERE " + where
	},
	fill: func(ctx context.Context, q querier, staged string, of []tables.Column, columns []string, rows [][]any) (done bool, err error) {
		if len(rows) < bulkRows {
			return false, nil
		}
		of = append(slices.Clone(of), tables.Column{Name: "sluice_row", Kind: "int"}, tables.Column{Name: "sluice_deletes", Kind: "int"})
		for i := range of { // those of the temporary table are neither
			of[i].Generated, of[i].Defaulted = false, false
		}
		return mssqlCopied(ctx, q, staged, of, columns, rows)
	},
	update: func(table, staged, match string, columns []string) string {
		return "UPDATE t SET " + setFrom("", columns) + " FROM " + table + " AS t JOIN " + staged + " AS g ON " + match
	},
}
