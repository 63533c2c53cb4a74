package postgres

import (
	"strings"
	"testing"
)

func TestEnding(t *testing.T) {
	for sql, want := range map[string]string{
		"":                                    "",
		"SELECT 1":                            "",
		"commit":                              "COMMIT",
		"  \n Commit;":                        "COMMIT",
		"COMMIT AND CHAIN":                    "COMMIT",
		"end":                                 "END",
		"ABORT WORK":                          "ABORT",
		"ROLLBACK":                            "ROLLBACK",
		"rollback work;":                      "ROLLBACK",
		"ROLLBACK TO sp_1":                    "",
		"rollback transaction to savepoint a": "",
		"ROLLBACK /* TO a */":                 "ROLLBACK",
		"PREPARE TRANSACTION 'x'":             "PREPARE TRANSACTION",
		"PREPARE find AS SELECT 1":            "",
		"SELECT 1; COMMIT":                    "COMMIT",
		"SELECT 1;;\t; /* a */ -- b\n commit": "COMMIT",
		"-- commit":                           "",
		"-- a\rcommit":                        "COMMIT",
		"/* /* */ ; commit */ SELECT 1":       "",
		"/* unclosed ; commit":                "",
		"SELECT '; commit'":                   "",
		"SELECT 'it''s; commit'; end":         "END",
		`SELECT 'back\'; commit`:              "COMMIT", // no escape in a standard string
		`SELECT E'back\'; commit'`:            "",
		`SELECT E'two'' \\'; commit`:          "COMMIT",
		`SELECT "; commit"`:                   "",
		"DO $$ BEGIN PERFORM 1; END $$":       "",
		"DO $do$ a; $$; commit; $do$; END":    "END",
		"SELECT $1; commit":                   "COMMIT",
		"SELECT a$b$; commit":                 "COMMIT", // a dollar within a name
		"INSERT INTO commit VALUES (1)":       "",
		"SELECT committed; SELECT ended":      "",
		"committed":                           "",
		"(SELECT 1); commit":                  "COMMIT",
		"UPDATE t SET a = e'; commit'":        "",
	} {
		if got := ending(sql, false); got != want {
			t.Errorf("Ending(%q) = %q, want %q", sql, got, want)
		}
	}
}

// With standard_conforming_strings = off a backslash escapes in every string.
func TestEndingWithEscapes(t *testing.T) {
	for sql, want := range map[string]string{
		`SELECT 'a\''; COMMIT; SELECT ''`: "COMMIT",
		`SELECT 'back\'; commit'`:         "",
		`SELECT "back\"; commit`:          "COMMIT",
	} {
		if got := ending(sql, true); got != want {
			t.Errorf("ending(%q) = %q, want %q", sql, got, want)
		}
	}
}

// Whatever surrounds a COMMIT that stands by itself, it is found.
func FuzzEnding(f *testing.F) {
	f.Add("SELECT 1", "SELECT 2")
	f.Add("SELECT E'\\'' $$ /* -- ", "$$ ' \"")
	f.Fuzz(func(t *testing.T, before, after string) {
		ending(before+after, false) // comes to an end, without a panic
		if strings.ContainsAny(before, `'"$/-`) || ending(before, false) != "" {
			return
		}
		if ending(before+";commit;"+after, false) == "" {
			t.Errorf("the COMMIT between %q and %q was not found", before, after)
		}
	})
}
