package query

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// grammar derives queries from the bytes of a fuzzer: each byte chooses a production. A
// derivation whose choices are all legal must parse.
type grammar struct {
	choices []byte
	depth   int
	out     strings.Builder
	wrong   bool // a choice broke a rule, so that the query may be refused
	agg     bool // aggregates are allowed
}

func (g *grammar) next(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := int(g.choices[0])
	g.choices = g.choices[1:]
	return c % n
}

func (g *grammar) write(words ...string) {
	for _, w := range words {
		switch g.next(8) {
		case 6:
			g.out.WriteString("\n-- FROM VALUE ı\n")
		case 7:
			w = strings.ToLower(w)
		}
		g.out.WriteString(" " + w)
	}
}

func pick[T any](g *grammar, list ...T) T { return list[g.next(len(list))] }

var keywords = []string{"FROM", "WHERE", "AS", "ORDER", "VALUE", "TOP", "IN", "BETWEEN", "NOT", "SELECT"}

// name writes a name; rarely a keyword, where a name must be.
func (g *grammar) name() {
	if g.next(16) == 15 {
		g.wrong = true
		g.out.WriteString(" " + keywords[g.next(len(keywords))])
		return
	}
	g.out.WriteString(" " + pick(g, "a", "b", "_x", "ü", "from_", "valueOf"))
}

func (g *grammar) query() string {
	g.write("SELECT")
	if g.next(4) == 3 {
		g.write("TOP")
		g.out.WriteString(pick(g, " 0", " 1", " 3", " 2147483648"))
	}
	aggregates := g.next(4) == 3
	switch {
	case aggregates:
		g.write("VALUE")
		g.agg = true
		g.expression()
		g.agg = false
	case g.next(3) == 0:
		g.write("*")
	case g.next(3) == 0:
		g.write("VALUE")
		g.expression()
	default:
		for i := range 1 + g.next(4) {
			if i > 0 {
				g.write(",")
			}
			g.expression()
			if g.next(2) == 1 {
				if g.next(2) == 1 {
					g.write("AS")
				}
				g.name()
			}
		}
	}
	g.out.WriteString(pick(g, " FROM c", "\tFROM root AS c", " from x c "))
	if g.next(2) == 1 {
		g.write("WHERE")
		g.expression()
	}
	if g.next(3) == 2 {
		g.write("ORDER", "BY")
		g.path()
		g.out.WriteString(pick(g, "", " ASC", " DESC", " ASC, c.b", " desc , c"))
	}
	if g.next(3) == 2 {
		g.out.WriteString(pick(g, " OFFSET 0 LIMIT 1", " offset 1 limit 2", " OFFSET 2147483648 LIMIT 2147483648"))
	}
	return g.out.String()
}

func (g *grammar) path() {
	g.out.WriteString(" c")
	for range g.next(4) {
		g.out.WriteString(pick(g, ".a", ".b", `["a"]`, "['x y']", ".n", ".from", `["from"]`))
	}
}

func (g *grammar) expression() {
	if g.depth++; g.depth > 12 {
		g.out.WriteString(" 1")
		g.depth--
		return
	}
	defer func() { g.depth-- }()
	binary := func(operators ...string) {
		g.out.WriteString("(")
		g.expression()
		g.write(pick(g, operators...))
		g.expression()
		g.out.WriteString(")")
	}
	switch g.next(13) {
	case 0:
		g.out.WriteString(pick(g, " 1", " -1.5e3", " 1e308", " -1e308", " .5", " 'it''s'"[:3]+"'", ` "\u0041"`, " true", " NULL", " undefined", " @p", " @huge", " @list", " ''"))
	case 1, 2:
		g.path()
	case 3:
		binary("=", "!=", "<>", "<", "<=", ">", ">=")
	case 4:
		binary("AND", "OR")
	case 5:
		g.out.WriteString("(")
		g.write("NOT")
		g.out.WriteString("(")
		g.expression()
		g.out.WriteString("))")
	case 6:
		g.out.WriteString("(")
		g.path()
		g.write(pick(g, "IN", "NOT IN"))
		g.out.WriteString("(")
		g.list(1)
		g.out.WriteString("))")
	case 7:
		g.out.WriteString("(")
		g.path()
		g.write("BETWEEN")
		g.path()
		g.write("AND")
		g.path()
		g.out.WriteString(")")
	case 8:
		g.out.WriteString(" [")
		g.list(0)
		g.out.WriteString("]")
	case 9:
		g.object()
	case 10:
		g.call(pick(g, "IS_DEFINED", "IS_NULL", "IS_BOOL", "IS_NUMBER", "IS_STRING", "IS_ARRAY", "IS_OBJECT", "LOWER", "UPPER"), 1)
	case 11:
		g.call(pick(g, "STARTSWITH", "ENDSWITH", "CONTAINS", "ARRAY_CONTAINS"), 2)
	case 12:
		if g.agg {
			g.agg = false
			g.call(pick(g, "COUNT", "SUM", "AVG", "MIN", "MAX"), 1)
			g.agg = true
			return
		}
		g.path()
	}
}

func (g *grammar) list(atLeast int) {
	for i := range atLeast + g.next(4) {
		if i > 0 {
			g.out.WriteString(",")
		}
		g.expression()
	}
}

func (g *grammar) object() {
	g.out.WriteString(" {")
	for i := range g.next(4) {
		if i > 0 {
			g.out.WriteString(",")
		}
		g.out.WriteString(pick(g, "a", "from", "'FROM'", `"<\u2028>"`, "value") + ":")
		g.expression()
	}
	g.out.WriteString("}")
}

func (g *grammar) call(name string, arguments int) {
	g.write(name)
	g.out.WriteString("(")
	for i := range arguments {
		if i > 0 {
			g.out.WriteString(",")
		}
		g.expression()
	}
	g.out.WriteString(")")
}

var grammarDocuments = []string{
	`{}`, `{"a":1,"b":"x","n":[1,{"a":2}],"from":null}`, `{"a":1e308,"b":{"a":{"b":-0}},"x y":true}`, `{"a":"ü\u0000<","n":1e999}`, `{"a":[[],{}],"b":-1e308,"from":"FROM"}`,
}

// Every query of the grammar is answered: with valid JSON of a bounded size, in the order
// that it asks for; WHERE and its negation divide the documents; and the query of the plan is
// one of the grammar, too.
func FuzzGrammar(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("SELECT 1 AS from FROM"))
	for seed := range 32 {
		choices := make([]byte, 64)
		for i := range choices {
			choices[i] = byte(seed*31 + i*i*7 + i)
		}
		f.Add(choices)
	}
	parameters := map[string]json.RawMessage{"@p": json.RawMessage(` {"a": 1}`), "@huge": json.RawMessage("-1e999"), "@list": json.RawMessage(`[1,"a",null,[1]]`)}
	f.Fuzz(func(t *testing.T, choices []byte) {
		g := &grammar{choices: choices[:min(len(choices), 4096)]}
		text := g.query()
		q, err := Parse(text, parameters)
		if err != nil {
			if g.wrong || strings.Contains(err.Error(), "nested more than") {
				return
			}
			t.Fatalf("%q: %v", text, err)
		}
		var results [][]byte
		var keys [][]Value
		for _, d := range grammarDocuments {
			document := []byte(d)
			matches, err := q.Matches(document)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if q.where != nil && matches && (negation{q.where}).eval(&evaluation{document: document}).isTrue() {
				t.Fatalf("%q: %s meets WHERE and its negation", text, d)
			}
			if ids := q.IDs(); matches && ids != nil {
				t.Fatalf("%q matches %s, which has no id", text, d)
			}
			if !matches {
				continue
			}
			if err := q.Gather(document); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if q.Aggregates() {
				continue
			}
			out, err := q.Project(nil, document)
			if err != nil {
				t.Fatalf("%q of %s: %v", text, d, err)
			}
			key, err := q.SortKeys(document)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			results, keys = append(results, out), append(keys, key)
		}
		if q.Aggregates() {
			out, err := q.Project(nil, nil)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			results = append(results, out)
		}
		for _, out := range results {
			if len(out) > maxBuilt || out != nil && !json.Valid(out) {
				t.Fatalf("%q gives %d bytes: %.200s", text, len(out), out)
			}
		}
		ordered(t, q, text, keys)
		if plan, ok := q.Plan(); ok && plan.Rewritten != "" {
			rewritten := strings.ReplaceAll(plan.Rewritten, sortFilter, "true")
			if _, err := Parse(rewritten, parameters); err != nil {
				t.Fatalf("plan of %q: %q: %v", text, rewritten, err)
			}
		}
	})
}

// ordered checks that Compare is an order.
func ordered(t *testing.T, q *Query, text string, keys [][]Value) {
	slices.SortFunc(keys, q.Compare)
	for i := range keys {
		for j := range keys[:i] {
			if q.Compare(keys[j], keys[i]) > 0 || q.Compare(keys[i], keys[j]) < 0 {
				t.Fatalf("%q: no order of %s", text, fmt.Sprint(keys))
			}
		}
	}
}
