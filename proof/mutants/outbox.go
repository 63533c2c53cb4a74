package mutants

// outboxes are the mutants of the outbox.
var outboxes = []Mutant{
	{Name: "outbox: rows are numbered beyond the highest id that has a number", File: "outbox/statements.go",
		Old: `n IS NULL ORDER BY "+terms.orderNew`, New: `n IS NULL AND id > (SELECT COALESCE(MAX(id), 0) FROM @t WHERE partition_id = {part} AND n IS NOT NULL) ORDER BY "+terms.orderNew`,
		Test: testArgs("TestLateCommit", "./outbox"), Needs: "postgres"},
	{Name: "outbox: rows are numbered without a lock", File: "outbox/dialect.go",
		Old: "<> '' FOR NO KEY UPDATE`", New: "<> ''`",
		Test: testArgs("TestPausedNumbering", "./outbox"), Needs: "postgres"},
	{Name: "outbox: rows are numbered in another order than that of ids", File: "outbox/statements.go",
		Old: `n IS NULL ORDER BY "+terms.orderNew`, New: `n IS NULL ORDER BY -"+terms.orderNew`,
		Test: testArgs("TestSQLiteWriters", "./outbox")},
	{Name: "outbox: a position does not show that the table was set back", File: "outbox/number.go",
		Old: "(known == 0 || here == 0 || known == here)", New: "(known == 0 || here == 0 || known != 0)",
		Test: testArgs("TestSetBack", "./outbox")},
	{Name: "outbox: a missing number between two rows is passed", File: "outbox/reader.go",
		Old: "row.n.Int64 != next {", New: "row.n.Int64 < next {",
		Test: testArgs("TestMissingRow", "./outbox")},
	{Name: "outbox: missing numbers at the end are no loss", File: "outbox/reader.go",
		Old: "case len(events) == 0 && st.head > next:", New: "case false:",
		Test: testArgs("TestMissingRow", "./outbox")},
	{Name: "outbox: rows are deleted after the first group's checkpoint", File: "outbox/delete.go",
		Old: "if i == 0 || passed < before {", New: "if i == 0 {",
		Test: testArgs("TestDeleteAfter", "./outbox")},
	{Name: "outbox: checkpoints of a table that is gone count", File: "outbox/delete.go",
		Old: "c.Partition == strconv.Itoa(p) && c.Incarnation == topic.Incarnation", New: "c.Partition == strconv.Itoa(p)",
		Test: testArgs("TestDeleteAfter", "./outbox")},
}
