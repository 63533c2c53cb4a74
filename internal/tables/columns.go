package tables

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Name string
	Kind string // the name of the type; of an enum or set of MySQL with its labels
	// Type is the type as SQL writes it, and what else decides which values fit.
	Type      string
	Size      int  // of SQL Server's types: bytes; -1: max
	Scale     int  // likewise: digits after the decimal point
	Required  bool // it is NOT NULL and has no default
	Generated bool // it takes no values
	Defaulted bool // a row without a value gets another one than NULL
}

// Catalog is how a database describes the columns of its tables.
type Catalog struct {
	// fromClause is the list of a table's columns; the arguments of place take the place of its
	// verbs.
	fromClause string
	place      func(table string) []any // literals
	name       string                   // the column's name
	kind       string
	typ        string // its type, and what else decides which values fit
	rest       string // size, scale, required, generated, defaulted
	order      string
	// literal is a text, and text makes what is compared with one of an expression.
	literal func(text string) string
	text    string
}

// Columns describes the columns of a table, none if there is no such table.
func (c *Catalog) Columns(ctx context.Context, q Querier, table string) (list []Column, err error) {
	rows, err := q.QueryContext(ctx, "SELECT "+strings.Join([]string{c.name, c.kind, c.typ, c.rest}, ", ")+fmt.Sprintf(c.fromClause, c.place(table)...)+" ORDER BY "+c.order)
	if err != nil {
		return nil, fmt.Errorf("read the columns of table %s: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Column
		if err := rows.Scan(&e.Name, &e.Kind, &e.Type, &e.Size, &e.Scale, &e.Required, &e.Generated, &e.Defaulted); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// Same is a condition that the columns of a table are these, as far as they are among names.
func (c *Catalog) Same(table string, columns []Column, names []string) string {
	var each []string
	for _, e := range columns {
		if slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, e.Name) }) {
			each = append(each, fmt.Sprintf(c.text, c.name)+" = "+c.literal(e.Name)+" AND "+fmt.Sprintf(c.text, c.typ)+" = "+c.literal(e.Type))
		}
	}
	if len(each) == 0 {
		return "1 = 1"
	}
	var groups []string
	for group := range slices.Chunk(each, 50) { // SQLite bounds the depth of an expression
		groups = append(groups, "("+strings.Join(group, " OR ")+")")
	}
	return fmt.Sprintf("(SELECT COUNT(*)"+c.fromClause+" AND (", c.place(table)...) + strings.Join(groups, " OR ") + fmt.Sprintf(")) = %d", len(each))
}

// Changed returns a [ChangedError] if the columns of a table are not what they were.
func Changed(table string, was, is []Column) error {
	if len(is) == 0 {
		return &ChangedError{table, "the table is gone"}
	}
	var list []string
	for _, old := range was {
		i := slices.IndexFunc(is, func(e Column) bool { return e.Name == old.Name })
		switch {
		case i < 0:
			list = append(list, fmt.Sprintf("column %s is gone: it was %s", old.Name, old.Type))
		case is[i].Type != old.Type:
			list = append(list, fmt.Sprintf("column %s has changed from %s to %s", old.Name, old.Type, is[i].Type))
		}
	}
	for _, e := range is {
		if !slices.ContainsFunc(was, func(old Column) bool { return e.Name == old.Name }) {
			list = append(list, fmt.Sprintf("column %s is new: it is %s", e.Name, e.Type))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &ChangedError{table, strings.Join(list, ", ")}
}

// ChangedError says how the columns of a table have changed. Nothing was written.
type ChangedError struct{ Table, Changes string }

func (e *ChangedError) Error() string { return "table " + e.Table + ": " + e.Changes }

// quoted is a text as SQL's standard has it.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// halves are the schema and the name of a table; the schema may be empty.
func halves(table string) (schema, name string) {
	schema, name, qualified := strings.Cut(table, ".")
	if !qualified {
		return "", schema
	}
	return schema, name
}

// MySQL is the catalog of MySQL and MariaDB. Texts are compared by their bytes, and written in
// hexadecimal: whether a backslash escapes depends on the session.
var MySQL = &Catalog{
	fromClause: " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
	place: func(table string) []any {
		schema, name := halves(table)
		if schema == "" {
			return []any{"DATABASE()", mysqlText(name)}
		}
		return []any{mysqlText(schema), mysqlText(name)}
	},
	name: "column_name",
	kind: "CASE WHEN data_type IN ('enum', 'set') THEN column_type ELSE data_type END",
	typ: "CONCAT(column_type, CASE WHEN COALESCE(character_set_name, 'utf8mb4') = 'utf8mb4' THEN '' ELSE CONCAT(' in ', character_set_name) END, " +
		"CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END, " +
		"CASE WHEN " + mysqlDefaulted + " THEN ' with a default' ELSE '' END, CASE WHEN COALESCE(generation_expression, '') <> '' THEN ' generated' ELSE '' END)",
	rest: "0, 0, is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%', " +
		"COALESCE(generation_expression, '') <> '', " + mysqlDefaulted,
	order:   "ordinal_position",
	literal: func(text string) string { return "X'" + hex.EncodeToString([]byte(text)) + "'" },
	text:    "CAST(%s AS BINARY)",
}

const mysqlDefaulted = "(column_default IS NOT NULL AND column_default <> 'NULL' OR extra LIKE '%auto_increment%')"

// mysqlText is a text that is compared as the server compares names. The driver takes a question
// mark for a parameter.
func mysqlText(text string) string {
	if strings.ContainsAny(text, `\?`) {
		return "CONVERT(X'" + hex.EncodeToString([]byte(text)) + "' USING utf8mb4)"
	}
	return quoted(text)
}

// SQLServer is the catalog of SQL Server. An identity and a rowversion (timestamp) take no values.
var SQLServer = &Catalog{
	fromClause: " FROM sys.columns WHERE object_id = OBJECT_ID(%s)",
	place: func(table string) []any {
		parts := strings.Split(table, ".")
		for i, part := range parts {
			parts[i] = "[" + strings.ReplaceAll(part, "]", "]]") + "]"
		}
		return []any{"N" + quoted(strings.Join(parts, "."))}
	},
	name: "name",
	kind: "TYPE_NAME(system_type_id) + CASE WHEN collation_name LIKE '%UTF8' AND TYPE_NAME(system_type_id) IN ('char', 'varchar') THEN ' in UTF-8' ELSE '' END",
	typ: `CONCAT(TYPE_NAME(system_type_id), CASE
			WHEN TYPE_NAME(system_type_id) IN ('varchar', 'nvarchar', 'varbinary') AND max_length = -1 THEN '(max)'
			WHEN TYPE_NAME(system_type_id) IN ('char', 'varchar', 'binary', 'varbinary') THEN CONCAT('(', max_length, ')')
			WHEN TYPE_NAME(system_type_id) IN ('nchar', 'nvarchar') THEN CONCAT('(', max_length / 2, ')')
			WHEN TYPE_NAME(system_type_id) IN ('decimal', 'numeric') THEN CONCAT('(', [precision], ',', scale, ')')
			WHEN TYPE_NAME(system_type_id) IN ('datetime2', 'datetimeoffset', 'time') THEN CONCAT('(', scale, ')')
		END,
		CASE WHEN TYPE_NAME(system_type_id) IN ('char', 'varchar', 'text') THEN CONCAT(' in ', collation_name COLLATE DATABASE_DEFAULT) END,
		CASE WHEN is_nullable = 0 THEN ' not null' END,
		CASE WHEN default_object_id <> 0 THEN ' with a default' END,
		CASE WHEN is_identity = 1 OR is_computed = 1 THEN ' generated' END)`,
	rest: `CAST(max_length AS int), CAST(scale AS int),
		CAST(CASE WHEN is_nullable = 0 AND default_object_id = 0 AND is_identity = 0 AND is_computed = 0 AND TYPE_NAME(system_type_id) <> 'timestamp' THEN 1 ELSE 0 END AS bit),
		CAST(CASE WHEN is_computed = 1 OR is_identity = 1 OR TYPE_NAME(system_type_id) = 'timestamp' THEN 1 ELSE 0 END AS bit),
		CAST(CASE WHEN default_object_id <> 0 THEN 1 ELSE 0 END AS bit)`,
	order:   "column_id",
	literal: func(text string) string { return "N" + quoted(text) },
	text:    "%s",
}

// SQLite is the catalog of SQLite. Hidden 2 and 3 are generated columns. A primary key of one
// INTEGER column has a value by default.
var SQLite = &Catalog{
	fromClause: " FROM pragma_table_xinfo(%s, %s) WHERE 1 = 1",
	place: func(table string) []any {
		schema, name := halves(table)
		if schema == "" {
			schema = "main"
		}
		return []any{quoted(name), quoted(schema)}
	},
	name: "name",
	kind: "upper(type)",
	typ: `CASE type WHEN '' THEN 'a column without a type' ELSE type END || CASE WHEN "notnull" THEN ' not null' ELSE '' END || ` +
		`CASE WHEN dflt_value IS NULL THEN '' ELSE ' with a default' END || CASE WHEN hidden > 1 THEN ' generated' ELSE '' END`,
	rest:    `0, 0, "notnull" AND dflt_value IS NULL AND NOT (pk = 1 AND upper(type) = 'INTEGER'), hidden > 1, coalesce(upper(dflt_value) <> 'NULL', 0)`,
	order:   "cid",
	literal: quoted,
	text:    "%s",
}
