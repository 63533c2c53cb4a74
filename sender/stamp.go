package sender

import (
	"context"
	"errors"
	"maps"

	"github.com/sluice-go/sluice"
)

// Stamped has each message that mapping makes of an event carry the id of that
// event and its own number, from 0 on, in its application properties (see
// [sluice.Stamp]): so a [sluice.Transactional] stage that reads them drops
// repeats. A message without an id of its own gets that of the stamp. It is for
// [sluice.AtLeastOnce]; mapping must make the same messages in the same order at
// each repeat.
func Stamped(mapping func(context.Context, *sluice.Event) ([]*Message, error)) func(context.Context, *sluice.Event) ([]*Message, error) {
	return func(ctx context.Context, e *sluice.Event) ([]*Message, error) {
		messages, err := mapping(ctx, e)
		if err != nil {
			return nil, err
		}
		for i, m := range messages {
			stamp, ok := sluice.StampOf(ctx, e, i)
			if !ok {
				return nil, errors.New("stamp a message: only AtLeastOnce can tell of which event it is")
			}
			properties := maps.Clone(m.Properties) // which may be the event's
			if properties == nil {
				properties = make(map[string]any, 3)
			}
			stamp.SetTo(properties)
			m.Properties = properties
			if id := stamp.ID.String(); m.MessageID == "" && len(id) <= maxID {
				m.MessageID = id
			}
		}
		return messages, nil
	}
}
