package sender

import (
	"context"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/deadletters"
)

// DeadLetterMessages returns a function that makes the message of a dead letter, for
// sluice.CopyTo. The body is JSON: the names of namespace, topic, consumer group and partition,
// incarnation and sequence number, id and status, error and attempts, the event with its
// properties and its body (body, or body_base64 if it is no text), and under redrive the command
// that redrives it, which is command followed by the id, for example "sluice deadletters retry
// --config flights.yaml 17". An empty command stands for none.
//
// All copies of a dead letter have the same message id, so that duplicate detection of Service
// Bus drops repeats, and the same key. They carry no stamp and none of the event's properties.
// topic, partition and status are properties of the message, for filters of subscriptions.
func DeadLetterMessages(command string) func(context.Context, *driver.DeadLetter) (*Message, error) {
	return func(_ context.Context, d *driver.DeadLetter) (*Message, error) {
		body, err := deadletters.Copy(d, command)
		if err != nil {
			return nil, err
		}
		id := deadletters.CopyID(d)
		return &Message{
			Key: id, MessageID: id, ContentType: "application/json", Body: body,
			Properties: map[string]any{"topic": d.Group.Topic, "partition": d.Event.Partition, "status": string(d.Status)},
		}, nil
	}
}
