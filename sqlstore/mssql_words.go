package sqlstore

import (
	"database/sql/driver"
	"strings"
)

// ends reports whether a batch has a statement that ends the transaction, or begins another inside
// it. These words are reserved: names that are alike stand in brackets or quotes. Intact finds what
// procedures and dynamic SQL contain.
func (mssqlDialect) ends(_ driver.Conn, query string) bool {
	words := mssqlWords(query)
	for i, word := range words {
		next := func(n int) string {
			if i+n < len(words) {
				return words[i+n]
			}
			return ""
		}
		transaction := next(1) == "TRAN" || next(1) == "TRANSACTION"
		switch word {
		case "COMMIT":
			return true
		case "ROLLBACK":
			// With a name it is back to a savepoint.
			if !transaction || !mssqlSavepoint(next(2)) {
				return true
			}
		case "BEGIN":
			if transaction || next(1) == "DISTRIBUTED" {
				return true
			}
		}
	}
	return false
}

// mssqlSavepoint reports whether what follows ROLLBACK TRANSACTION is a name, and not the end or
// the next statement.
func mssqlSavepoint(word string) bool {
	switch word {
	case "", ";", "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "BEGIN", "END", "COMMIT", "ROLLBACK", "SAVE", "EXEC", "EXECUTE",
		"IF", "ELSE", "WHILE", "RETURN", "THROW", "RAISERROR", "PRINT", "SET", "DECLARE", "WITH", "GOTO":
		return false
	}
	return true
}

// mssqlWords returns the words of T-SQL in upper case, and each semicolon and name in brackets or
// quotes as one, without comments and texts.
func mssqlWords(query string) []string {
	var words []string
	for i := 0; i < len(query); {
		rest := query[i:]
		switch c := query[i]; {
		case strings.HasPrefix(rest, "--"):
			i += mssqlUntilEnd(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			i += mssqlComment(rest)
		case c == '\'':
			i += mssqlQuoted(rest, '\'')
		case c == '"':
			i += mssqlQuoted(rest, '"')
			words = append(words, "[]")
		case c == '[':
			i += mssqlQuoted(rest, ']')
			words = append(words, "[]")
		case c == ';':
			i++
			words = append(words, ";")
		case mssqlInWord(c):
			n := 1
			for n < len(rest) && mssqlInWord(rest[n]) {
				n++
			}
			i += n
			words = append(words, strings.ToUpper(rest[:n]))
		default:
			i++
		}
	}
	return words
}

// mssqlInWord reports whether a byte is part of a word: also of @name, #name, and letters beyond
// ASCII.
func mssqlInWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_@#$", c) >= 0 || c >= 0x80
}

// mssqlUntilEnd returns the length of a text up to and with its end, or of all of it.
func mssqlUntilEnd(text, end string) int {
	if i := strings.Index(text, end); i >= 0 {
		return i + len(end)
	}
	return len(text)
}

// mssqlQuoted returns the length of a quoted text, in which the closing quote is doubled.
func mssqlQuoted(text string, closing byte) int {
	for i := 1; i < len(text); i++ {
		if text[i] != closing {
			continue
		}
		if i+1 < len(text) && text[i+1] == closing {
			i++
			continue
		}
		return i + 1
	}
	return len(text)
}

// mssqlComment returns the length of a comment; comments nest.
func mssqlComment(text string) int {
	depth := 0
	for i := 0; i < len(text)-1; i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}
