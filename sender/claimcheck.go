package sender

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/sluice-go/sluice/driver"
)

// BodyStore keeps bodies that are too large for a message, such as blobstore.Bodies.
type BodyStore interface {
	// Put stores a body. It returns the body that the message has in its place, and properties that
	// are added to the message's own. The same body may be stored several times.
	Put(ctx context.Context, body []byte) (inPlace []byte, properties map[string]any, err error)
}

// ClaimCheck says that large bodies are stored elsewhere, and their messages refer to
// them. The consumer fetches them: see source.claim_check in pipeline files, and
// blobstore.Bodies.
type ClaimCheck struct {
	Store BodyStore
	// Over is the size in bytes above which a body is stored. Default: 192 KiB, which
	// leaves a quarter of the smallest tiers' limit to properties and encoding.
	Over int
}

const defaultOver = 192 << 10

// replace stores the body of a message, if that is large.
func (c *ClaimCheck) replace(ctx context.Context, m *Message) error {
	if len(m.Body) <= cmp.Or(c.Over, defaultOver) {
		return nil
	}
	body, properties, err := c.Store.Put(ctx, m.Body)
	if err != nil {
		return err
	}
	m.Body, m.Properties = body, maps.Clone(m.Properties) // the map may be used elsewhere
	if m.Properties == nil {
		m.Properties = properties
		return nil
	}
	maps.Copy(m.Properties, properties)
	return nil
}

// Messages makes the messages of mapping refer to their bodies, if these are large. It
// is for the mapping of sluice.AtLeastOnce, outside of [Stamped]. A body that can't
// be stored is an outage: the partition waits.
func (c *ClaimCheck) Messages(mapping func(context.Context, *driver.Event) ([]*Message, error)) func(context.Context, *driver.Event) ([]*Message, error) {
	return func(ctx context.Context, e *driver.Event) ([]*Message, error) {
		messages, err := mapping(ctx, e)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if err := c.replace(ctx, m); err != nil {
				return nil, driver.Outage(fmt.Errorf("claim check: %w", err))
			}
		}
		return messages, nil
	}
}

// claim stores the body of the next message of a run if it is too large, with retries.
func (r *run) claim(m *Message) error {
	c := r.s.cfg.ClaimCheck
	if c == nil {
		return nil
	}
	err := r.retry(func(ctx context.Context) error { return c.replace(ctx, m) })
	if err != nil {
		return fmt.Errorf("claim check: %w", err)
	}
	return nil
}
