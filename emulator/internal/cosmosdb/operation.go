package cosmosdb

import (
	"bytes"
	"net/http"
	"time"
)

// verb is the kind of an operation.
type verb byte

const (
	verbCreate verb = iota + 1
	verbUpsert
	verbReplace
	verbRead
	verbDelete
	verbPatch
)

// operation is an operation on a document, on its own or in a batch.
type operation struct {
	verb        verb
	doc         *document // of create, upsert and replace
	patch       *patch
	id, keyText []byte
	hash        uint64
	ifMatch     []byte
	ifNoneMatch []byte
}

// result is the result of an operation. The record is valid as long as the partition is
// locked.
type result struct {
	status     int
	substatus  int
	charge     float64
	rec        record
	message    string
	retryAfter time.Duration
}

func (r *result) ok() bool { return r.status < 300 || r.status == http.StatusNotModified }

const (
	substatusMismatch  = 1001 // the partition key differs from the document's
	substatusRecreated = 1024 // the container is not the one that the client means
	substatusGone      = 1002 // the partition key range was split
	substatusRU        = 3200 // more request units than provisioned
	substatusFull      = 1014
	substatusResponse  = 3402 // the response would be too large
)

const (
	messageConflict     = "Resource with specified id or name already exists."
	messageUnique       = "Unique index constraint violation."
	messageNotFound     = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found"
	messagePrecondition = "One of the specified pre-condition is not met"
	messageThrottled    = "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429"
	messageMismatch     = "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"
	messageFull         = "The partition is full: it holds as much as a physical partition may."
)

// apply executes an operation on a document of the partition. p.mu is held. If undo
// isn't nil, it records how to roll the operation back.
func (c *Container) apply(p *partition, op *operation, now time.Time, undo *undoLog) result {
	r, rec := p.find(op.hash, op.keyText, op.id)
	if rec != nil && c.expired(rec, now) {
		p.remove(op.hash, r)
		r, rec = 0, nil
	}
	if f := precondition(op, rec); f != nil {
		return *f
	}
	if op.verb == verbPatch {
		var f *result
		if op.doc, f = c.patched(op.patch, rec); f != nil {
			return *f
		}
	}
	if f := c.checkWrite(p, op, rec, now); f != nil {
		return *f
	}
	switch op.verb {
	case verbRead:
		return result{status: http.StatusOK, charge: chargeRead * sizeFactor(rec.size()), rec: rec}
	case verbDelete:
		ru := chargeCreate(rec.size(), rec.values(), c.indexed.Load())
		undo.add(op, undo.copy(rec))
		p.remove(op.hash, r)
		c.written(p, op, nil, true, now)
		return result{status: http.StatusNoContent, charge: ru}
	}
	var err error
	var before record
	done := result{status: http.StatusOK}
	if r == 0 {
		done.status = http.StatusCreated
		done.charge = chargeCreate(op.doc.size, op.doc.values, c.indexed.Load())
		done.rec, err = p.insert(op.hash, op.doc, c.documents.Add(1), c.version.Add(1), uint32(now.Unix()))
	} else {
		done.charge = chargeReplace(op.doc.size, c.indexed.Load())
		before = undo.copy(rec)
		done.rec, err = p.replace(op.hash, r, op.doc, c.version.Add(1), uint32(now.Unix()))
	}
	if err != nil {
		return result{status: http.StatusForbidden, substatus: substatusFull, charge: chargeConflict, message: messageFull}
	}
	undo.add(op, before)
	c.written(p, op, op.doc.body, r != 0, now)
	return done
}

// checkWrite returns the error result of a document that the container's policies refuse.
func (c *Container) checkWrite(p *partition, op *operation, before record, now time.Time) *result {
	if op.doc == nil {
		return nil
	}
	if op.doc.ttl == invalidTTL && c.defaultTTL.Load() != 0 {
		return &result{status: http.StatusBadRequest, charge: chargeConflict, message: userMessage(errTTL)}
	}
	number := uint64(0)
	if before != nil {
		number = before.number()
	}
	if !p.unique.conflicts(op.keyText, op.doc.body, number) {
		return nil
	}
	if c.sweep(p, now); !p.unique.conflicts(op.keyText, op.doc.body, number) {
		return nil // with a document that has expired
	}
	return &result{status: http.StatusConflict, charge: chargeConflict, message: messageUnique}
}

// written counts and reports a write. now is the time of the write, so that the documents of the
// batch that it belongs to, which may be rolled back, have not expired.
func (c *Container) written(p *partition, op *operation, body []byte, replaced bool, now time.Time) {
	if p.writes++; p.writes%sweepEvery == 0 {
		c.sweep(p, now)
	}
	if f := c.account.cfg.OnWrite; f != nil {
		f(Write{c.database.id, c.id, p.id, string(op.id), string(op.keyText), body, replaced})
	}
}

// precondition returns the error result of an operation that can't be executed on rec,
// nil without a document; otherwise nil.
func precondition(op *operation, rec record) *result {
	exists := rec != nil
	if exists && op.verb == verbCreate {
		return &result{status: http.StatusConflict, charge: chargeConflict, message: messageConflict}
	}
	if !exists && (op.verb == verbRead || op.verb == verbReplace || op.verb == verbDelete || op.verb == verbPatch) {
		return &result{status: http.StatusNotFound, charge: chargeNotFound, message: messageNotFound}
	}
	if len(op.ifMatch) > 0 && exists && !matches(op.ifMatch, rec) {
		return &result{status: http.StatusPreconditionFailed, charge: chargeConflict, message: messagePrecondition}
	}
	if len(op.ifNoneMatch) > 0 && exists && matches(op.ifNoneMatch, rec) {
		if op.verb == verbRead {
			return &result{status: http.StatusNotModified, charge: chargeRead * sizeFactor(rec.size()), rec: rec}
		}
		return &result{status: http.StatusPreconditionFailed, charge: chargeConflict, message: messagePrecondition}
	}
	return nil
}

// matches reports whether an etag in a header or a batch is the document's. Some
// clients omit the quotes.
func matches(tag []byte, rec record) bool {
	if string(tag) == "*" {
		return true
	}
	var space [64]byte
	own := appendEtag(space[:0], rec.version(), rec.seconds())
	return bytes.Equal(tag, own) || bytes.Equal(tag, own[1:len(own)-1])
}

// appendDocument appends a document with its system properties.
func (c *Container) appendDocument(dst []byte, rec record) []byte {
	dst = append(dst, rec.body()...)
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, `"_rid":"`...)
	dst = appendRID(dst, c.prefix, rec.number(), documentKind)
	dst = append(append(dst, `","_self":"`...), c.self...)
	dst = append(dst, "docs/"...)
	dst = appendRID(dst, c.prefix, rec.number(), documentKind)
	dst = append(dst, `/","_etag":"\`...)
	dst = appendEtag(dst, rec.version(), rec.seconds())
	dst[len(dst)-1] = '\\'
	dst = append(dst, `"","_attachments":"attachments/","_ts":`...)
	return append(appendInt(dst, int64(rec.seconds())), '}')
}

// undoLog records how to roll back a transactional batch. A nil log records nothing.
type undoLog struct{ steps []undoStep }

type undoStep struct {
	hash    uint64
	keyText []byte
	id      []byte
	old     record // nil: there was no document
}

// copy copies a record that is about to be overwritten.
func (u *undoLog) copy(rec record) record {
	if u == nil {
		return nil
	}
	return bytes.Clone(rec[:rec.length()])
}

// add records an operation, with the copy of the record before it.
func (u *undoLog) add(op *operation, before record) {
	if u == nil {
		return
	}
	u.steps = append(u.steps, undoStep{op.hash, bytes.Clone(op.keyText), bytes.Clone(op.id), before})
}

// rollback undoes all steps, the last one first. p.mu is held.
func (p *partition) rollback(u *undoLog) error {
	for i := len(u.steps) - 1; i >= 0; i-- {
		s := &u.steps[i]
		r, rec := p.find(s.hash, s.keyText, s.id)
		old := s.old
		switch {
		case old == nil:
			p.remove(s.hash, r)
		case rec == nil:
			if err := p.restore(s.hash, old); err != nil {
				return err
			}
		default:
			d := document{id: old.id(), keyText: old.key(), body: old.body(), size: old.size(), values: old.values(), ttl: old.ttl()}
			if _, err := p.replace(s.hash, r, &d, old.version(), old.seconds()); err != nil {
				return err
			}
		}
	}
	return nil
}

// restore adds a deleted document again, at its former place.
func (p *partition) restore(hash uint64, old record) error {
	r, err := p.arena.alloc(old.length())
	if err != nil {
		return err
	}
	rec := p.record(r)
	copy(rec, old)
	p.link(hash, r, rec)
	p.order.restore(old.number(), r)
	p.unique.add(rec)
	p.bytes += int64(old.size())
	return nil
}
