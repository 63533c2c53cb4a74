package cosmosdb

import (
	"slices"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
)

// queryRunner executes a query for one page of results.
type queryRunner struct {
	query *query.Query
	scope *scope
	ids   map[string]bool // of the documents that can match; nil: any
	page  int

	from    continuation // where the page begins; Passed counts on
	next    continuation // where the next page begins
	more    bool
	out     []byte
	written int
	charge  float64
	sorted  []sorted
	scratch []byte
}

// sorted is a result that is to be sorted.
type sorted struct {
	keys []query.Value
	text []byte
}

// scanAll executes the query on partitions.
func (r *queryRunner) scanAll(partitions []*partition) *failure {
	q := r.query
	start := len(r.out)
	if n := r.countAll(partitions); n >= 0 {
		q.SetCount(n)
		partitions = nil
		r.charge += chargeQuery
	}
	for _, p := range partitions {
		after := uint64(0)
		if !r.needsAll() {
			var done bool
			if after, done = r.from.after(p.bounds); done {
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

// needsAll reports whether all documents must be read before there is a result.
func (r *queryRunner) needsAll() bool { return r.query.Aggregates() || r.query.Sorted() }

// countAll returns the number of documents if the query asks for nothing else, which
// needs no scan; otherwise -1.
func (r *queryRunner) countAll(partitions []*partition) int64 {
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

// scan reads a partition's documents, and lets writers continue in between. More means
// that the page is full.
func (r *queryRunner) scan(p *partition, after uint64) (more bool, f *failure) {
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
			r.next = r.from.advance(p.bounds, after)
			return more, f
		}
	}
}

// visit adds a document to the result if it matches. More means that it matches, but
// the page is full. The partition's mutex is held.
func (r *queryRunner) visit(rec record) (more bool, f *failure) {
	q := r.query
	if !r.scope.contains(rec) || r.ids != nil && !r.ids[string(rec.id())] {
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
			return false, badRequest("The emulator sorts up to 100000 documents: narrow the query.")
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
	r.from.Passed++
	if r.from.Passed > q.Offset {
		r.emit(q.Project(nil, r.scratch))
	}
	return false, nil
}

// ended reports whether TOP or LIMIT has been reached.
func (r *queryRunner) ended() bool {
	q := r.query
	return q.Top >= 0 && r.from.Passed >= q.Top || q.Limit >= 0 && r.from.Passed >= q.Offset+q.Limit
}

func (r *queryRunner) full() bool { return r.written >= r.page || len(r.out) >= maxPageSize }

// emit writes a result. An undefined one, nil, is left out.
func (r *queryRunner) emit(text []byte) {
	if text == nil {
		return
	}
	if r.written > 0 {
		r.out = append(r.out, ',')
	}
	r.out = append(r.out, text...)
	r.written++
}

// finish writes the results that need all documents: aggregates and sorted ones.
func (r *queryRunner) finish() *failure {
	q := r.query
	if q.Aggregates() {
		r.emit(q.Project(nil, nil))
		return nil
	}
	if !q.Sorted() {
		return nil
	}
	slices.SortStableFunc(r.sorted, func(a, b sorted) int { return q.Compare(a.keys, b.keys) })
	for _, s := range r.sorted[min(r.from.Passed, len(r.sorted)):] {
		if r.ended() {
			return nil
		}
		if r.full() {
			r.more = true
			r.next = continuation{Passed: r.from.Passed}
			return nil
		}
		if r.from.Passed++; r.from.Passed > q.Offset {
			r.emit(s.text)
		}
	}
	return nil
}
