package query

import (
	"math"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// expr is an expression of a query. Documents are whole objects in JSON.
type expr interface {
	eval(document []byte) Value
}

func (v Value) eval([]byte) Value { return v }

// path is a place in the document; an empty one is the document.
type path []string

func (p path) eval(document []byte) Value {
	raw, ok := jsonscan.Lookup(document, p)
	if !ok {
		return Value{}
	}
	return valueOf(raw)
}

// comparison of values of different types is undefined, but for = and !=.
type comparison struct {
	operator    string
	left, right expr
}

func (e comparison) eval(document []byte) Value {
	l, r := e.left.eval(document), e.right.eval(document)
	if l.kind == kindUndefined || r.kind == kindUndefined {
		return Value{}
	}
	if l.kind != r.kind {
		switch e.operator {
		case "=":
			return boolean(false)
		case "!=", "<>":
			return boolean(true)
		}
		return Value{}
	}
	c := l.compare(r)
	switch e.operator {
	case "=":
		return boolean(c == 0)
	case "!=", "<>":
		return boolean(c != 0)
	case "<":
		return boolean(c < 0)
	case "<=":
		return boolean(c <= 0)
	case ">":
		return boolean(c > 0)
	default:
		return boolean(c >= 0)
	}
}

// all is AND: false if one is false, else undefined if one is.
type all []expr

func (e all) eval(document []byte) Value {
	result := boolean(true)
	for _, operand := range e {
		switch v := operand.eval(document); {
		case v.kind != kindBool:
			result = Value{}
		case !v.truth:
			return v
		}
	}
	return result
}

// some is OR: true if one is true, else undefined if one is.
type some []expr

func (e some) eval(document []byte) Value {
	result := boolean(false)
	for _, operand := range e {
		switch v := operand.eval(document); {
		case v.kind != kindBool:
			result = Value{}
		case v.truth:
			return v
		}
	}
	return result
}

type inverse struct{ of expr }

func (e inverse) eval(document []byte) Value {
	v := e.of.eval(document)
	if v.kind != kindBool {
		return Value{}
	}
	return boolean(!v.truth)
}

type membership struct {
	of   expr
	list []expr
}

func (e membership) eval(document []byte) Value {
	v := e.of.eval(document)
	if v.kind == kindUndefined {
		return v
	}
	for _, item := range e.list {
		if o := item.eval(document); o.kind == v.kind && v.compare(o) == 0 {
			return boolean(true)
		}
	}
	return boolean(false)
}

type arrayOf []expr

func (e arrayOf) eval(document []byte) Value {
	raw := []byte{'['}
	for _, item := range e {
		v := item.eval(document)
		if v.kind == kindUndefined {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = v.appendJSON(raw)
	}
	return Value{kind: kindArray, raw: append(raw, ']')}
}

type objectOf []item

func (e objectOf) eval(document []byte) Value {
	raw := []byte{'{'}
	for _, it := range e {
		v := it.expr.eval(document)
		if v.kind == kindUndefined {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(appendQuoted(raw, it.name), ':')
		raw = v.appendJSON(raw)
	}
	return Value{kind: kindObject, raw: append(raw, '}')}
}

type application struct {
	apply     func([]Value) Value
	arguments []expr
}

func (e application) eval(document []byte) Value {
	values := make([]Value, len(e.arguments))
	for i, a := range e.arguments {
		values[i] = a.eval(document)
	}
	return e.apply(values)
}

// functions are those that queries may call, beside the aggregates.
var functions = map[string]struct {
	arguments int
	apply     func([]Value) Value
}{
	"IS_DEFINED":     {1, func(v []Value) Value { return boolean(v[0].kind != kindUndefined) }},
	"IS_NULL":        {1, isKind(kindNull)},
	"IS_BOOL":        {1, isKind(kindBool)},
	"IS_NUMBER":      {1, isKind(kindNumber)},
	"IS_STRING":      {1, isKind(kindString)},
	"IS_ARRAY":       {1, isKind(kindArray)},
	"IS_OBJECT":      {1, isKind(kindObject)},
	"STARTSWITH":     {2, onStrings(strings.HasPrefix)},
	"ENDSWITH":       {2, onStrings(strings.HasSuffix)},
	"CONTAINS":       {2, onStrings(strings.Contains)},
	"LOWER":          {1, onString(strings.ToLower)},
	"UPPER":          {1, onString(strings.ToUpper)},
	"ARRAY_CONTAINS": {2, arrayContains},
}

func isKind(k kind) func([]Value) Value {
	return func(v []Value) Value { return boolean(v[0].kind == k) }
}

func onStrings(f func(s, of string) bool) func([]Value) Value {
	return func(v []Value) Value {
		if v[0].kind != kindString || v[1].kind != kindString {
			return Value{}
		}
		return boolean(f(v[0].text, v[1].text))
	}
}

func onString(f func(string) string) func([]Value) Value {
	return func(v []Value) Value {
		if v[0].kind != kindString {
			return Value{}
		}
		return Value{kind: kindString, text: f(v[0].text)}
	}
}

func arrayContains(v []Value) Value {
	if v[0].kind != kindArray || v[1].kind == kindUndefined {
		return boolean(false)
	}
	found := false
	s := jsonscan.New(v[0].raw, math.MaxInt)
	_ = s.Array(func() error { // it was scanned before
		raw, err := s.Value()
		if o := valueOf(raw); err == nil && o.kind == v[1].kind && o.compare(v[1]) == 0 {
			found = true
		}
		return err
	})
	return boolean(found)
}

// aggregate is a function of all documents. It gathers, and then evaluates to its result.
type aggregate struct {
	kind aggregateKind
	name string
	of   expr

	count int64
	sum   float64
	best  Value
	mixed bool // a value that the function isn't defined for
}

type aggregateKind byte

const (
	aggregateCount aggregateKind = iota
	aggregateSum
	aggregateAvg
	aggregateMin
	aggregateMax
)

var aggregateKinds = map[string]aggregateKind{
	"COUNT": aggregateCount, "SUM": aggregateSum, "AVG": aggregateAvg, "MIN": aggregateMin, "MAX": aggregateMax,
}

func (a *aggregate) reset() { *a = aggregate{kind: a.kind, name: a.name, of: a.of} }

func (a *aggregate) gather(document []byte) {
	v := a.of.eval(document)
	if v.kind == kindUndefined {
		return
	}
	a.count++
	switch a.kind {
	case aggregateSum, aggregateAvg:
		a.mixed = a.mixed || v.kind != kindNumber
		a.sum += v.number
	case aggregateMin:
		if a.count == 1 || v.order(a.best) < 0 {
			a.best = v.keep()
		}
	case aggregateMax:
		if a.count == 1 || v.order(a.best) > 0 {
			a.best = v.keep()
		}
	}
}

// keep is the value for longer than its document.
func (v Value) keep() Value {
	if v.raw != nil {
		v.raw = append([]byte(nil), v.raw...)
	}
	return v
}

func (a *aggregate) eval([]byte) Value {
	switch {
	case a.kind == aggregateCount:
		return Value{kind: kindNumber, number: float64(a.count)}
	case a.mixed, a.kind == aggregateAvg && a.count == 0:
		return Value{}
	case a.kind == aggregateSum:
		return Value{kind: kindNumber, number: a.sum}
	case a.kind == aggregateAvg:
		return Value{kind: kindNumber, number: a.sum / float64(a.count)}
	default:
		return a.best
	}
}
