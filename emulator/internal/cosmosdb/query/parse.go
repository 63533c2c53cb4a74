package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	maxNesting = 100 // of expressions
	maxPath    = 128 // names; documents nest no deeper
	maxCount   = 1 << 31
)

// parser reads a query by recursive descent.
type parser struct {
	tokens     []token
	index      int
	depth      int
	parameters map[string]Value
	query      *Query
	text       string
	aggregates bool // aggregates are allowed here
}

// Parse parses a query. Parameters are JSON values by name, @ included. The text
// of an error is meant for the client's user.
func Parse(text string, parameters map[string]json.RawMessage) (*Query, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, parameters: make(map[string]Value, len(parameters)), query: &Query{Top: -1, Limit: -1}, text: text}
	for name, raw := range parameters {
		p.parameters[name] = valueOf(raw)
	}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return p.query, nil
}

func (p *parser) parse() error {
	q := p.query
	if !p.takeKeyword("SELECT") {
		return p.fail()
	}
	if p.takeKeyword("DISTINCT") {
		return errors.New("the emulator's queries have no DISTINCT")
	}
	if p.takeKeyword("TOP") {
		n, err := p.count()
		if err != nil {
			return err
		}
		q.Top = n
	}
	// FROM, which names the alias, comes after the columns, which use it.
	if err := p.findAlias(); err != nil {
		return err
	}
	p.aggregates = true
	if err := p.columns(); err != nil {
		return err
	}
	p.aggregates = false
	begin := p.index
	if p.takeKeyword("FROM") {
		if _, err := p.parseFrom(); err != nil {
			return err
		}
	}
	q.fromText = p.textFrom(begin)
	if p.takeKeyword("WHERE") {
		begin, err := p.index, error(nil)
		if q.where, err = p.or(); err != nil {
			return err
		}
		q.whereText = p.textFrom(begin)
	}
	if p.takeKeyword("ORDER") {
		if err := p.orderBy(); err != nil {
			return err
		}
	}
	if p.takeKeyword("OFFSET") {
		var err error
		if q.Offset, err = p.count(); err != nil {
			return err
		}
		if !p.takeKeyword("LIMIT") {
			return p.fail()
		}
		if q.Limit, err = p.count(); err != nil {
			return err
		}
	}
	for word, name := range map[string]string{"JOIN": "JOIN", "GROUP": "GROUP BY", "IN": "IN after FROM"} {
		if p.isKeyword(word) {
			return fmt.Errorf("the emulator's queries have no %s", name)
		}
	}
	if p.tokens[p.index].kind != tokenEnd {
		return p.fail()
	}
	return nil
}

// findAlias looks ahead for FROM, which is outside of brackets, and the alias of documents
// in it.
func (p *parser) findAlias() error {
	p.query.alias = "root"
	ahead := *p
	depth := 0
	for ; ahead.tokens[ahead.index].kind != tokenEnd; ahead.index++ {
		before := ahead.tokens[ahead.index-1]
		switch t := ahead.tokens[ahead.index]; {
		case t.kind == tokenMark && strings.Contains("([{", t.text):
			depth++
		case t.kind == tokenMark && strings.Contains(")]}", t.text):
			depth--
		case depth == 0 && (before.kind != tokenMark || before.text != ".") && ahead.takeKeyword("FROM"):
			var err error
			p.query.alias, err = ahead.parseFrom()
			return err
		}
	}
	return nil
}

// parseFrom parses what follows FROM, and returns the alias of documents.
func (p *parser) parseFrom() (alias string, err error) {
	if alias, err = p.name(); err != nil {
		return "", err
	}
	if p.takeKeyword("AS") || p.isName() {
		return p.name()
	}
	return alias, nil
}

// isName reports whether the next token is a name; name reads it.
func (p *parser) isName() bool {
	t := p.tokens[p.index]
	return t.kind == tokenName && !reserved[strings.ToUpper(t.text)]
}

func (p *parser) name() (string, error) {
	if !p.isName() {
		return "", p.fail()
	}
	p.index++
	return p.tokens[p.index-1].text, nil
}

var reserved = map[string]bool{
	"WHERE": true, "ORDER": true, "GROUP": true, "JOIN": true, "OFFSET": true, "LIMIT": true, "FROM": true, "AS": true, "IN": true, "AND": true, "OR": true, "NOT": true,
	"BETWEEN": true, "ASC": true, "DESC": true,
}

func (p *parser) columns() error {
	q := p.query
	if p.takeMark("*") {
		return nil
	}
	if q.value = p.takeKeyword("VALUE"); q.value {
		begin := p.index
		e, err := p.or()
		q.items = []item{{expr: e, text: p.textFrom(begin)}}
		return err
	}
	for {
		begin := p.index
		e, err := p.or()
		if err != nil {
			return err
		}
		it := item{name: fmt.Sprintf("$%d", len(q.items)+1), expr: e, text: p.textFrom(begin)}
		if path, ok := e.(path); ok {
			it.name = q.alias
			if len(path) > 0 {
				it.name = path[len(path)-1]
			}
		}
		if p.takeKeyword("AS") || p.isName() {
			if it.name, err = p.name(); err != nil {
				return err
			}
		}
		if q.items = append(q.items, it); !p.takeMark(",") {
			return nil
		}
	}
}

func (p *parser) orderBy() error {
	if !p.takeKeyword("BY") {
		return p.fail()
	}
	for {
		begin := p.index
		e, err := p.primary()
		if err != nil {
			return err
		}
		if _, ok := e.(path); !ok {
			return errors.New("ORDER BY needs paths")
		}
		k := sortKey{expr: e, text: p.textFrom(begin)}
		if !p.takeKeyword("ASC") {
			k.desc = p.takeKeyword("DESC")
		}
		if p.query.order = append(p.query.order, k); !p.takeMark(",") {
			return nil
		}
	}
}

// count parses a number of documents, a literal or a parameter.
func (p *parser) count() (int, error) {
	e, err := p.primary()
	if err != nil {
		return 0, err
	}
	v, ok := e.(Value)
	if !ok || v.kind != kindNumber || v.number < 0 || v.number > maxCount || v.number != float64(int(v.number)) {
		return 0, errors.New("TOP, OFFSET and LIMIT need numbers of documents")
	}
	return int(v.number), nil
}

// or parses an expression; OR binds least.
func (p *parser) or() (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("the query is nested more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	return p.chain("OR", func() (expr, error) { return p.chain("AND", p.not, func(l []expr) expr { return conjunction(l) }) }, func(l []expr) expr { return disjunction(l) })
}

// chain parses operands with an operator between them.
func (p *parser) chain(operator string, operand func() (expr, error), join func([]expr) expr) (expr, error) {
	var list []expr
	for {
		e, err := operand()
		if err != nil {
			return nil, err
		}
		if list = append(list, e); !p.takeKeyword(operator) {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return join(list), nil
}

func (p *parser) not() (expr, error) {
	negated := false
	for p.takeKeyword("NOT") {
		negated = !negated
	}
	e, err := p.comparison()
	if err != nil || !negated {
		return e, err
	}
	return negation{e}, nil
}

func (p *parser) comparison() (expr, error) {
	left, err := p.primary()
	if err != nil {
		return nil, err
	}
	negated := false
	if p.isKeyword("NOT") {
		p.index++
		negated = true
	}
	var e expr
	switch t := p.tokens[p.index]; {
	case p.takeKeyword("IN"):
		e, err = p.parseIn(left)
	case p.takeKeyword("BETWEEN"):
		e, err = p.parseBetween(left)
	case negated:
		return nil, p.fail()
	case t.kind == tokenMark && strings.Contains(" = != <> < <= > >= ", " "+t.text+" "):
		p.index++
		right, err := p.primary()
		return comparison{t.text, left, right}, err
	default:
		return left, nil
	}
	if err == nil && negated {
		e = negation{e}
	}
	return e, err
}

func (p *parser) parseIn(left expr) (expr, error) {
	if !p.takeMark("(") {
		return nil, p.fail()
	}
	list, err := p.list(")")
	if err != nil || len(list) == 0 {
		return nil, p.failOr(err)
	}
	return membership{left, list}, nil
}

func (p *parser) parseBetween(left expr) (expr, error) {
	low, err := p.primary()
	if err != nil || !p.takeKeyword("AND") {
		return nil, p.failOr(err)
	}
	high, err := p.primary()
	return conjunction{comparison{">=", left, low}, comparison{"<=", left, high}}, err
}

// list parses expressions separated by commas, and the closing token.
func (p *parser) list(closing string) ([]expr, error) {
	var list []expr
	if p.takeMark(closing) {
		return nil, nil
	}
	for {
		e, err := p.or()
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if p.takeMark(closing) {
			return list, nil
		}
		if !p.takeMark(",") {
			return nil, p.fail()
		}
	}
}

func (p *parser) primary() (expr, error) {
	t := p.tokens[p.index]
	p.index++
	switch {
	case t.kind == tokenNumber:
		return p.number(t.text)
	case t.kind == tokenString:
		return Value{kind: kindString, text: t.text}, nil
	case t.kind == tokenParameter:
		if v, ok := p.parameters[t.text]; ok {
			return v, nil
		}
		return nil, fmt.Errorf("the query's parameter %.40s is missing", t.text)
	case t.kind == tokenMark && t.text == "-" && p.tokens[p.index].kind == tokenNumber:
		p.index++
		return p.number("-" + p.tokens[p.index-1].text)
	case t.kind == tokenMark && t.text == "(":
		e, err := p.or()
		if err == nil && !p.takeMark(")") {
			err = p.fail()
		}
		return e, err
	case t.kind == tokenMark && t.text == "[":
		list, err := p.list("]")
		return arrayOf(list), err
	case t.kind == tokenMark && t.text == "{":
		return p.object()
	case t.kind == tokenName:
		return p.named(t)
	}
	p.index--
	return nil, p.fail()
}

func (p *parser) number(text string) (expr, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is too large", text)
	}
	return Value{kind: kindNumber, number: f}, nil
}

func (p *parser) object() (expr, error) {
	var o objectOf
	if p.takeMark("}") {
		return o, nil
	}
	for {
		t := p.tokens[p.index]
		if t.kind != tokenString && t.kind != tokenName {
			return nil, p.fail()
		}
		p.index++
		if !p.takeMark(":") {
			return nil, p.fail()
		}
		e, err := p.or()
		if err != nil {
			return nil, err
		}
		o = append(o, item{name: t.text, expr: e})
		if p.takeMark("}") {
			return o, nil
		}
		if !p.takeMark(",") {
			return nil, p.fail()
		}
	}
}

// named parses what begins with a name: a constant, a function, or a path.
func (p *parser) named(t token) (expr, error) {
	switch strings.ToLower(t.text) {
	case "true", "false":
		return Value{kind: kindBool, truth: strings.EqualFold(t.text, "true")}, nil
	case "null":
		return Value{kind: kindNull}, nil
	case "undefined":
		return Value{}, nil
	}
	if p.takeMark("(") {
		return p.function(strings.ToUpper(t.text))
	}
	if t.text != p.query.alias && !strings.EqualFold(t.text, "root") {
		p.index--
		return nil, fmt.Errorf("identifier %.40q could not be resolved", t.text)
	}
	e := path{}
	for {
		switch {
		case p.takeMark("."):
			if p.tokens[p.index].kind != tokenName {
				return nil, p.fail()
			}
			e = append(e, p.tokens[p.index].text)
			p.index++
		case p.takeMark("["):
			if p.tokens[p.index].kind != tokenString {
				return nil, p.fail()
			}
			e = append(e, p.tokens[p.index].text)
			if p.index++; !p.takeMark("]") {
				return nil, p.fail()
			}
		default:
			return e, nil
		}
		if len(e) > maxPath {
			return nil, fmt.Errorf("a path is longer than %d names", maxPath)
		}
	}
}

func (p *parser) function(name string) (expr, error) {
	begin := p.index - 1 // the bracket
	within := p.aggregates
	kind, isAggregate := aggregateKinds[name]
	if isAggregate {
		if !within {
			return nil, fmt.Errorf("%s is not allowed here: aggregates are for SELECT only", name)
		}
		p.aggregates = false // aggregates can't be nested
	}
	list, err := p.list(")")
	p.aggregates = within
	if err != nil {
		return nil, err
	}
	if isAggregate {
		if len(list) != 1 {
			return nil, fmt.Errorf("%s needs one argument", name)
		}
		a := &aggregate{kind: kind, name: name, operand: list[0], text: name + p.textFrom(begin)}
		p.query.aggregates = append(p.query.aggregates, a)
		return a, nil
	}
	f, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("the emulator has no function %.40s", name)
	}
	if len(list) != f.arguments {
		return nil, fmt.Errorf("%s needs %d arguments", name, f.arguments)
	}
	return functionCall{f.apply, list}, nil
}

// textFrom returns the text of the tokens from the one at begin to the last one read.
func (p *parser) textFrom(begin int) string {
	if begin >= p.index {
		return ""
	}
	return p.text[p.tokens[begin].offset:p.tokens[p.index-1].end]
}

// isKeyword reports whether the next token is a keyword; takeKeyword reads it if so.
func (p *parser) isKeyword(keyword string) bool {
	t := p.tokens[p.index]
	return t.kind == tokenName && strings.EqualFold(t.text, keyword)
}

func (p *parser) takeKeyword(keyword string) bool {
	if !p.isKeyword(keyword) {
		return false
	}
	p.index++
	return true
}

func (p *parser) takeMark(text string) bool {
	if t := p.tokens[p.index]; t.kind != tokenMark || t.text != text {
		return false
	}
	p.index++
	return true
}

func (p *parser) fail() error {
	t := p.tokens[min(p.index, len(p.tokens)-1)]
	if t.kind == tokenMark && strings.Contains(" + - * / % || ? ", " "+t.text+" ") {
		return fmt.Errorf("the emulator's queries have no arithmetic and no operator %s, which is at %d", t.text, t.offset)
	}
	if t.kind == tokenEnd {
		return errors.New("syntax error: the query ends too early")
	}
	return fmt.Errorf("syntax error near %.20q at %d", t.text, t.offset)
}

func (p *parser) failOr(err error) error {
	if err != nil {
		return err
	}
	return p.fail()
}
