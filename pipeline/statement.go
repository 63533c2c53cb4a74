package pipeline

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/humanize"
)

// statement is an SQL statement whose named parameters were replaced by numbered
// ones.
type statement struct {
	text  string
	names []string // of the parameters, in the order of their numbers, or of their uses if they have none
}

// statementTarget is an SQL statement that is executed for each event.
type statementTarget struct {
	rowTarget
	statement  statement
	identities *identityQuery // nil: none
}

// readStatement reads target.statement.
func readStatement(n strictyaml.Node, rows rowTarget) *statementTarget {
	t := &statementTarget{rowTarget: rows}
	var sql string
	var sqlNode strictyaml.Node
	var declared []column
	ok := n.Object(strictyaml.Keys{
		"sql": func(n strictyaml.Node) {
			sqlNode = n
			n.Verbatim(&sql)
		},
		"parameters": func(n strictyaml.Node) { declared = readColumns(n) },
		"audit":      func(n strictyaml.Node) { t.identities = readIdentityQuery(n, t.dialect) },
	}, "sql")
	if !ok {
		return t
	}
	s, err := parseStatement(sql, t.dialect)
	if err != nil {
		sqlNode.Fail("%w", err)
		return t
	}
	columns := make([]column, 0, len(s.names))
	for at, name := range s.names {
		i := slices.IndexFunc(declared, func(c column) bool { return c.name == name })
		if i < 0 {
			if slices.Index(s.names, name) == at {
				sqlNode.Fail(":%s is not among the parameters%s", name, nearestOf(name, declared))
			}
			continue
		}
		columns = append(columns, declared[i])
	}
	for _, c := range declared {
		if !slices.Contains(s.names, c.name) {
			c.node.Fail("the statement does not use :%s", c.name)
		}
	}
	t.statement, t.mapping = s, newMapping("parameter", columns)
	return t
}

// nearestOf returns the end of a message that suggests the parameter most similar to name.
func nearestOf(name string, declared []column) string {
	if near := humanize.Nearest(name, columnNames(declared)); near != "" {
		return fmt.Sprintf(", did you mean :%s?", near)
	}
	return ""
}

func (*statementTarget) kind() string { return "statement" }

func (t *statementTarget) outlet(ctx context.Context, parts *Parts, _ telemetry) (outlet, error) {
	return nil, t.check(ctx, parts.catalog)
}

// check also notes what guards the parameters.
func (t *statementTarget) check(ctx context.Context, c catalog) error {
	kinds, err := c.parameters(ctx, t.statement.text, len(t.statement.names))
	if err != nil {
		return fmt.Errorf("prepare the statement: %w", err)
	}
	var wrong problems
	list := make(guards, len(t.mapping.columns))
	for i, kind := range kinds {
		p := t.mapping.columns[i]
		if why := t.dialect.fits(ctx, c, p.typ, kind); why != nil {
			wrong.addf("parameter %s is %s in the statement, which can't hold the mapping's %s%s: change the type, or write a cast such as :%s::%s",
				p.name, kind.kind, p.typ, why, p.name, t.dialect.declare[p.typ])
		}
		list[i] = t.dialect.guard(p.typ, kind)
	}
	t.guards = list
	return wrong.err()
}

// allowedVerbs are the first words that a statement may have. They change rows and
// leave the transaction open.
var allowedVerbs = []string{"insert", "update", "delete", "merge", "replace", "with", "select"}

// parseStatement finds the parameters (:name) of one SQL statement, outside of
// strings, quoted names and comments. A double colon is a cast.
func parseStatement(sql string, d *dialect) (statement, error) {
	s := sqlScanner{rest: sql, dialect: d}
	if err := s.run(); err != nil {
		return statement{}, err
	}
	if !slices.Contains(allowedVerbs, s.verb) {
		return statement{}, fmt.Errorf("begins with %q: write one of %s, which leave the transaction open", s.verb, strings.Join(allowedVerbs, ", "))
	}
	return statement{s.out.String(), s.names}, nil
}

type sqlScanner struct {
	rest    string
	dialect *dialect
	out     strings.Builder
	names   []string
	verb    string // the first word, in lower case
	ended   bool   // a semicolon was read
}

func (s *sqlScanner) run() error {
	for s.rest != "" {
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// next reads one token, or one byte of no relevance.
func (s *sqlScanner) next() error {
	c := s.rest[0]
	if strings.IndexByte(" \t\r\n", c) >= 0 {
		s.take(1)
		return nil
	}
	if s.dialect.engine == mysql && (strings.HasPrefix(s.rest, "/*!") || strings.HasPrefix(s.rest, "/*M!")) {
		return fmt.Errorf("%.10q: MySQL executes such a comment: write its text without it", s.rest)
	}
	if n := s.comment(); n > 0 {
		s.take(n)
		return nil
	} else if n < 0 {
		return errors.New("a comment is not closed")
	}
	if s.ended {
		return errors.New("more than one statement: write one")
	}
	word := wordLen(s.rest)
	switch {
	case c == ';' && s.dialect.engine == sqlServer: // a MERGE must end in one
		s.take(1)
		return nil
	case c == ';':
		// Dropped, because not every driver accepts it.
		s.rest, s.ended = s.rest[1:], true
		return nil
	case word > 0:
		return s.word(word)
	case c == '\'' || c == '"':
		return s.quoted(c, s.dialect.engine == mysql)
	case c == '`' && (s.dialect.engine == sqlite || s.dialect.engine == mysql):
		return s.quoted(c, false)
	case c == '[' && (s.dialect.engine == sqlite || s.dialect.engine == sqlServer):
		return s.quoted(']', false)
	case c == '$' && s.dialect.engine == postgres && s.dollarTag() != "":
		tag := s.dollarTag()
		end := strings.Index(s.rest[len(tag):], tag)
		if end < 0 {
			return fmt.Errorf("a string that begins with %s is not closed", tag)
		}
		s.take(len(tag) + end + len(tag))
		return nil
	case strings.HasPrefix(s.rest, "::") || strings.HasPrefix(s.rest, ":="):
		s.take(2)
		return nil
	case c == ':' && wordLen(s.rest[1:]) > 0:
		s.parameter(s.rest[1 : 1+wordLen(s.rest[1:])])
		return nil
	case placeholder(s.rest, s.dialect):
		return fmt.Errorf("%.10q: write parameters as :name", s.rest)
	}
	s.take(1)
	return nil
}

func (s *sqlScanner) take(n int) {
	s.out.WriteString(s.rest[:n])
	s.rest = s.rest[n:]
}

// word reads a keyword or name, or PostgreSQL's prefix E of a string with backslash
// escapes.
func (s *sqlScanner) word(n int) error {
	if s.verb == "" {
		s.verb = strings.ToLower(s.rest[:n])
	}
	escapes := n == 1 && (s.rest[0] == 'E' || s.rest[0] == 'e') && strings.HasPrefix(s.rest[1:], "'") && s.dialect.engine == postgres
	s.take(n)
	if escapes {
		return s.quoted('\'', true)
	}
	return nil
}

// quoted reads a string or a quoted name. A quote inside it is written twice.
func (s *sqlScanner) quoted(quote byte, escapes bool) error {
	for i := 1; i < len(s.rest); i++ {
		switch {
		case escapes && s.rest[i] == '\\':
			i++
		case s.rest[i] != quote:
		case i+1 < len(s.rest) && s.rest[i+1] == quote:
			i++
		default:
			s.take(i + 1)
			return nil
		}
	}
	return fmt.Errorf("%.20q has no closing %c", s.rest, quote)
}

// comment returns the length of a comment here, 0 if there is none, and -1 if it is
// not closed. Comments of PostgreSQL and SQL Server can be nested.
func (s *sqlScanner) comment() int {
	if s.lineComment() {
		if n := strings.IndexByte(s.rest, '\n'); n >= 0 {
			return n + 1
		}
		return len(s.rest)
	}
	if !strings.HasPrefix(s.rest, "/*") {
		return 0
	}
	depth := 1
	for i := 2; i+1 < len(s.rest); i++ {
		switch s.rest[i : i+2] {
		case "/*":
			if s.dialect.engine == postgres || s.dialect.engine == sqlServer {
				depth++
				i++
			}
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// lineComment reports whether a comment up to the end of the line begins here. In MySQL a blank or the
// end follows the hyphens.
func (s *sqlScanner) lineComment() bool {
	if s.dialect.engine != mysql {
		return strings.HasPrefix(s.rest, "--")
	}
	after, ok := strings.CutPrefix(s.rest, "--")
	return s.rest[0] == '#' || ok && (after == "" || after[0] <= ' ')
}

// dollarTag returns the $tag$ that begins a string of PostgreSQL here.
func (s *sqlScanner) dollarTag() string {
	n := 1 + wordLen(s.rest[1:])
	if n < len(s.rest) && s.rest[n] == '$' {
		return s.rest[:n+1]
	}
	return ""
}

func (s *sqlScanner) parameter(name string) {
	number := slices.Index(s.names, name)
	if number < 0 || s.dialect.unnumbered {
		number = len(s.names)
		s.names = append(s.names, name)
	}
	s.out.WriteString(s.dialect.parameter)
	if !s.dialect.unnumbered {
		s.out.WriteString(strconv.Itoa(number + 1))
	}
	s.rest = s.rest[1+len(name):]
}

// placeholder reports whether a parameter in the database's own notation begins
// here. It would be bound to the named parameter with its number.
func placeholder(text string, d *dialect) bool {
	switch {
	case d.engine == postgres:
		return len(text) > 1 && text[0] == '$' && text[1] >= '0' && text[1] <= '9'
	case d.engine == sqlServer: // other names are those of variables
		return numbered.MatchString(text)
	case text[0] == '?':
		return true
	}
	return d.engine == sqlite && (text[0] == '@' || text[0] == '$') && wordLen(text[1:]) > 0
}

// numbered is a parameter of SQL Server's driver.
var numbered = regexp.MustCompile(`^(?i)@p\d`)

// wordLen returns the length of the name or keyword at the start of text.
func wordLen(text string) int {
	if text == "" || text[0] >= '0' && text[0] <= '9' {
		return 0
	}
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	return n
}

func isWordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}
