package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The lexical rules are those of
// https://www.postgresql.org/docs/current/sql-syntax-lexical.html

// Ending finds a statement in sql that would end the transaction of a connection, and returns
// its keywords; empty if there is none.
func Ending(conn *pgconn.PgConn, sql string) string {
	return ending(sql, conn.ParameterStatus("standard_conforming_strings") == "off")
}

// EndingIn is [Ending] on a connection with the default standard_conforming_strings.
func EndingIn(sql string) string { return ending(sql, false) }

// ending is [Ending] where a backslash escapes in every string, or in those with an E alone.
func ending(sql string, escapes bool) string {
	for sql != "" {
		first, rest := word(sql)
		second, _ := word(rest)
		switch first {
		case "COMMIT", "END", "ABORT":
			return first
		case "PREPARE":
			if second == "TRANSACTION" {
				return "PREPARE TRANSACTION"
			}
		case "ROLLBACK":
			if second == "WORK" || second == "TRANSACTION" {
				_, after := word(rest)
				second, _ = word(after)
			}
			if second != "TO" { // a savepoint
				return first
			}
		}
		sql = next(rest, escapes)
	}
	return ""
}

// word takes the keyword or name off the front of sql, behind blanks,
// comments and empty statements, and returns it in upper case. It returns
// nothing if something else is there.
func word(sql string) (word, rest string) {
	for sql != "" {
		switch {
		case isBlank(sql[0]) || sql[0] == ';':
			sql = sql[1:]
		case comment(sql) > 0:
			sql = sql[comment(sql):]
		default:
			n := 0
			for n < len(sql) && isName(sql[n]) {
				n++
			}
			return strings.ToUpper(sql[:n]), sql[n:]
		}
	}
	return "", ""
}

// next is what follows the statement that sql is in the middle of.
func next(sql string, escapes bool) string {
	for i := 0; i < len(sql); {
		if sql[i] == ';' {
			return sql[i+1:]
		}
		i += token(sql, i, escapes)
	}
	return ""
}

// token is the length of what begins at sql[i]: a comment, a quoted text, a
// name, or one byte of anything else.
func token(sql string, i int, escapes bool) int {
	s := sql[i:]
	switch c := s[0]; {
	case c == '\'':
		return quoted(s, 1, '\'', escapes)
	case c == '"':
		return quoted(s, 1, '"', false)
	case c == '$':
		return dollarQuoted(s)
	case isName(c):
		if (c == 'e' || c == 'E') && len(s) > 1 && s[1] == '\'' {
			return quoted(s, 2, '\'', true)
		}
		n := 1
		for n < len(s) && (isName(s[n]) || s[n] == '$') {
			n++
		}
		return n
	}
	return max(comment(s), 1)
}

// quoted returns the length of a text in quotes that starts before s[from]. Two
// quotes inside are found as the end of one such text and the start of another.
func quoted(s string, from int, quote byte, escapes bool) int {
	for i := from; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == quote && escapes && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// dollarQuoted is the length of $tag$…$tag$, or 1 if that is not what s
// starts with.
func dollarQuoted(s string) int {
	n := 1
	for n < len(s) && isName(s[n]) {
		n++
	}
	if n == len(s) || s[n] != '$' || n > 1 && isDigit(s[1]) {
		return 1
	}
	tag := s[:n+1]
	end := strings.Index(s[len(tag):], tag)
	if end < 0 {
		return len(s)
	}
	return len(tag) + end + len(tag)
}

// comment is the length of a comment at the start of s, 0 if there is none.
func comment(s string) int {
	switch {
	case strings.HasPrefix(s, "--"):
		if n := strings.IndexAny(s, "\r\n"); n >= 0 {
			return n
		}
		return len(s)
	case strings.HasPrefix(s, "/*"): // they nest
		depth := 1
		for i := 2; i < len(s); i++ {
			switch {
			case strings.HasPrefix(s[i:], "/*"):
				depth++
				i++
			case strings.HasPrefix(s[i:], "*/"):
				depth--
				i++
				if depth == 0 {
					return i + 1
				}
			}
		}
		return len(s)
	}
	return 0
}

func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isName(c byte) bool {
	return c == '_' || isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
