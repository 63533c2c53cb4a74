package pipeline

import (
	"slices"
	"strings"
	"testing"
)

func TestParseStatement(t *testing.T) {
	for _, c := range []struct {
		sql              string
		postgres, sqlite string // the text, or "error: …"
		names            string
	}{
		{"INSERT INTO t VALUES (:a, :b_2, :a)", "INSERT INTO t VALUES ($1, $2, $1)", "INSERT INTO t VALUES (?1, ?2, ?1)", "a b_2"},
		{"SELECT :a::int, now() -- :b\n", "SELECT $1::int, now() -- :b\n", "SELECT ?1::int, now() -- :b\n", "a"},
		{"insert into t values (':a', 'it''s :b', \":c\", :d)", "insert into t values (':a', 'it''s :b', \":c\", $1)", "insert into t values (':a', 'it''s :b', \":c\", ?1)", "d"},
		{"SELECT /* :a /* :b */ */ 1", "SELECT /* :a /* :b */ */ 1", "SELECT /* :a /* :b */ */ 1", ""},
		{"SELECT /* :a */ :größe", "SELECT /* :a */ $1", "SELECT /* :a */ ?1", "größe"},
		{"/* x */ -- y\n update t set a = :a;\n -- end", "/* x */ -- y\n update t set a = $1\n -- end", "/* x */ -- y\n update t set a = ?1\n -- end", "a"},
		{"SELECT E'a\\':b', :c", "SELECT E'a\\':b', $1", `error: "', :c" has no closing '`, "c"},
		{"SELECT $$:a$$, $q$ $$ :b $q$, :c", "SELECT $$:a$$, $q$ $$ :b $q$, $1", `error: "$q$ $$ :b ": write parameters as :name`, "c"},
		{"SELECT a[1:2], b -> 'x', b ? 'y'", "SELECT a[1:2], b -> 'x', b ? 'y'", `error: "? 'y'": write parameters as :name`, ""},
		{"SELECT `a:b`, [c:d], :e", "SELECT `a$1`, [c$2], $3", "SELECT `a:b`, [c:d], ?1", ""},
		{"SELECT 'a", `error: "'a" has no closing '`, `error: "'a" has no closing '`, ""},
		{"SELECT /* a", "error: a comment is not closed", "error: a comment is not closed", ""},
		{"SELECT $a$ x", "error: a string that begins with $a$ is not closed", `error: "$a$ x": write parameters as :name`, ""},
		{"SELECT 1; SELECT 2", "error: more than one statement: write one", "error: more than one statement: write one", ""},
		{"SELECT $1", `error: "$1": write parameters as :name`, "SELECT $1", ""},
		{"SELECT @a", "SELECT @a", `error: "@a": write parameters as :name`, ""},
		{"SELECT ?", "SELECT ?", `error: "?": write parameters as :name`, ""},
		{"COMMIT", "COMMIT", "COMMIT", ""},
		{"", "", "", ""},
	} {
		for _, d := range []*dialect{&postgresDialect, &sqliteDialect} {
			want := c.postgres
			if d == &sqliteDialect {
				want = c.sqlite
			}
			if c.sql == "COMMIT" || c.sql == "" {
				want = `error: begins with "` + strings.ToLower(c.sql) + `": write one of insert, update, delete, merge, replace, with, select, which leave the transaction open`
			}
			s, err := parseStatement(c.sql, d)
			got := s.text
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != want {
				t.Errorf("%s (%s):\ngot  %s\nwant %s", c.sql, d.engine, got, want)
			}
			if err == nil && c.names != "" && strings.Join(s.names, " ") != c.names {
				t.Errorf("%s: parameters %v", c.sql, s.names)
			}
		}
	}
}

// TestParseMySQLStatement: MySQL's texts have backslashes, and its parameters no numbers.
func TestParseMySQLStatement(t *testing.T) {
	for _, c := range []struct{ sql, want, names string }{
		{"INSERT INTO t VALUES (:a, :b_2, :a)", "INSERT INTO t VALUES (?, ?, ?)", "a b_2 a"},
		{"REPLACE INTO `a:b` VALUES (':a', 'it''s :b', \":c\", 'd\\':e', \"\\\":f\", :g);", "REPLACE INTO `a:b` VALUES (':a', 'it''s :b', \":c\", 'd\\':e', \"\\\":f\", ?)", "g"},
		{"SELECT 5--:a, 1 -- :b\n, 2 # :c\n, 3 --", "SELECT 5--?, 1 -- :b\n, 2 # :c\n, 3 --", "a"},
		{"SELECT /* :a /* :b */ :c", "SELECT /* :a /* :b */ ?", "c"},
		{"UPDATE t SET n = (@n := @n + :a) WHERE $$ = 1", "UPDATE t SET n = (@n := @n + ?) WHERE $$ = 1", "a"},
		{"SELECT 1 /*! , :a */", `error: "/*! , :a *": MySQL executes such a comment: write its text without it`, ""},
		{"SELECT 1 /*M! , :a */", `error: "/*M! , :a ": MySQL executes such a comment: write its text without it`, ""},
		{"SELECT ?", `error: "?": write parameters as :name`, ""},
		{"SELECT 'a\\'", `error: "'a\\'" has no closing '`, ""},
		{"CALL work(:a)", `error: begins with "call": write one of insert, update, delete, merge, replace, with, select, which leave the transaction open`, ""},
	} {
		s, err := parseStatement(c.sql, &mysqlDialect)
		got := s.text
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want || strings.Join(s.names, " ") != c.names {
			t.Errorf("%s:\ngot  %s with %v\nwant %s with %s", c.sql, got, s.names, c.want, c.names)
		}
	}
}

// TestParseSQLServerStatement: a batch may have several statements and variables.
func TestParseSQLServerStatement(t *testing.T) {
	for _, c := range []struct{ sql, want, names string }{
		{"UPDATE t SET n = :n WHERE [a:b]]c] = :a; IF @@ROWCOUNT = 0 INSERT INTO t VALUES (:a, :n);", "UPDATE t SET n = @p1 WHERE [a:b]]c] = @p2; IF @@ROWCOUNT = 0 INSERT INTO t VALUES (@p2, @p1);", "n a"},
		{"SELECT /* /* :a */ :b */ N'it''s :c', \":d\", @q, :e -- :f", "SELECT /* /* :a */ :b */ N'it''s :c', \":d\", @q, @p1 -- :f", "e"},
		{"SELECT @p1", `error: "@p1": write parameters as :name`, ""},
		{"SELECT @P12", `error: "@P12": write parameters as :name`, ""},
		{"EXEC work :a", `error: begins with "exec": write one of insert, update, delete, merge, replace, with, select, which leave the transaction open`, ""},
	} {
		s, err := parseStatement(c.sql, &sqlServerDialect)
		got := s.text
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want || strings.Join(s.names, " ") != c.names {
			t.Errorf("%s:\ngot  %s with %v\nwant %s with %s", c.sql, got, s.names, c.want, c.names)
		}
	}
}

func FuzzParseStatement(f *testing.F) {
	f.Add("INSERT INTO t VALUES (:a, 'x''y', \"z\", $$ :b $$) ON CONFLICT /* :c */ DO NOTHING; -- d")
	f.Add("select E'\\'' :a::b [c:d] `e`")
	f.Fuzz(func(t *testing.T, sql string) {
		for _, d := range []*dialect{&postgresDialect, &sqliteDialect, &mysqlDialect, &sqlServerDialect} {
			s, err := parseStatement(sql, d)
			if err != nil {
				continue
			}
			if got := len(slices.Compact(slices.Sorted(slices.Values(s.names)))); got != len(s.names) && !d.unnumbered {
				t.Fatalf("%q: a parameter has two numbers: %v", sql, s.names)
			}
			// What was cut out are parameters and semicolons, nothing else.
			if len(s.names) == 0 && s.text != sql && strings.Count(sql, ";") == 0 {
				t.Fatalf("%q became %q", sql, s.text)
			}
		}
	})
}
