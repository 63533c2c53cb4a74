package sender

import (
	"context"
	"errors"
	"maps"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/stamp"
)

// Stamped makes the messages of mapping carry the id of their event and their
// own number, from 0 on, in their application properties (see [stamp.Stamp]), in
// place of a stamp that they have, also in their headers.
// A sluice.Transactional stage that reads the stamps drops duplicates. A
// message without an id gets that of the stamp.
//
// Stamped is for the mapping of sluice.AtLeastOnce, which must return the same
// messages in the same order each time it gets the same event.
func Stamped(mapping func(context.Context, *driver.Event) ([]*Message, error)) func(context.Context, *driver.Event) ([]*Message, error) {
	return func(ctx context.Context, e *driver.Event) ([]*Message, error) {
		messages, err := mapping(ctx, e)
		if err != nil {
			return nil, err
		}
		for i, m := range messages {
			s, ok := stamp.Of(ctx, e, i)
			if !ok {
				return nil, errors.New("stamp a message: the context has no event: use Stamped for the mapping of AtLeastOnce only")
			}
			properties := maps.Clone(m.Properties) // the map may be the event's own
			if properties == nil {
				properties = make(map[string]any, 3)
			}
			s.SetTo(properties)
			m.Properties = properties
			m.Headers = stamp.DropHeaders(m.Headers) // they may be the event's, with an earlier stage's stamp
			if id := s.ID.String(); m.MessageID == "" && len(id) <= maxID {
				m.MessageID = id
			}
		}
		return messages, nil
	}
}
