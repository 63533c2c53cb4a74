package pipeline

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
)

// Found is what a target has of an event.
type Found struct {
	Copies  int    // how often it has the event's effect
	Unknown string // why it is not known whether the target has the effect; empty: it is known
}

// Documents are what the events of a pipeline are in Cosmos DB. It is safe for concurrent use.
type Documents struct {
	pipeline *Pipeline
	target   *cosmosTarget
	sink     *cosmos.Sink // which only reads
	expiry   cosmos.Expiry

	mu     sync.Mutex
	seed   maphash.Seed
	seen   map[uint64]struct{} // hashes of the documents, the first maxSeenDocuments of them
	bound  int                 // of seen
	full   bool                // a document was not remembered
	shared int64
}

// maxSeenDocuments bounds the documents that are remembered: about 40 MB.
const maxSeenDocuments = 1 << 20

// expiryMargin is how much the clocks of the log, of the account and of this machine may differ.
const expiryMargin = 2 * time.Minute

// Documents returns the documents of a pipeline whose target is Cosmos DB, nil for another target.
// Reading them takes at most so many request units a second. The caller closes them.
func (p *Pipeline) Documents(ctx context.Context, ru int) (*Documents, error) {
	t, ok := p.target().(*cosmosTarget)
	if !ok {
		return nil, nil
	}
	sink, err := t.open(ru)
	if err != nil {
		return nil, p.problem(p.places.target, err)
	}
	d := &Documents{pipeline: p, target: t, sink: sink, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, bound: maxSeenDocuments}
	if d.expiry, err = sink.Expiry(ctx); err != nil {
		_ = d.Close(ctx)
		return nil, p.problem(p.places.target, err)
	}
	return d, nil
}

// Close closes the connections.
func (d *Documents) Close(ctx context.Context) error { return d.sink.Close(ctx) }

// Find returns what the container has of each event of a topic, in the order of the events.
func (d *Documents) Find(ctx context.Context, topic sluice.Topic, events []*sluice.Event) ([]Found, error) {
	found := make([]Found, len(events))
	var docs []document
	var of []int // the index of each document's event
	for i, e := range events {
		doc, err := d.document(ctx, e)
		switch {
		case errors.Is(err, sluice.ErrOutage):
			return nil, err
		case err == nil: // an event without a document is a dead letter, or it is lost
			docs, of = append(docs, doc), append(of, i)
		}
	}
	d.countShared(docs)
	stored, err := d.sink.Lookup(ctx, docs)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for k, s := range stored {
		found[of[k]] = d.judge(topic, events[of[k]], &docs[k], &s, now)
	}
	return found, nil
}

// document returns the document of an event. The error is an outage of what decodes its body, or
// the event has no document.
func (d *Documents) document(ctx context.Context, e *sluice.Event) (document, error) {
	e, err := d.pipeline.body.wholeEvent(ctx, e)
	if err != nil {
		return document{}, err
	}
	return d.target.document(e)
}

// judge decides what a stored document says about an event.
func (d *Documents) judge(topic sluice.Topic, e *sluice.Event, doc *document, s *cosmos.Stored, now time.Time) Found {
	switch {
	case doc.Operation == cosmos.Delete && s.Found:
		return Found{Unknown: "the event deletes the document, and a later one may have written it again"}
	case doc.Operation == cosmos.Delete:
		return Found{Copies: 1}
	case !s.Found && d.target.deletes():
		return Found{Unknown: "a later event may have deleted the document"}
	}
	if !s.Found {
		if after := d.expiry.Of(doc.Body); after > 0 && now.Sub(e.Enqueued) >= after-expiryMargin {
			return Found{Unknown: "the document may have expired: its time to live has passed"}
		}
		return Found{}
	}
	if !d.target.conditional && doc.Operation == cosmos.Patch {
		return Found{Unknown: "the document does not show which patches it has had"}
	}
	if !d.target.conditional {
		return Found{Copies: 1}
	}
	if s.Source == nil {
		return Found{Unknown: "the document records no event, so another program has written it"}
	}
	supersedes, known := s.Source.Supersedes(sourceOf(topic.Group.Topic, topic.Incarnation, 0, e))
	switch {
	case !known:
		return Found{Unknown: "the document records an event of another partition or log"}
	case supersedes:
		return Found{Copies: 1}
	}
	return Found{} // it is older
}

// countShared counts documents that earlier events have too: of these events, which have
// written it is not known.
func (d *Documents) countShared(docs []document) {
	if d.target.conditional {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, doc := range docs {
		h := maphash.String(d.seed, keyOf(doc))
		if _, again := d.seen[h]; again {
			d.shared++
		} else if d.full = len(d.seen) >= d.bound; !d.full {
			d.seen[h] = struct{}{}
		}
	}
}

// Shared returns how many events so far have the document of an earlier event, without a
// record in it of the event that wrote it. If there are too many documents to remember, it is at
// least so many.
func (d *Documents) Shared() (events int64, atLeast bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shared, d.full
}
