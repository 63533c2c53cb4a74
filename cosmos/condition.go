package cosmos

import (
	"net/http"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// A conditional write consists of operations that are harmless if they are late or
// repeated: a create that fails if the document exists, a replacement of exactly the
// version that was read, and a read.
//
//	not in the cache   create ── 409 ──► read ──► older: replace that version ── 412 ──► read …
//	                                        └──► of this event or a newer one: done
//	in the cache       replace that version ── 412 ──► read …
//
// So a document that is new, or that this sink wrote or read last, costs as much as
// an unconditional write.

// maxConditionalAttempts bounds how often another writer can intervene between a
// read and the replacement. After that the engine retries.
const maxConditionalAttempts = 20

// maxAbsent is how often a document may be missing after a conflict with it, because it was
// deleted.
const maxAbsent = 2

// firstStep sets the first step of a record. It returns false if there is nothing to
// do, because the stored version is known to be of this event or a newer one.
func (s *Sink) firstStep(r *record) bool {
	source := r.doc.Source
	r.step = step(r.doc.Operation)
	if r.lookup != nil {
		r.step = read
	}
	if source == nil {
		return true
	}
	known, ok := s.versions.get(r)
	switch {
	case r.doc.Operation == Create:
		r.step = create
	case ok && source.comparable(&known.source) && !source.newer(&known.source):
		return false
	case ok:
		r.step, r.etag = r.overwrite(), known.etag
	case r.doc.Operation == Upsert:
		r.step = create
	default:
		r.step = read
	}
	return true
}

// overwrite is the step that changes the version that was read.
func (r *record) overwrite() step {
	if r.doc.Operation == Patch {
		return patch
	}
	return replace
}

// advance processes the response to a step of a conditional write. It returns true
// if the record is completed or has another step, and false if op is the outcome.
func (q *queue) advance(r *record, op *operation) bool {
	s, v := q.sink, outcomeOf(op.status, op.sub)
	switch {
	case v == written && r.step == read:
		var stamp *Source
		if !members(op.body, func(name, value []byte) {
			switch string(name) {
			case StampProperty:
				stamp = parseSource(value)
			case "_etag":
				r.etag = unquote(value)
			}
		}) || r.etag == "" {
			op.status = http.StatusBadGateway // not a document: an error of the account
			return false
		}
		if stamp != nil {
			s.versions.put(r, r.etag, *stamp)
		}
		return q.compare(r, stamp, op)
	case v == written:
		if op.etag != "" {
			s.versions.put(r, op.etag, *r.doc.Source)
		}
		return false
	case op.status == http.StatusConflict && r.step == create && r.absent >= maxAbsent:
		return false // it is another document that is in the way, at a unique key
	case op.status == http.StatusConflict && r.step == create, op.status == http.StatusPreconditionFailed && r.step.overwrites():
		return q.retryStep(r, read)
	case op.status == http.StatusNotFound && v == rejected && r.doc.Operation != Replace && r.doc.Operation != Patch:
		if r.step == read {
			r.absent++
		}
		return q.retryStep(r, create) // it was deleted in the meantime
	}
	return false
}

// compare decides whether the record replaces the stored version.
func (q *queue) compare(r *record, stored *Source, op *operation) bool {
	source := r.doc.Source
	same := stored != nil && source.comparable(stored)
	switch {
	case r.doc.Operation == Create && same && stored.Sequence == source.Sequence,
		r.doc.Operation != Create && same && !source.newer(stored):
		q.sink.finish(r, driver.WriteResult{Cost: r.cost})
		return true
	case r.doc.Operation == Create:
		op.status, op.sub = http.StatusConflict, 0
		return false
	}
	return q.retryStep(r, r.overwrite())
}

// retryStep queues a record with its next step.
func (q *queue) retryStep(r *record, next step) bool {
	r.step = next
	if !next.overwrites() {
		r.etag = ""
	}
	if r.attempts++; r.attempts > maxConditionalAttempts {
		e := &Error{Container: q.sink.account.name(), Document: r.doc.ID, Status: http.StatusPreconditionFailed, Message: "other writers change the document at the same time"}
		q.sink.finish(r, e.result(retryable, 0, r.cost))
		return true
	}
	if !q.push(r) {
		q.sink.awaitRoutes([]*record{r}, q, nil)
	}
	return true
}

// versionCache has the newest known versions of documents: at least limit of them,
// at most twice as many.
type versionCache struct {
	limit int

	mu            sync.Mutex
	recent, older map[string]version
}

type version struct {
	etag   string
	source Source
}

func newVersionCache(limit int) *versionCache {
	return &versionCache{limit: limit, recent: map[string]version{}}
}

func (m *versionCache) key(dst []byte, r *record) []byte {
	return append(append(partitionkey.AppendJSON(dst, r.values()), 0), r.doc.ID...)
}

func (m *versionCache) get(r *record) (version, bool) {
	var space [256]byte
	key := m.key(space[:0], r)
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.recent[string(key)]
	if !ok {
		v, ok = m.older[string(key)]
	}
	return v, ok
}

func (m *versionCache) put(r *record, etag string, source Source) {
	key := string(m.key(nil, r))
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.recent) >= m.limit {
		m.recent, m.older = map[string]version{}, m.recent
	}
	m.recent[key] = version{etag, source}
}

// clear removes everything, because the container was recreated.
func (m *versionCache) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent, m.older = map[string]version{}, nil
}
