package cosmosdb

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

const keyHeader = "X-Ms-Documentdb-Partitionkey"

// writeDocument creates, upserts or replaces one document.
func (c *call) writeDocument(owner *Container, v verb) *failure {
	if c.isTrue("X-Ms-Documentdb-Is-Upsert") && v == verbCreate {
		v = verbUpsert
	}
	data, f := c.body(c.account.documentLimit())
	if f != nil {
		return f
	}
	doc := &c.buffers.doc
	if err := doc.read(data, owner.paths); err != nil {
		return documentFailure(err)
	}
	if f := c.checkKey(owner, doc); f != nil {
		return f
	}
	if v == verbReplace && string(doc.id) != c.path[5] {
		return badRequest("The id in the document must be that in the request's path.")
	}
	op := operation{verb: v, doc: doc, id: doc.id, keyText: doc.keyText}
	return c.pointOperation(owner, &op, owner.hash.Hash(doc.key...))
}

// documentFailure returns the response to a document that can't be stored.
func documentFailure(err error) *failure {
	f := badRequest(userMessage(err))
	if errors.Is(err, errTooLarge) {
		f.status = http.StatusRequestEntityTooLarge
	}
	f.charge = chargeConflict
	return f
}

// userMessage returns an error's text as a sentence for the client's user.
func userMessage(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// checkKey compares the partition key in the header with the document's.
func (c *call) checkKey(owner *Container, doc *document) *failure {
	header := c.r.Header.Get(keyHeader)
	if header == string(doc.keyText) {
		return nil
	}
	values, f := owner.parseKey(header)
	if f != nil {
		return f
	}
	if string(partitionkey.AppendJSON(nil, values)) != string(doc.keyText) {
		return &failure{status: http.StatusBadRequest, substatus: substatusMismatch, message: messageMismatch, charge: chargeConflict}
	}
	return nil
}

// parseKey parses the complete partition key of a document, from a header or an
// operation.
func (c *Container) parseKey(text string) ([]partitionkey.Value, *failure) {
	if text == "" {
		return nil, badRequest("The partition key must be stated in the header x-ms-documentdb-partitionkey.")
	}
	values, err := partitionkey.Parse([]byte(text))
	if err != nil || len(text) > maxKey*6 {
		return nil, badRequest("Partition key " + strconv.Quote(text[:min(len(text), 40)]) + " is invalid.")
	}
	if len(values) == 0 && len(c.paths) == 1 {
		values = []partitionkey.Value{partitionkey.Undefined} // old clients send it for a document without the property
	}
	if len(values) != len(c.paths) {
		return nil, &failure{
			status: http.StatusBadRequest, substatus: substatusMismatch, charge: chargeConflict,
			message: "The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection.",
		}
	}
	return values, nil
}

// operationFromPath returns an operation on the document in the request's path and its
// effective partition key.
func (c *call) operationFromPath(owner *Container, v verb) (op operation, hash string, f *failure) {
	values, f := owner.parseKey(c.r.Header.Get(keyHeader))
	if f != nil {
		return op, "", f
	}
	return operation{verb: v, id: []byte(c.path[5]), keyText: partitionkey.AppendJSON(nil, values)}, owner.hash.Hash(values...), nil
}

func (c *call) readDocument(owner *Container) *failure {
	op, hash, f := c.operationFromPath(owner, verbRead)
	if f != nil {
		return f
	}
	return c.pointOperation(owner, &op, hash)
}

func (c *call) deleteDocument(owner *Container) *failure {
	op, hash, f := c.operationFromPath(owner, verbDelete)
	if f != nil {
		return f
	}
	return c.pointOperation(owner, &op, hash)
}

// pointOperation executes an operation on one document and sends the response.
func (c *call) pointOperation(owner *Container, op *operation, hash string) *failure {
	op.hash = hashOf(op.keyText, op.id)
	op.ifMatch = []byte(c.r.Header.Get("If-Match"))
	op.ifNoneMatch = []byte(c.r.Header.Get("If-None-Match"))
	now := c.account.now()
	c.account.stats.operations.Add(1)
	for {
		p := owner.route(hash)
		if wait, ok := p.budget.admit(now); !ok {
			return failThrottled(wait)
		}
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			if owner.isClosed() {
				return failNotFound()
			}
			continue // it was split after it was looked up: route again, as the gateway does
		}
		res := owner.apply(p, op, now, nil)
		c.buffers.out = c.buffers.out[:0]
		if res.rec != nil && res.ok() && res.status != http.StatusNotModified && !c.minimal(op.verb) {
			c.buffers.out = owner.appendDocument(c.buffers.out, res.rec)
		}
		if res.rec != nil {
			c.w.Header()["etag"] = []string{etag(res.rec.version(), res.rec.seconds())}
		}
		p.mu.Unlock()
		p.budget.spend(res.charge)
		c.session(owner, p.id)
		if !res.ok() {
			return &failure{status: res.status, substatus: res.substatus, message: res.message, charge: res.charge}
		}
		c.charge = res.charge
		return c.answer(res.status, c.buffers.out)
	}
}

// minimal reports whether the client doesn't want the written document in the response.
func (c *call) minimal(v verb) bool {
	return v != verbRead && strings.Contains(c.r.Header.Get("Prefer"), "return=minimal")
}

// session sets the session token. Reads always see the latest write, so clients don't
// need it.
func (c *call) session(owner *Container, rangeID string) {
	h := c.w.Header()
	lsn := strconv.FormatUint(owner.version.Load(), 10)
	h["lsn"] = []string{lsn}
	h["x-ms-session-token"] = []string{rangeID + ":-1#" + lsn}
	h["x-ms-alt-content-path"] = []string{"dbs/" + c.path[1] + "/colls/" + c.path[3]}
	h["x-ms-content-path"] = []string{owner.rid}
}

func (c *Container) isClosed() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.closed
}
