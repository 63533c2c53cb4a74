package query

import (
	"errors"
	"math"
	"strings"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// maxBuilt is the maximum size in bytes of what an expression builds out of one document.
// Arrays and objects in others count for each level.
const maxBuilt = 16 << 20

// maxRead is the maximum size in bytes of what expressions read for one document: each path
// reads the document, and each operator its operands.
const maxRead = 64 << 20

// ErrTooLarge means that an expression builds more out of a document than fits a page of
// results.
var ErrTooLarge = errors.New("the query's arrays and objects are larger than a page of results: select fewer properties")

// ErrTooMuch means that the expressions read a large document too often.
var ErrTooMuch = errors.New("the query has too many properties and operators for a document as large as one of those here: write fewer")

// expr is an expression of a query.
type expr interface {
	eval(ev *evaluation) Value
}

// evaluation is the evaluation of expressions for one document, an object in JSON.
type evaluation struct {
	document []byte
	built    int // bytes
	read     int // bytes
}

// err returns ErrTooLarge or ErrTooMuch if the values of the evaluation are incomplete.
func (ev *evaluation) err() error {
	switch {
	case ev.built > maxBuilt:
		return ErrTooLarge
	case ev.read > maxRead:
		return ErrTooMuch
	}
	return nil
}

// mayRead reports whether so many more bytes may be read.
func (ev *evaluation) mayRead(n int) bool {
	ev.read += n
	return ev.read <= maxRead
}

// add appends a value to what an expression builds, and reports whether more fits.
func (ev *evaluation) add(dst []byte, v Value) ([]byte, bool) {
	n := len(dst)
	dst = v.appendJSON(dst)
	ev.built += len(dst) - n + 1
	return dst, ev.built <= maxBuilt
}

func (v Value) eval(*evaluation) Value { return v }

// path is a path to a value in the document; the empty path is the document.
type path []string

func (p path) eval(ev *evaluation) Value {
	if len(p) > 0 && !ev.mayRead(len(ev.document)) {
		return Value{}
	}
	raw, ok := jsonscan.Lookup(ev.document, p)
	if !ok {
		return Value{}
	}
	return valueOf(raw)
}

// comparison of values of different types is undefined, except = and !=.
type comparison struct {
	operator    string
	left, right expr
}

func (e comparison) eval(ev *evaluation) Value {
	l, r := e.left.eval(ev), e.right.eval(ev)
	if l.kind == kindUndefined || r.kind == kindUndefined || !ev.mayRead(l.Size()+r.Size()) {
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

// conjunction is AND: false if an operand is false, otherwise undefined if one is.
type conjunction []expr

func (e conjunction) eval(ev *evaluation) Value {
	result := boolean(true)
	for _, operand := range e {
		switch v := operand.eval(ev); {
		case v.kind != kindBool:
			result = Value{}
		case !v.truth:
			return v
		}
	}
	return result
}

// disjunction is OR: true if an operand is true, otherwise undefined if one is.
type disjunction []expr

func (e disjunction) eval(ev *evaluation) Value {
	result := boolean(false)
	for _, operand := range e {
		switch v := operand.eval(ev); {
		case v.kind != kindBool:
			result = Value{}
		case v.truth:
			return v
		}
	}
	return result
}

type negation struct{ operand expr }

func (e negation) eval(ev *evaluation) Value {
	v := e.operand.eval(ev)
	if v.kind != kindBool {
		return Value{}
	}
	return boolean(!v.truth)
}

type membership struct {
	operand expr
	list    []expr
}

func (e membership) eval(ev *evaluation) Value {
	v := e.operand.eval(ev)
	if v.kind == kindUndefined {
		return v
	}
	for _, item := range e.list {
		o := item.eval(ev)
		if !ev.mayRead(o.Size()) {
			return Value{}
		}
		if o.kind == v.kind && v.compare(o) == 0 {
			return boolean(true)
		}
	}
	return boolean(false)
}

type arrayOf []expr

func (e arrayOf) eval(ev *evaluation) Value {
	raw := []byte{'['}
	for _, item := range e {
		v := item.eval(ev)
		if v.kind == kindUndefined {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		var ok bool
		if raw, ok = ev.add(raw, v); !ok {
			return Value{}
		}
	}
	return Value{kind: kindArray, raw: append(raw, ']')}
}

type objectOf []item

func (e objectOf) eval(ev *evaluation) Value {
	raw := []byte{'{'}
	for _, it := range e {
		v := it.expr.eval(ev)
		if v.kind == kindUndefined {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(appendQuoted(raw, it.name), ':')
		var ok bool
		if raw, ok = ev.add(raw, v); !ok {
			return Value{}
		}
	}
	return Value{kind: kindObject, raw: append(raw, '}')}
}

type functionCall struct {
	apply     func([]Value) Value
	arguments []expr
}

func (e functionCall) eval(ev *evaluation) Value {
	values := make([]Value, len(e.arguments))
	for i, a := range e.arguments {
		values[i] = a.eval(ev)
		if !ev.mayRead(values[i].Size()) {
			return Value{}
		}
	}
	return e.apply(values)
}

// functions are the functions of queries, except the aggregates.
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
	_ = s.Array(func() error { // it has been scanned before
		raw, err := s.Value()
		if o := valueOf(raw); err == nil && o.kind == v[1].kind && o.compare(v[1]) == 0 {
			found = true
		}
		return err
	})
	return boolean(found)
}

// aggregate is a function of all documents: gather adds one, and eval returns the
// result.
type aggregate struct {
	kind    aggregateKind
	name    string
	operand expr
	text    string

	count int64
	sum   float64
	best  Value
	mixed bool // there was a value for which the function isn't defined
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

func (a *aggregate) reset() {
	*a = aggregate{kind: a.kind, name: a.name, operand: a.operand, text: a.text}
}

func (a *aggregate) gather(ev *evaluation) {
	v := a.operand.eval(ev)
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
			a.best = v.clone()
		}
	case aggregateMax:
		if a.count == 1 || v.order(a.best) > 0 {
			a.best = v.clone()
		}
	}
}

// clone returns a copy that stays valid when the document changes.
func (v Value) clone() Value {
	if v.raw != nil {
		v.raw = append([]byte(nil), v.raw...)
	}
	return v
}

// eval returns the result. One that is no finite number is undefined.
func (a *aggregate) eval(*evaluation) Value {
	switch {
	case a.kind == aggregateCount:
		return Value{kind: kindNumber, number: float64(a.count)}
	case a.kind == aggregateMin, a.kind == aggregateMax:
		return a.best
	case a.mixed, a.kind == aggregateAvg && a.count == 0, math.IsInf(a.sum, 0), math.IsNaN(a.sum):
		return Value{}
	case a.kind == aggregateSum:
		return Value{kind: kindNumber, number: a.sum}
	default:
		return Value{kind: kindNumber, number: a.sum / float64(a.count)}
	}
}
