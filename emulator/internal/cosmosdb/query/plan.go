package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Plan says how a client asks each partition by itself and merges the results.
type Plan struct {
	Value       bool     // SELECT VALUE
	Aggregate   string   // the function that merges the results: Count, Sum, Average, Min or Max; empty: none
	Expressions []string // of ORDER BY
	Descending  []bool   // for each of them
	Top         int      // -1: all
	Offset      int
	Limit       int    // -1: all
	Rewritten   string // the query for the partitions; empty: the query as it is
}

// sortFilter stands for true in the query of a plan with ORDER BY. Clients that continue a
// query replace it by a condition.
const sortFilter = "{documentdb-formattableorderbyquery-filter}"

// Plan returns the query's plan, as Azure's gateway makes it, unless its result can't be merged
// from those of the partitions.
func (q *Query) Plan() (p Plan, ok bool) {
	p = Plan{Value: q.value, Top: q.Top, Offset: q.Offset, Limit: q.Limit}
	switch {
	case len(q.aggregates) > 0:
		return q.aggregatePlan(p)
	case q.Sorted():
		return q.sortedPlan(p), true
	case q.Limit >= 0:
		p.Rewritten = q.rewrite(q.columns(), q.whereText, "")
	}
	return p, true
}

// aggregatePlan is for SELECT VALUE of one aggregate.
func (q *Query) aggregatePlan(p Plan) (Plan, bool) {
	a, ok := q.items[0].expr.(*aggregate)
	if !ok || !q.value || q.Sorted() || q.Top >= 0 || q.Limit >= 0 {
		return p, false
	}
	p.Aggregate = a.name[:1] + strings.ToLower(a.name[1:])
	item := a.text
	count := "COUNT" + a.text[strings.IndexByte(a.text, '('):]
	switch a.kind {
	case aggregateAvg:
		p.Aggregate = "Average"
		item = `{"sum": SUM` + a.text[strings.IndexByte(a.text, '('):] + `, "count": ` + count + `}`
	case aggregateMin, aggregateMax:
		item += fmt.Sprintf(`, "item2": {"%s": %s, "count": %s}`, strings.ToLower(a.name), a.text, count)
	}
	p.Rewritten = q.rewrite(`VALUE [{"item": `+item+`}]`, q.whereText, "")
	return p, true
}

// sortedPlan is for ORDER BY: each partition returns its results in order, with the values by
// which the client merges them.
func (q *Query) sortedPlan(p Plan) Plan {
	var items, order []string
	for _, k := range q.order {
		p.Expressions, p.Descending = append(p.Expressions, k.text), append(p.Descending, k.desc)
		items = append(items, `{"item": `+k.text+`}`)
		direction := " ASC"
		if k.desc {
			direction = " DESC"
		}
		order = append(order, k.text+direction)
	}
	where := "(" + sortFilter + ")"
	if q.whereText != "" {
		where = "((" + q.whereText + ") AND " + sortFilter + ")"
	}
	columns := q.alias + "._rid, [" + strings.Join(items, ", ") + "] AS orderByItems, " + q.payload() + " AS payload"
	p.Rewritten = q.rewrite(columns, where, " ORDER BY "+strings.Join(order, ", "))
	return p
}

// payload returns the expression of a result.
func (q *Query) payload() string {
	switch {
	case len(q.items) == 0:
		return q.alias
	case q.value:
		return q.items[0].text
	}
	var members []string
	for _, it := range q.items {
		members = append(members, string(appendQuoted(nil, it.name))+": "+it.text)
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// columns returns what the query selects.
func (q *Query) columns() string {
	if len(q.items) == 0 {
		return "*"
	}
	return "VALUE " + q.payload()
}

// rewrite returns the query with other columns, WHERE and ORDER BY. A partition returns all
// results that a client may need to skip OFFSET and to take LIMIT.
func (q *Query) rewrite(columns, where, order string) string {
	parts := []string{"SELECT", columns, q.fromText}
	if q.Top >= 0 {
		parts = slices.Insert(parts, 1, "TOP", strconv.Itoa(q.Top))
	}
	if q.fromText == "" {
		parts = parts[:len(parts)-1]
	}
	if where != "" {
		parts = append(parts, "WHERE", where)
	}
	text := strings.Join(parts, " ") + order
	if q.Limit >= 0 {
		text += fmt.Sprintf(" OFFSET 0 LIMIT %d", min(q.Offset+q.Limit, maxCount))
	}
	return text
}
