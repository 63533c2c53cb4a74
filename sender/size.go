package sender

import (
	"context"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/driver"
)

// keyAnnotation is the annotation that carries a message's partition key.
const keyAnnotation = "x-opt-partition-key"

// scheduledAnnotation is the annotation that says when Service Bus enqueues a message.
const scheduledAnnotation = "x-opt-scheduled-enqueue-time"

// maxKey is how many characters a partition key may have.
const maxKey = 128

// generatedID is as long as the ids that the client libraries give messages that
// have none.
const generatedID = "01234567-89ab-cdef-0123-456789abcdef"

// longer reports whether a text has more than n characters.
func longer(text string, n int) bool { return len(text) > n && utf8.RuneCountInString(text) > n }

// batchSize is how many bytes a batch of one message has. The batch's envelope
// repeats all of its first message except the body, and contains the message as
// a data section.
func batchSize(message *amqp.Message, body []byte) (int, error) {
	envelope, err := message.MarshalBinary()
	if err != nil {
		return 0, err
	}
	message.Data = [][]byte{body}
	whole, err := message.MarshalBinary()
	if err != nil {
		return 0, err
	}
	section := 5 // descriptor, type and a length of one byte
	if len(whole) > 255 {
		section = 8 // a length of four bytes
	}
	return len(envelope) + section + len(whole), nil
}

// overhead is how many bytes a message has beside its body, without their
// encoding.
func overhead(m *Message) int {
	n := len(m.Key) + len(m.MessageID) + len(m.CorrelationID) + len(m.ContentType) + len(m.Subject) + len(m.ReplyTo)
	for name, value := range m.Properties {
		n += len(name)
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		case driver.DateTimeOffset, driver.TimeSpan:
			n += 9 + len(driver.DescriptorDateTimeOffset)
		case driver.URI:
			n += len(driver.DescriptorURI) + len(v)
		default:
			n += 9 // a type and eight bytes
		}
	}
	for _, h := range m.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// maxProbe is the largest limit that maxBatchBytes looks for.
const maxProbe = 64 << 20

// maxBatchBytes finds out how large a batch may be, by trial: the client
// libraries know the limit, but don't export it. A busy service is asked again, so that a
// program does not fail before it has sent anything.
func maxBatchBytes(ctx context.Context, begin func() (Batch, error)) (int, error) {
	taken := 0 // bytes of the largest batch so far
	fits := func(size int) (bool, error) {
		var batch Batch
		err := repeatBusy(ctx, func() (err error) {
			batch, err = begin()
			return err
		})
		if err != nil {
			return false, err
		}
		if err = batch.Add(&Message{Body: make([]byte, size)}); err == nil {
			taken = batch.Bytes()
		}
		return err == nil, nil
	}
	least, most := 0, 64<<10 // bytes of a body; one of least bytes fits
	for {
		ok, err := fits(most)
		if err != nil {
			return 0, err
		}
		if !ok || most >= maxProbe {
			break
		}
		least, most = most, 2*most
	}
	for most-least > 1 {
		size := (least + most) / 2
		ok, err := fits(size)
		switch {
		case err != nil:
			return 0, err
		case ok:
			least = size
		default:
			most = size
		}
	}
	return taken, nil
}
