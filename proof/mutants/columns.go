package mutants

// columns are the mutants of what a column stores of a value.
var columns = []Mutant{
	{Name: "column: a copy does not check that the types are the same", File: "internal/postgres/columns.go",
		Old: "`SELECT CASE WHEN types = `", New: "`SELECT CASE WHEN types <> '' OR types = `",
		Test: testArgs("TestPostgresColumnChanges", "./pipeline"), Needs: "postgres"},
	{Name: "column: a handler's CopyFrom sends the bytes of the types that pgx knows", File: "pgstore/tx.go",
		Old: "	return s.CopyText(ctx, &postgres.Copy{", New: "	if ctx != nil {\n		return s.Tx.CopyFrom(ctx, table, columns, src)\n	}\n	return s.CopyText(ctx, &postgres.Copy{",
		Test: testArgs("TestChangedColumn", "./pgstore"), Needs: "postgres"},
	{Name: "column: a type that is not listed takes everything", File: "pipeline/table.go",
		Old: "asks.casts(ctx, of, samples[t])", New: "asks.casts(ctx, of, nil)",
		Test: testArgs("TestPostgres$/^Target", "./pipeline"), Needs: "postgres"},
	{Name: "column: a backslash is copied as it is", File: "internal/postgres/copytext.go",
		Old: "|(backslash-ones)&^backslash)&highs", New: "|(backslash-ones)&^backslash&0)&highs",
		Test: testArgs("TestCopyTexts", "./internal/postgres"), Needs: "postgres"},
	{Name: "column: a number is the label of an enum", File: "pipeline/guards.go",
		Old: "slices.Contains(labels, strings.TrimRight(s, \" \"))", New: "slices.Contains(append(labels, s), s)",
		Test: testArgs("TestGuards", "./pipeline")},
	{Name: "column: a commit does not compare the columns with those of the write", File: "sqlstore/columns.go",
		Old: "list.WriteString(\" AND \" + d.catalog().Same(p.table, p.columns, p.names))", New: "_ = d.catalog().Same(p.table, p.columns, p.names)",
		Test: testArgs("TestSQLiteAlterations", "./pipeline")},
	{Name: "column: what a table's columns were is believed for ever", File: "sqlstore/columns.go",
		Old: "known != nil && !known.doubtful {", New: "known != nil {",
		Test: testArgs("TestSQLiteAlterations", "./pipeline")},
	{Name: "column: a change is no error of its own", File: "sqlstore/columns.go",
		Old: "return now, true, k.report(table, known.columns, now)", New: "return now, true, nil",
		Test: testArgs("TestColumnsAfterAFailure", "./sqlstore")},
}
