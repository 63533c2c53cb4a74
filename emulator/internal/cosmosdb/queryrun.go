package cosmosdb

import (
	"slices"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
)

// runner finds a page of a query's documents.
type runner struct {
	query *query.Query
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
	keys []query.Value
	text []byte
}

// over runs the query over partitions.
func (r *runner) over(partitions []*partition) *failure {
	q := r.query
	start := len(r.out)
	if n := r.countAll(partitions); n >= 0 {
		q.SetCount(n)
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
func (r *runner) gathers() bool { return r.query.Aggregates() || r.query.Sorted() }

// countAll is the number of all documents, where that is what is asked for: it needs no scan. Else it is -1.
func (r *runner) countAll(partitions []*partition) int64 {
	if !r.query.CountsAll() || r.scope.key != nil || r.scope.prefix != nil {
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
	if !q.Matches(r.scratch) {
		return false, nil
	}
	switch {
	case q.Aggregates():
		q.Gather(r.scratch)
		return false, nil
	case q.Sorted():
		if len(r.sorted) == maxSorted {
			return false, bad("The emulator sorts up to 100000 documents: narrow the query.")
		}
		if text := q.Project(nil, r.scratch); text != nil {
			r.sorted = append(r.sorted, sorted{q.SortKeys(r.scratch), text})
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
	if r.at.Passed > q.Offset {
		r.emit(q.Project(nil, r.scratch))
	}
	return false, nil
}

// ended tells whether TOP or LIMIT has been reached.
func (r *runner) ended() bool {
	q := r.query
	return q.Top >= 0 && r.at.Passed >= q.Top || q.Limit >= 0 && r.at.Passed >= q.Offset+q.Limit
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
	if q.Aggregates() {
		r.emit(q.Project(nil, nil))
		return nil
	}
	if !q.Sorted() {
		return nil
	}
	slices.SortStableFunc(r.sorted, func(a, b sorted) int { return q.Compare(a.keys, b.keys) })
	for _, s := range r.sorted[min(r.at.Passed, len(r.sorted)):] {
		if r.ended() {
			return nil
		}
		if r.full() {
			r.more = true
			r.next = progress{Passed: r.at.Passed}
			return nil
		}
		if r.at.Passed++; r.at.Passed > q.Offset {
			r.emit(s.text)
		}
	}
	return nil
}
