package cosmosdb

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
)

// queryRunner executes a query for one page of results.
type queryRunner struct {
	query *query.Query
	scope *scope
	ids   map[string]bool // of the documents that can match; nil: any
	page  int
	now   time.Time

	canceled <-chan struct{} // closed when the client has gone
	start    continuation    // where the page begins; Passed counts on
	next     continuation    // where the next page begins
	more     bool
	out      []byte
	written  int
	charge   float64
	scratch  []byte

	sorted     []sorted
	sortedSize int // bytes

	read     int // documents
	readSize int // bytes
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
			if after, done = r.start.lastNumber(p.bounds); done {
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

// metrics returns what the query did, as the header with the query metrics has it.
func (r *queryRunner) metrics(took time.Duration) string {
	return fmt.Sprintf("totalExecutionTimeInMs=%.2f;queryCompileTimeInMs=0.01;queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;"+
		"VMExecutionTimeInMs=%.2f;indexLookupTimeInMs=0.00;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;"+
		"retrievedDocumentCount=%d;retrievedDocumentSize=%d;outputDocumentCount=%d;outputDocumentSize=%d;writeOutputTimeInMs=0.00;indexUtilizationRatio=0.00",
		float64(took.Microseconds())/1000, float64(took.Microseconds())/1000, r.read, r.readSize, r.written, len(r.out))
}

// needsAll reports whether all documents must be read before there is a result.
func (r *queryRunner) needsAll() bool { return r.query.Aggregates() || r.query.Sorted() }

// countAll returns the number of documents if the query asks for nothing else, which
// needs no scan; otherwise -1.
func (r *queryRunner) countAll(partitions []*partition) int64 {
	if !r.query.CountsAll() || r.scope.key != nil || r.scope.prefix != nil || r.scope.narrowed || r.scope.owner.defaultTTL.Load() != 0 {
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
		seen, size, left := 0, r.readSize, false
		select {
		case <-r.canceled:
			return false, fail(http.StatusRequestTimeout, 0, "The client has gone.")
		default:
		}
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			if r.scope.owner.isClosed() {
				return false, failNotFound()
			}
			return false, failGone()
		}
		p.order.each(after, func(place ref) bool {
			if left = seen == scanStep || r.readSize-size > scanStepSize; left {
				return false
			}
			rec := p.record(place)
			if more, f = r.visit(rec); more || f != nil {
				return false
			}
			seen++
			after = rec.number()
			return true
		})
		p.mu.Unlock()
		if more || f != nil || !left {
			r.next = r.start.advance(p.bounds, after)
			return more, f
		}
	}
}

// visit adds a document to the result if it matches. More means that it matches, but
// the page is full. The partition's mutex is held.
func (r *queryRunner) visit(rec record) (more bool, f *failure) {
	q := r.query
	if r.scope.owner.expired(rec, r.now) || !r.scope.contains(rec) || r.ids != nil && !r.ids[string(rec.id())] {
		return false, nil
	}
	r.scratch = r.scope.owner.appendDocument(r.scratch[:0], rec)
	r.read++
	r.readSize += len(r.scratch)
	if matches, err := q.Matches(r.scratch); err != nil || !matches {
		return false, queryFailure(err)
	}
	switch {
	case q.Aggregates():
		return false, queryFailure(q.Gather(r.scratch))
	case q.Sorted():
		return false, r.sort()
	case r.ended():
		return true, nil
	}
	var text []byte
	if r.start.Passed >= q.Offset {
		var err error
		if text, err = q.Project(nil, r.scratch); err != nil {
			return false, queryFailure(err)
		}
	}
	if r.more = r.full(text); r.more {
		return true, nil
	}
	r.start.Passed++
	return false, r.emit(text)
}

// sort keeps the result for the document in scratch, to be sorted.
func (r *queryRunner) sort() *failure {
	text, err := r.query.Project(nil, r.scratch)
	if err != nil || text == nil {
		return queryFailure(err)
	}
	keys, err := r.query.SortKeys(r.scratch)
	if err != nil {
		return queryFailure(err)
	}
	s := sorted{keys, text}
	r.sorted = append(r.sorted, s)
	r.sortedSize += len(text)
	for _, k := range s.keys {
		r.sortedSize += k.Size()
	}
	if len(r.sorted) > maxSorted || r.sortedSize > maxSortedSize {
		return badRequest("The emulator sorts up to 100,000 results of up to 64 MiB together: narrow the query.")
	}
	return nil
}

// queryFailure returns the response to a query that can't be evaluated, nil without an
// error.
func queryFailure(err error) *failure {
	if err == nil {
		return nil
	}
	return fail(http.StatusRequestEntityTooLarge, substatusResponse, userMessage(err))
}

// ended reports whether TOP or LIMIT has been reached.
func (r *queryRunner) ended() bool {
	q := r.query
	return q.Top >= 0 && r.start.Passed >= q.Top || q.Limit >= 0 && r.start.Passed >= q.Offset+q.Limit
}

// full reports whether the page is full, so that the result begins the next one.
func (r *queryRunner) full(text []byte) bool {
	return r.written >= r.page || r.written > 0 && len(r.out)+len(text) > maxPageSize
}

// emit writes a result. An undefined one, nil, is left out.
func (r *queryRunner) emit(text []byte) *failure {
	if text == nil {
		return nil
	}
	if len(text) > maxPageSize {
		return queryFailure(query.ErrTooLarge)
	}
	if r.written > 0 {
		r.out = append(r.out, ',')
	}
	r.out = append(r.out, text...)
	r.written++
	return nil
}

// finish writes the results that need all documents: aggregates and sorted ones.
func (r *queryRunner) finish() *failure {
	q := r.query
	if q.Aggregates() {
		text, err := q.Project(nil, nil)
		if err != nil {
			return queryFailure(err)
		}
		return r.emit(text)
	}
	if !q.Sorted() {
		return nil
	}
	slices.SortStableFunc(r.sorted, func(a, b sorted) int { return q.Compare(a.keys, b.keys) })
	for _, s := range r.sorted[min(r.start.Passed, len(r.sorted)):] {
		if r.ended() {
			return nil
		}
		if r.more = r.full(s.text); r.more {
			r.next = continuation{Passed: r.start.Passed}
			return nil
		}
		if r.start.Passed++; r.start.Passed > q.Offset {
			if f := r.emit(s.text); f != nil {
				return f
			}
		}
	}
	return nil
}
