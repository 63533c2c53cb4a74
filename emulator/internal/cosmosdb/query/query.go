// Package query parses and evaluates queries of Cosmos DB's query language for
// the NoSQL API, of which it knows:
//
//	SELECT [TOP n] * | VALUE expression | expression [AS name], …
//	FROM name [[AS] alias]
//	[WHERE expression] [ORDER BY path [ASC|DESC], …] [OFFSET n LIMIT n]
//
// Expressions have paths, parameters, literals, arrays and objects, = != <> < <=
// > >=, AND, OR, NOT, IN, BETWEEN, the functions IS_DEFINED, IS_NULL, IS_BOOL,
// IS_NUMBER, IS_STRING, IS_ARRAY, IS_OBJECT, STARTSWITH, ENDSWITH, CONTAINS, LOWER,
// UPPER and ARRAY_CONTAINS, and the aggregates COUNT, SUM, MIN, MAX and AVG. There
// is no JOIN, GROUP BY, DISTINCT or arithmetic.
//
// A query sees one document at a time, as the JSON text of an object. It is for
// one goroutine at a time, because it holds the state of its aggregates.
package query

import "slices"

// MaxLength is the greatest length of a query's text in bytes, as on Azure.
const MaxLength = 512 << 10

// Query is a parsed query. Its aggregates keep their state between calls.
type Query struct {
	Top    int // -1: all
	Offset int
	Limit  int // -1: all

	alias      string
	value      bool
	items      []item // none: *
	where      expr
	order      []sortKey
	aggregates []*aggregate

	fromText  string // from FROM to before WHERE
	whereText string // the expression; empty: none
}

// item is a column of the result.
type item struct {
	name string
	expr expr
	text string
}

type sortKey struct {
	expr expr
	text string
	desc bool
}

// All returns the query SELECT * without restrictions.
func All() *Query { return &Query{Top: -1, Limit: -1} }

// Whole reports whether the result is whole documents in any order: SELECT *
// without ORDER BY.
func (q *Query) Whole() bool { return len(q.items) == 0 && len(q.order) == 0 }

// Sorted reports whether the query has ORDER BY.
func (q *Query) Sorted() bool { return len(q.order) > 0 }

// Aggregates reports whether the result is one value for all documents.
func (q *Query) Aggregates() bool { return len(q.aggregates) > 0 }

// Matches reports whether a document meets WHERE. The error is [ErrTooLarge] or
// [ErrTooMuch].
func (q *Query) Matches(document []byte) (bool, error) {
	if q.where == nil {
		return true, nil
	}
	ev := evaluation{document: document}
	matches := q.where.eval(&ev).isTrue()
	return matches, ev.err()
}

// Reset sets the aggregates to no documents.
func (q *Query) Reset() {
	for _, a := range q.aggregates {
		a.reset()
	}
}

// Gather adds a document to the aggregates. The error is [ErrTooLarge] or
// [ErrTooMuch].
func (q *Query) Gather(document []byte) error {
	ev := evaluation{document: document}
	for _, a := range q.aggregates {
		a.gather(&ev)
	}
	return ev.err()
}

// CountsAll reports whether the result is the number of documents, whatever is in
// them, so that they needn't be read: [Query.SetCount].
func (q *Query) CountsAll() bool {
	if len(q.aggregates) != 1 || q.aggregates[0].kind != aggregateCount || q.where != nil {
		return false
	}
	of, ok := q.aggregates[0].operand.(Value)
	return ok && of.kind != kindUndefined
}

// SetCount sets the result of a query for which [Query.CountsAll] is true.
func (q *Query) SetCount(n int64) { q.aggregates[0].count = n }

// SortKeys returns the values by which ORDER BY sorts a document. They stay valid
// when the document changes. The error is [ErrTooLarge] or [ErrTooMuch].
func (q *Query) SortKeys(document []byte) ([]Value, error) {
	ev := evaluation{document: document}
	keys := make([]Value, len(q.order))
	for i, k := range q.order {
		keys[i] = k.expr.eval(&ev).clone()
	}
	return keys, ev.err()
}

// Compare orders documents by their sort keys, as ORDER BY says.
func (q *Query) Compare(a, b []Value) int {
	for i, k := range q.order {
		if c := a[i].order(b[i]); c != 0 {
			if k.desc {
				return -c
			}
			return c
		}
	}
	return 0
}

// Project appends the result for a document to dst; for aggregates, the result for
// all documents that were gathered. It returns nil if the result is undefined: a
// query leaves it out. The error is [ErrTooLarge] or [ErrTooMuch].
func (q *Query) Project(dst, document []byte) ([]byte, error) {
	if len(q.items) == 0 {
		return append(dst, document...), nil
	}
	ev := evaluation{document: document}
	e := q.items[0].expr
	if !q.value {
		e = objectOf(q.items)
	}
	v := e.eval(&ev)
	if err := ev.err(); err != nil || v.kind == kindUndefined {
		return nil, err
	}
	return v.appendJSON(dst), nil
}

// IDs returns the only ids that documents matching WHERE can have, nil if WHERE
// doesn't restrict them. They spare reading most documents.
func (q *Query) IDs() map[string]bool {
	if q.where == nil {
		return nil
	}
	ids := make(map[string]bool)
	if !idsOf(q.where, ids) {
		return nil
	}
	return ids
}

// idsOf adds the ids that an expression allows, and reports whether it restricts
// them.
func idsOf(e expr, ids map[string]bool) bool {
	add := func(of expr, values ...expr) bool {
		p, ok := of.(path)
		if !ok || len(p) != 1 || p[0] != "id" {
			return false
		}
		for _, v := range values {
			s, ok := v.(Value)
			if !ok {
				return false
			}
			if s.kind == kindString {
				ids[s.text] = true
			}
		}
		return true
	}
	switch e := e.(type) {
	case comparison:
		return e.operator == "=" && (add(e.left, e.right) || add(e.right, e.left))
	case membership:
		return add(e.operand, e.list...)
	case conjunction:
		return slices.ContainsFunc(e, func(operand expr) bool { return idsOf(operand, ids) })
	case disjunction:
		return !slices.ContainsFunc(e, func(operand expr) bool { return !idsOf(operand, ids) })
	}
	return false
}
