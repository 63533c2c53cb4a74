package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/pipeline/formats"
	"github.com/sluice-go/sluice/sender"
)

// maxClaimed is the largest size in claim_check.
const maxClaimed = 256 << 20

// readClaimCheck reads source.claim_check: the container of the bodies that are too large for
// events.
func (r *reader) readClaimCheck(n strictyaml.Node) {
	r.given.claimCheck, r.places.claim = &n, n.Place()
	r.body.claim = readBodies(n, "max_size", func(cfg *blobstore.BodiesConfig, bytes int) { cfg.MaxBytes = int64(bytes) })
}

// readClaimCheck reads claim_check of a target: the container for bodies that are too large for
// messages.
func (t *messageTarget) readClaimCheck(n strictyaml.Node) {
	t.claim = &sender.ClaimCheck{}
	t.bodies = readBodies(n, "over", func(_ *blobstore.BodiesConfig, bytes int) { t.claim.Over = bytes })
	t.claim.Store = t.bodies
}

// readBodies reads a container of bodies, with a key whose value is a size; nil if it is wrong.
func readBodies(n strictyaml.Node, key string, set func(cfg *blobstore.BodiesConfig, bytes int)) *blobstore.Bodies {
	var b blobContainer
	var size int
	ok := b.read(n, strictyaml.Keys{
		"prefix": b.readPrefix,
		key:      func(n strictyaml.Node) { n.SizeIn(&size, 1, maxClaimed) },
	})
	if !ok {
		return nil
	}
	cfg, err := b.config()
	if err != nil {
		n.Fail("%w", err)
		return nil
	}
	full := &blobstore.BodiesConfig{Config: *cfg}
	set(full, size)
	bodies, err := blobstore.NewBodies(b.where, full)
	if err != nil {
		n.Fail("%w", err)
	}
	return bodies
}

var errNoClaimCheck = errors.New("the body is in a blob (claim check): add source.claim_check with its container to the pipeline, and retry the dead letter")

// bodyReader reads the bodies of events.
type bodyReader struct {
	claim  *blobstore.Bodies // where bodies are that are too large for events; nil: it is not known
	format *formats.Decoder  // nil: bodies are used as they are
	proof  proof
}

// wholeEvent returns an event with the body that is mapped: fetched from its blob if it is there,
// and decoded. What the body takes is charged to the partition of ctx, if there is one, until that
// collects it.
func (b *bodyReader) wholeEvent(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	if e.Undecodable != "" { // the engine makes a dead letter of it
		return nil, fmt.Errorf("the event cannot be decoded (%s)", e.Undecodable)
	}
	if b.format == nil && !blobstore.IsReference(e) {
		return e, nil
	}
	ctx, _ = memory.Begin(ctx)
	whole, err := b.fetchAndDecode(ctx, e)
	if err != nil || whole == e {
		memory.Shrink(ctx, 0)
	} else {
		memory.Shrink(ctx, int64(len(whole.Body)))
	}
	return whole, err
}

func (b *bodyReader) fetchAndDecode(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	if blobstore.IsReference(e) {
		if b.claim == nil {
			return nil, errNoClaimCheck
		}
		var err error
		if e, err = b.claim.Fetch(ctx, e); err != nil {
			if errors.Is(err, blobstore.ErrBody) || errors.Is(err, memory.ErrBusy) {
				return nil, err
			}
			return nil, driver.Outage(err)
		}
	}
	if b.format == nil {
		return e, nil
	}
	return b.format.Event(ctx, e)
}

// deliveredEvent is wholeEvent for the delivery, whose errors say whether bodies have been read
// before.
func (b *bodyReader) deliveredEvent(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	whole, err := b.wholeEvent(ctx, e)
	if errors.Is(err, memory.ErrBusy) || err != nil && ctx.Err() != nil {
		return nil, err // about memory, or the end: not about the body
	}
	return whole, b.proof.record(err)
}
