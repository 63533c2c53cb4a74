package mutants

// keyed are the mutants of rows written by key: which change of a batch counts.
var keyed = []Mutant{
	{Name: "PostgreSQL: the first change of a key counts", File: "internal/postgres/upsertsql.go",
		Old: `one += from + " AS g ORDER BY " + list + ", g.n DESC"`, New: `one += from + " AS g ORDER BY " + list + ", g.n"`,
		Test: killed("postgres"), Needs: "postgres", Env: fewKills},
	{Name: "PostgreSQL: skip takes the last change after a delete", File: "internal/postgres/upsertsql.go",
		Old: "ORDER BY %s, g.v%d, g.n\"", New: "ORDER BY %s, g.v%d, g.n DESC\"",
		Test: killed("postgres"), Needs: "postgres", Env: fewKills},
	{Name: "PostgreSQL: of two equal versions the earlier counts", File: "internal/postgres/upsertsql.go",
		Old: `row_number() " + window + ", s.n DESC)`, New: `row_number() " + window + ", s.n)`,
		Test: killed("postgres"), Needs: "postgres", Env: fewKills},
	{Name: "PostgreSQL: rows are not looked for where there is a trigger", File: "internal/postgres/upsertsql.go",
		Old: "WHERE tgrelid = c.oid AND NOT tgisinternal)", New: "WHERE tgrelid = c.oid AND tgisinternal)",
		Test: testArgs("TestUpsertMovedRows", "./pgstore"), Needs: "postgres"},
	{Name: "staged: the first change of a key counts", File: "sqlstore/upsert_staged.go",
		Old: `d.quote(u.keys), "s.sluice_row DESC", "0"`, New: `d.quote(u.keys), "s.sluice_row", "0"`,
		Test: killed("mariadb"), Needs: "mariadb", Env: fewKills},
	{Name: "staged: skip takes the last change after a delete", File: "sqlstore/upsert_staged.go",
		Old: "ELSE s.sluice_deletes END, s.sluice_row\"", New: "ELSE s.sluice_deletes END, s.sluice_row DESC\"",
		Test: killed("mariadb"), Needs: "mariadb", Env: fewKills},
	{Name: "staged: of two equal versions the earlier counts", File: "sqlstore/upsert_staged.go",
		Old: `u.versionOrder() + ", s.sluice_row DESC"`, New: `u.versionOrder() + ", s.sluice_row"`,
		Test: killed("mariadb"), Needs: "mariadb", Env: fewKills},
	{Name: "SQLite: of two equal versions the earlier counts", File: "sqlstore/sqlite_upsert.go",
		Old: "NOT deletes ORDER BY v%[2]d, n\"", New: "NOT deletes ORDER BY v%[2]d, n DESC\"",
		Test: killed("sqlite"), Env: fewKills},
	{Name: "SQLite: deletes are written with the inserts before them", File: "sqlstore/sqlite_upsert.go",
		Old: " || u.Deletes(row) != u.Deletes(rows[0]) {", New: " || u.Deletes(rows[0]) && !u.Deletes(row) {",
		Test: killed("sqlite"), Env: fewKills},
}

var fewKills = []string{"SLUICE_CHANGES_KILLS=4"}

// killed is a fold of a log by key, written by processes that are killed.
func killed(database string) []string {
	return testArgs("TestChangesByKeyUnderKills$/^"+database, "./cmd/sluice")
}
