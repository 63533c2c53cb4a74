package pipeline

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// maxClaimed is the largest value of source.claim_check.max_size.
const maxClaimed = 256 << 20

// readClaimCheck reads source.claim_check: the container of the bodies that are too large for events.
func (p *Pipeline) readClaimCheck(n strictyaml.Node) {
	p.keyNodes.claimCheck = &n
	var b blobContainer
	var most int
	ok := b.read(n, strictyaml.Keys{
		"max_size": func(n strictyaml.Node) {
			if n.Size(&most, maxClaimed) && most == 0 {
				n.Fail("must be more than zero")
			}
		},
	})
	if !ok {
		return
	}
	cfg, err := b.config()
	if err == nil {
		p.claim, err = blobstore.NewBodies(b.where, &blobstore.BodiesConfig{Config: *cfg, MaxBytes: int64(most)})
	}
	if err != nil {
		n.Fail("%w", err)
	}
}

var errNoClaimCheck = errors.New("the body is in a blob (claim check): add source.claim_check with its container to the pipeline, and retry the dead letter")

// wholeEvent returns an event with the body that is mapped: fetched from its blob if it is there, and decoded.
func (p *Pipeline) wholeEvent(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	if blobstore.IsReference(e) {
		if p.claim == nil {
			return nil, errNoClaimCheck
		}
		var err error
		if e, err = p.claim.Fetch(ctx, e); err != nil {
			if errors.Is(err, blobstore.ErrBody) {
				return nil, err
			}
			return nil, sluice.Outage(err)
		}
	}
	if p.format == nil {
		return e, nil
	}
	return p.format.Event(ctx, e)
}
