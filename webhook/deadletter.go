package webhook

import (
	"context"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/deadletters"
)

// DeadLetterMessages returns a function that makes the message of a dead letter, for sluice.CopyTo.
// It is an event in the place of the one that failed, with the same partition and sequence number,
// of type sluice.deadletter. Its body is JSON, as that of package sender's function of this name:
// identity, error, attempts, the event with its body, and under redrive the command that redrives
// it, which is command followed by the id. An empty command stands for none.
func DeadLetterMessages(command string) func(context.Context, *driver.DeadLetter) (*Message, error) {
	return func(_ context.Context, d *driver.DeadLetter) (*Message, error) {
		body, err := deadletters.Copy(d, command)
		if err != nil {
			return nil, err
		}
		e := d.Event
		return &Message{Type: deadletters.CopyType, Event: &driver.Event{
			Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Enqueued: e.Enqueued,
			MessageID: deadletters.CopyID(d), ContentType: "application/json", Body: body,
		}}, nil
	}
}
