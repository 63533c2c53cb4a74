package sqlstore

import (
	"context"
	"strings"

	"github.com/sluice-go/sluice/internal/keyed"
)

// mysqlUnique has the columns of the unique indexes of a table.
const mysqlUnique = `
	SELECT index_name, COALESCE(column_name, '(an expression)'),
		CASE WHEN column_name IS NULL THEN 'on an expression' WHEN sub_part IS NOT NULL THEN 'on the beginning of a column' ELSE '' END, nullable = 'YES'
	FROM information_schema.statistics
	WHERE table_schema = CASE WHEN ? THEN ? ELSE DATABASE() END AND table_name = ? AND non_unique = 0
	ORDER BY index_name, seq_in_index`

func (d mysqlDialect) keyFits(ctx context.Context, q querier, w *keyed.Write) error {
	schema, name, qualified := strings.Cut(w.Table, ".")
	if !qualified {
		name = w.Table
	}
	return fits(ctx, d, q, w, mysqlUnique, qualified, schema, name)
}

// upsert stages the keys. ON DUPLICATE KEY UPDATE would react to any unique index of the table, and
// change another row. No statement names a temporary table twice, which MySQL refuses.
// STRAIGHT_JOIN has the rows of the table looked up, also if the server takes it for small.
func (d mysqlDialect) upsert(ctx context.Context, t *Tx, w *keyed.Write) error {
	return newStaged(t, w, mysqlStaging).run(ctx)
}

var mysqlStaging = stagingWords{
	keys: "sluice_keys", changes: "sluice_changes",
	drop: func(table string) string { return "DROP TEMPORARY TABLE IF EXISTS " + table },
	create: func(table, columns, from string) string {
		return "CREATE TEMPORARY TABLE " + table + " (sluice_row INT NOT NULL PRIMARY KEY) ENGINE = InnoDB AS SELECT " + columns + " FROM (SELECT 1 AS one) AS x LEFT JOIN " + from + " AS t ON FALSE LIMIT 0"
	},
	remove: func(table, staged, match, where string) string {
		return "DELETE t FROM " + staged + " AS g STRAIGHT_JOIN " + table + " AS t ON " + match + " WHERE " + where
	},
	update: func(table, staged, match string, columns []string) string {
		return "UPDATE " + staged + " AS g STRAIGHT_JOIN " + table + " AS t ON " + match + " SET " + setFrom("t.", columns)
	},
}

// setFrom assigns columns of g.
func setFrom(prefix string, columns []string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = prefix + c + " = g." + c
	}
	return strings.Join(list, ", ")
}
