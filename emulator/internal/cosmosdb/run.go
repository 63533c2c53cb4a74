package cosmosdb

import "slices"

// runner finds a page of a query's documents.
type runner struct {
	query *query
	scope *scope
	ids   map[string]bool // the documents that can be found have one of them; nil: any
	page  int

	at      progress // where the page begins, but for the count of what was passed
	next    progress // where the one after it does
	more    bool
	out     []byte
	written int
	charge  float64
	sorted  []sorted
	scratch []byte
}

// sorted is a document that waits to be put in order.
type sorted struct {
	keys []scalar
	text []byte
}

// over runs the query over partitions.
func (r *runner) over(partitions []*partition) *failure {
	q := r.query
	start := len(r.out)
	if n := r.countAll(partitions); n >= 0 {
		q.aggregates[0].count = n
		partitions = nil
		r.charge += chargeQuery
	}
	for _, p := range partitions {
		after := uint64(0)
		if !r.gathers() {
			var done bool
			if after, done = r.at.after(p.bounds); done {
				continue
			}
		}
		more, f := r.scan(p, after)
		if f != nil {
			return f
		}
		r.charge += chargeQuery
		if p.budget.spend(chargeQuery); more {
			break
		}
	}
	if f := r.finish(); f != nil {
		return f
	}
	returned := chargeReturned * sizeFactor(len(r.out)-start)
	r.charge += returned
	if len(partitions) > 0 {
		partitions[0].budget.spend(returned)
	}
	return nil
}

// gathers tells whether all documents must be seen before there is a result.
func (r *runner) gathers() bool { return len(r.query.aggregates) > 0 || len(r.query.order) > 0 }

// countAll is the number of all documents, where that is what is asked for: it needs no scan. Else it is -1.
func (r *runner) countAll(partitions []*partition) int64 {
	q := r.query
	if len(q.aggregates) != 1 || q.aggregates[0].kind != aggregateCount || q.where != nil || r.scope.key != nil || r.scope.prefix != nil {
		return -1
	}
	if of, ok := q.aggregates[0].of.(scalar); !ok || of.kind == kindUndefined {
		return -1
	}
	n := int64(0)
	for _, p := range partitions {
		p.mu.Lock()
		n += int64(p.order.live)
		p.mu.Unlock()
	}
	return n
}

// scan looks at a partition's documents, and lets writers in between. more says that the page is full.
func (r *runner) scan(p *partition, after uint64) (more bool, f *failure) {
	for {
		seen := 0
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			if r.scope.owner.isClosed() {
				return false, failNotFound()
			}
			return false, failGone()
		}
		p.order.each(after, func(place ref) bool {
			if seen == scanStep {
				return false
			}
			rec := p.at(place)
			if more, f = r.visit(rec); more || f != nil {
				return false
			}
			seen++
			after = rec.number()
			return true
		})
		p.mu.Unlock()
		if more || f != nil || seen < scanStep {
			r.next = r.at.reach(p.bounds, after)
			return more, f
		}
	}
}

// visit takes a document into the result, if it belongs there. more says that it does, but the page is full. The partition is locked.
func (r *runner) visit(rec record) (more bool, f *failure) {
	q := r.query
	if !r.scope.holds(rec) || r.ids != nil && !r.ids[string(rec.id())] {
		return false, nil
	}
	r.scratch = r.scope.owner.appendDocument(r.scratch[:0], rec)
	if q.where != nil && !q.where.eval(r.scratch).isTrue() {
		return false, nil
	}
	switch {
	case len(q.aggregates) > 0:
		for _, a := range q.aggregates {
			a.gather(r.scratch)
		}
		return false, nil
	case len(q.order) > 0:
		if len(r.sorted) == maxSorted {
			return false, bad("The emulator sorts up to 100000 documents: narrow the query.")
		}
		s := sorted{keys: make([]scalar, len(q.order))}
		for i, k := range q.order {
			s.keys[i] = k.expr.eval(r.scratch).keep()
		}
		if s.text = q.project(nil, r.scratch); s.text != nil {
			r.sorted = append(r.sorted, s)
		}
		return false, nil
	}
	if r.ended() {
		r.more = false
		return true, nil
	}
	if r.full() {
		r.more = true
		return true, nil
	}
	r.at.Passed++
	if r.at.Passed > q.offset {
		r.emit(q.project(nil, r.scratch))
	}
	return false, nil
}

// ended tells whether TOP or LIMIT has been reached.
func (r *runner) ended() bool {
	q := r.query
	return q.top >= 0 && r.at.Passed >= q.top || q.limit >= 0 && r.at.Passed >= q.offset+q.limit
}

func (r *runner) full() bool { return r.written >= r.page || len(r.out) >= maxPageSize }

// emit writes a result; one that is undefined is left out.
func (r *runner) emit(text []byte) {
	if text == nil {
		return
	}
	if r.written > 0 {
		r.out = append(r.out, ',')
	}
	r.out = append(r.out, text...)
	r.written++
}

// finish writes what could not be written before all documents were seen.
func (r *runner) finish() *failure {
	q := r.query
	if len(q.aggregates) > 0 {
		r.emit(q.project(nil, nil))
		return nil
	}
	if len(q.order) == 0 {
		return nil
	}
	slices.SortStableFunc(r.sorted, func(a, b sorted) int {
		for i, k := range q.order {
			if c := a.keys[i].order(b.keys[i]); c != 0 {
				if k.down {
					return -c
				}
				return c
			}
		}
		return 0
	})
	for _, s := range r.sorted[min(r.at.Passed, len(r.sorted)):] {
		if r.ended() {
			return nil
		}
		if r.full() {
			r.more = true
			r.next = progress{Passed: r.at.Passed}
			return nil
		}
		if r.at.Passed++; r.at.Passed > q.offset {
			r.emit(s.text)
		}
	}
	return nil
}

// project appends the columns of a document, nil if there is nothing.
func (q *query) project(dst, document []byte) []byte {
	switch {
	case len(q.items) == 0:
		return append(dst, document...)
	case q.value:
		v := q.items[0].expr.eval(document)
		if v.kind == kindUndefined {
			return nil
		}
		return v.appendJSON(dst)
	default:
		return objectOf(q.items).eval(document).appendJSON(dst)
	}
}

// ids are the only ones that documents can have that meet WHERE, nil if it doesn't say. They spare reading most documents.
func (q *query) ids() map[string]bool {
	if q.where == nil {
		return nil
	}
	ids := make(map[string]bool)
	if !idsOf(q.where, ids) {
		return nil
	}
	return ids
}

func idsOf(e expr, ids map[string]bool) bool {
	add := func(of expr, values ...expr) bool {
		p, ok := of.(path)
		if !ok || len(p) != 1 || p[0] != "id" {
			return false
		}
		for _, v := range values {
			s, ok := v.(scalar)
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
		return add(e.of, e.list...)
	case all:
		return slices.ContainsFunc(e, func(operand expr) bool { return idsOf(operand, ids) })
	case some:
		return !slices.ContainsFunc(e, func(operand expr) bool { return !idsOf(operand, ids) })
	}
	return false
}
