package cosmosdb

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

const maxBatch = 100

// batch is a batch of operations in a request. It is reused.
type batch struct {
	ops  []batchOp
	docs []document
}

// batchOp is an operation in a request.
type batchOp struct {
	verb        verb
	id          []byte
	key         []byte // the partition key in JSON
	hasKey      bool
	hasBody     bool
	body        []byte // as it was sent
	err         error  // of the document
	doc         *document
	ifMatch     []byte
	ifNoneMatch []byte
	minimal     bool // the client doesn't want the written document in the result
}

var (
	errBatch     = errors.New("a batch is an array of operations, each an object with operationType, id, partitionKey and resourceBody")
	errBatchSize = errors.New("batch request has more operations than what is supported")
	errNoBatch   = errors.New("batch request has no operations")
)

// read parses a batch and the documents in it. A document that can't be stored is an
// error of its operation, not of the batch.
func (b *batch) read(data []byte, paths []keyPath) error {
	b.ops = b.ops[:0]
	if len(b.docs) < maxBatch {
		b.docs = make([]document, maxBatch)
	}
	s := jsonscan.New(data, maxDepth)
	if s.Peek() != '[' {
		return errBatch
	}
	err := s.Array(func() error {
		if len(b.ops) == maxBatch {
			return errBatchSize
		}
		if s.Peek() != '{' {
			return errBatch
		}
		b.ops = append(b.ops, batchOp{doc: &b.docs[len(b.ops)]})
		op := &b.ops[len(b.ops)-1]
		return s.Object(func(name []byte) error { return op.readMember(s, name, paths) })
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && len(b.ops) == 0 {
		err = errNoBatch
	}
	return notJSON(err)
}

func (op *batchOp) readMember(s *jsonscan.Scanner, name []byte, paths []keyPath) error {
	if string(name) == `"resourceBody"` && s.Peek() == '{' {
		op.hasBody = true
		from := s.Offset()
		err := op.doc.scan(s, paths)
		if errors.Is(err, errJSON) {
			return err
		}
		op.err, op.body = err, s.TextFrom(from)
		return nil
	}
	value, err := s.Value()
	if err != nil {
		return err
	}
	text := value[0] == '"'
	switch string(name) {
	case `"operationType"`:
		switch string(value) {
		case `"Create"`:
			op.verb = verbCreate
		case `"Upsert"`:
			op.verb = verbUpsert
		case `"Replace"`:
			op.verb = verbReplace
		case `"Read"`:
			op.verb = verbRead
		case `"Delete"`:
			op.verb = verbDelete
		case `"Patch"`:
			op.verb = verbPatch
		}
	case `"id"`:
		if text {
			op.id = jsonscan.Unquote(value)
		}
	case `"partitionKey"`:
		op.key, op.hasKey = value, true
		if text {
			op.key = jsonscan.Unquote(value)
		}
	case `"minimalReturnPreference"`:
		op.minimal = string(value) == "true"
	case `"ifMatch"`:
		if text {
			op.ifMatch = jsonscan.Unquote(value)
		}
	case `"ifNoneMatch"`:
		if text {
			op.ifNoneMatch = jsonscan.Unquote(value)
		}
	}
	return nil
}

// batch executes a batch: a transactional one of one partition key, or a bulk batch of
// one partition key range.
func (c *call) batch(owner *Container) *failure {
	data, f := c.body(c.account.batchLimit())
	if f != nil {
		return f
	}
	b := &c.buffers.batch
	if err := b.read(data, owner.paths); err != nil {
		f := badRequest(userMessage(err))
		f.charge = chargeConflict
		return f
	}
	if f := c.checkBatch(b); f != nil {
		return f
	}
	if c.isTrue("X-Ms-Cosmos-Batch-Atomic") || c.rangeID() == "" {
		return c.transaction(owner, b)
	}
	return c.bulk(owner, b)
}

// prepare returns the operation and the hash of its partition key; or an error result.
// In a transactional batch, key is the partition key of all operations; in a bulk batch
// it is nil, and each operation has its own.
func (op *batchOp) prepare(owner *Container, key []byte, hash []byte) (operation, []byte, *result) {
	refused := func(substatus int, message string) (operation, []byte, *result) {
		return operation{}, nil, &result{status: http.StatusBadRequest, substatus: substatus, charge: chargeConflict, message: message}
	}
	write := op.verb == verbCreate || op.verb == verbUpsert || op.verb == verbReplace
	switch {
	case op.verb == 0:
		return refused(0, "The emulator carries out Create, Upsert, Replace, Patch, Read and Delete.")
	case (write || op.verb == verbPatch) && !op.hasBody:
		return refused(0, "The operation needs a resourceBody that is an object.")
	case !write && len(op.id) == 0:
		return refused(0, "The operation needs an id.")
	case write && op.err != nil:
		o, h, res := refused(0, userMessage(op.err))
		if errors.Is(op.err, errTooLarge) {
			res.status = http.StatusRequestEntityTooLarge
		}
		return o, h, res
	case op.verb == verbReplace && len(op.id) > 0 && !bytes.Equal(op.id, op.doc.id):
		return refused(0, "The id in the document must be that of the operation.")
	}
	out := operation{verb: op.verb, id: op.id, ifMatch: op.ifMatch, ifNoneMatch: op.ifNoneMatch}
	if op.verb == verbPatch {
		var err error
		if out.patch, err = readPatch(op.body); err != nil {
			return refused(0, userMessage(err))
		}
	}
	if write {
		out.doc, out.id, out.keyText = op.doc, op.doc.id, op.doc.keyText
	}
	switch {
	case key != nil:
		if write && !bytes.Equal(op.doc.keyText, key) {
			return refused(substatusMismatch, messageMismatch)
		}
		out.keyText = key
	case write && (!op.hasKey || bytes.Equal(op.key, op.doc.keyText)):
		hash = owner.hash.AppendHash(hash, op.doc.key...)
	default:
		values, f := owner.parseKey(string(op.key))
		if f != nil {
			return refused(f.substatus, f.message)
		}
		text := partitionkey.AppendJSON(nil, values)
		if write && !bytes.Equal(text, op.doc.keyText) {
			return refused(substatusMismatch, messageMismatch)
		}
		out.keyText = text
		hash = owner.hash.AppendHash(hash, values...)
	}
	out.hash = hashOf(out.keyText, out.id)
	return out, hash, nil
}

// bulk executes independent operations.
func (c *call) bulk(owner *Container, b *batch) *failure {
	rangeID := c.rangeID()
	p, f := owner.find(rangeID)
	if f != nil {
		return f
	}
	now := c.account.now()
	if wait, ok := p.budget.admit(now); !ok {
		c.account.stats.operations.Add(int64(len(b.ops)))
		c.account.stats.throttled.Add(int64(len(b.ops)) - 1)
		return failThrottled(wait)
	}
	name := c.path[1] + "/" + c.path[3]
	header := c.r.Header.Get("X-Ms-Cosmos-Batch-Continue-On-Error")
	continueOnError := header == "" && !c.account.cfg.AsAzure.StopOnError || strings.EqualFold(header, "true")
	w := resultWriter{owner: owner, minimal: c.minimal(verbUpsert), out: append(c.buffers.out[:0], '[')}
	failed := false
	refused := 0.0 // RU of the operations that were throttled
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return failGone()
	}
	for i := range b.ops {
		res := result{status: http.StatusFailedDependency}
		if !failed || continueOnError {
			res = c.bulkOperation(owner, p, &b.ops[i], &w, name, now, refused)
		}
		if res.status == http.StatusTooManyRequests {
			c.account.stats.throttled.Add(1)
			if refused += chargeRead; b.ops[i].hasBody {
				refused += chargeCreate(b.ops[i].doc.size, b.ops[i].doc.values, owner.indexed.Load())
			}
		}
		failed = failed || !res.ok()
		w.write(&b.ops[i], &res)
	}
	p.mu.Unlock()
	c.account.stats.operations.Add(int64(len(b.ops)))
	return c.answerBatch(owner, p, &w, failed)
}

// bulkOperation executes one operation of a bulk batch; ahead is the RU of the
// operations in it that were throttled before. p.mu is held.
func (c *call) bulkOperation(owner *Container, p *partition, op *batchOp, w *resultWriter, container string, now time.Time, ahead float64) result {
	if fault, ok := c.account.faults.next(OnBatch, container, p.id, true); ok {
		f := fault.failure()
		return result{status: f.status, substatus: f.substatus, charge: f.charge, message: f.message, retryAfter: f.retryAfter}
	}
	var space [128]byte
	o, hash, refused := op.prepare(owner, nil, space[:0])
	if refused != nil {
		p.budget.spend(refused.charge)
		return *refused
	}
	if !p.bounds.Contains(string(hash)) {
		f := failGone()
		return result{status: f.status, substatus: f.substatus, message: f.message}
	}
	if _, ok := p.budget.admit(now); !ok {
		wait := p.budget.waitBehind(ahead)
		f := failThrottled(wait)
		return result{status: f.status, substatus: f.substatus, charge: f.charge, message: f.message, retryAfter: wait}
	}
	if full := c.answerFull(p, &o, w, w.minimal || op.minimal); full != nil {
		p.budget.spend(full.charge)
		return *full
	}
	res := owner.apply(p, &o, now, nil)
	p.budget.spend(res.charge)
	return res
}

// transaction executes all operations or none.
func (c *call) transaction(owner *Container, b *batch) *failure {
	values, f := owner.parseKey(c.r.Header.Get(keyHeader))
	if f != nil {
		return f
	}
	key := partitionkey.AppendJSON(nil, values)
	hash := owner.hash.Hash(values...)
	now := c.account.now()
	c.account.stats.operations.Add(int64(len(b.ops)))
	for {
		p := owner.route(hash)
		if wait, ok := p.budget.admit(now); !ok {
			return failThrottled(wait)
		}
		p.mu.Lock()
		if !p.gone {
			w, failed, err := c.atomically(owner, p, b, key, c.minimal(verbUpsert), now)
			p.mu.Unlock()
			if err != nil {
				return fail(http.StatusInternalServerError, 0, messageFull)
			}
			p.budget.spend(w.charge)
			return c.answerBatch(owner, p, w, failed)
		}
		p.mu.Unlock()
		if owner.isClosed() {
			return failNotFound()
		}
	}
}

// atomically executes a transactional batch. p.mu is held.
func (c *call) atomically(owner *Container, p *partition, b *batch, key []byte, minimal bool, now time.Time) (w *resultWriter, failed bool, err error) {
	w = &resultWriter{owner: owner, minimal: minimal, out: append(c.buffers.out[:0], '[')}
	var undo undoLog
	for i := range b.ops {
		op, _, refused := b.ops[i].prepare(owner, key, nil)
		if refused == nil {
			refused = c.answerFull(p, &op, w, minimal || b.ops[i].minimal)
		}
		if refused == nil {
			res := owner.apply(p, &op, now, &undo)
			refused = &res
		}
		if refused.ok() {
			w.write(&b.ops[i], refused)
			continue
		}
		if err := p.rollback(&undo); err != nil {
			return nil, true, err
		}
		w.out = append(w.out[:0], '[')
		for j := range b.ops {
			res := result{status: http.StatusFailedDependency}
			if j == i {
				res = *refused
			}
			w.write(&b.ops[j], &res)
		}
		return w, true, nil
	}
	return w, false, nil
}

func (c *call) answerBatch(owner *Container, p *partition, w *resultWriter, failed bool) *failure {
	c.buffers.out = append(w.out, ']')
	c.charge = w.charge
	c.session(owner, p.id)
	status := http.StatusOK
	if failed {
		status = http.StatusMultiStatus
	}
	return c.answer(status, c.buffers.out)
}

// resultWriter writes the results of a batch.
type resultWriter struct {
	owner   *Container
	minimal bool
	out     []byte
	charge  float64
}

// write appends a result. The partition is locked, so that its record is valid.
func (w *resultWriter) write(op *batchOp, r *result) {
	b := w.out
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `{"statusCode":`...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	if r.substatus != 0 {
		b = append(b, `,"subStatusCode":`...)
		b = strconv.AppendInt(b, int64(r.substatus), 10)
	}
	b = append(b, `,"requestCharge":`...)
	b = appendFloat(b, round(r.charge))
	w.charge += r.charge
	if r.rec != nil {
		b = append(b, `,"eTag":"\`...)
		b = appendEtag(b, r.rec.version(), r.rec.seconds())
		b[len(b)-1] = '\\'
		b = append(b, `""`...)
		if r.ok() && r.status != http.StatusNotModified && (op.verb == verbRead || !w.minimal && !op.minimal) {
			b = append(b, `,"resourceBody":`...)
			b = w.owner.appendDocument(b, r.rec)
		}
	}
	if r.retryAfter > 0 {
		b = append(b, `,"retryAfterMilliseconds":`...)
		b = strconv.AppendInt(b, r.retryAfter.Milliseconds(), 10)
	}
	if r.message != "" {
		b = append(b, `,"message":`...)
		b = appendQuoted(b, r.message)
	}
	w.out = append(b, '}')
}
