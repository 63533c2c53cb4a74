package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// MaxBody is the largest size of a message in bytes; it is 64 KiB as base64, the limit
// of Azure Storage.
const MaxBody = 48 << 10

// Queue is an Azure Storage queue. It is safe for concurrent use, by several processes
// too. Open it with [OpenQueue]; it needs no closing.
type Queue struct {
	name          string
	cfg           Config
	queue, poison *azqueue.QueueClient
}

var _ autoscale.Queue = (*Queue)(nil)

// neverExpires is the lifetime of messages: messages for a part that is down must not
// expire.
const neverExpires = -1

// OpenQueue opens a queue and its dead-letter queue, NAME-poison, and creates those
// that are missing. Names are lower case.
func OpenQueue(ctx context.Context, name string, cfg *Config) (*Queue, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", name, err)
	}
	service, err := c.queues()
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", name, err)
	}
	q := &Queue{name: name, cfg: c, queue: service.NewQueueClient(name), poison: service.NewQueueClient(name + "-poison")}
	for _, client := range []*azqueue.QueueClient{q.queue, q.poison} {
		if _, err := client.Create(ctx, nil); err != nil && !queueerror.HasCode(err, queueerror.QueueAlreadyExists) {
			return nil, q.fail("create", err)
		}
	}
	return q, nil
}

func (q *Queue) fail(what string, err error) error {
	return fmt.Errorf("queue %s: %s: %w", q.name, what, azerror.Shorten(err))
}

// Send implements [autoscale.Queue]. If a response is lost, the SDK sends the message
// again, so it may be in the queue twice.
func (q *Queue) Send(ctx context.Context, bodies ...[]byte) error {
	for _, body := range bodies {
		if err := send(ctx, q.queue, body); err != nil {
			return q.fail("send", err)
		}
	}
	return nil
}

func send(ctx context.Context, to *azqueue.QueueClient, body []byte) error {
	if len(body) > MaxBody {
		return fmt.Errorf("a message of %d bytes: the maximum is %d", len(body), MaxBody)
	}
	_, err := to.EnqueueMessage(ctx, base64.StdEncoding.EncodeToString(body), &azqueue.EnqueueMessageOptions{TimeToLive: ptr(neverExpires)})
	return err
}

func ptr(n int) *int32 { return to.Ptr(int32(n)) }

// maxReceive is how many messages Azure returns at once.
const maxReceive = 32

// Receive implements [autoscale.Queue] by polling.
func (q *Queue) Receive(ctx context.Context, most int) ([]autoscale.Message, error) {
	for pause := q.cfg.Poll / 10; ; pause = min(2*pause, q.cfg.Poll) {
		r, err := q.queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages: ptr(min(most, maxReceive)), VisibilityTimeout: ptr(int(q.cfg.Lock / time.Second))})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, q.fail("receive", err)
		}
		if len(r.Messages) > 0 {
			return q.convert(r.Messages), nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// convert converts messages of the SDK. A text that is not base64 was sent by another
// program; it is the body as it is.
func (q *Queue) convert(from []*azqueue.DequeuedMessage) []autoscale.Message {
	messages := make([]autoscale.Message, len(from))
	for i, m := range from {
		messages[i] = autoscale.Message{ID: *m.MessageID, Body: body(m.MessageText), Deliveries: int(*m.DequeueCount), Receipt: *m.PopReceipt}
	}
	return messages
}

func body(text *string) []byte {
	if text == nil {
		return nil
	}
	if decoded, err := base64.StdEncoding.DecodeString(*text); err == nil {
		return decoded
	}
	return []byte(*text)
}

// lockLost reports whether an error says that a message was deleted, or was received
// again.
func lockLost(err error) bool {
	return azerror.HasStatus(err, http.StatusNotFound) || queueerror.HasCode(err, queueerror.PopReceiptMismatch)
}

// Extend implements [autoscale.Queue].
func (q *Queue) Extend(ctx context.Context, m *autoscale.Message) error {
	r, err := q.queue.UpdateMessage(ctx, m.ID, m.Receipt.(string), base64.StdEncoding.EncodeToString(m.Body),
		&azqueue.UpdateMessageOptions{VisibilityTimeout: ptr(int(q.cfg.Lock / time.Second))})
	if lockLost(err) {
		return q.fail("extend", autoscale.ErrLockLost)
	}
	if err != nil {
		return q.fail("extend", err)
	}
	m.Receipt = *r.PopReceipt
	return nil
}

// Delete implements [autoscale.Queue].
func (q *Queue) Delete(ctx context.Context, m *autoscale.Message) error {
	if _, err := q.queue.DeleteMessage(ctx, m.ID, m.Receipt.(string), nil); err != nil && !lockLost(err) {
		return q.fail("delete", err)
	}
	return nil
}

// deadLetter is the JSON of a message in the queue NAME-poison.
type deadLetter struct {
	Reason     string    `json:"reason"`
	Time       time.Time `json:"time"`
	ID         string    `json:"id"`
	Deliveries int       `json:"deliveries"`
	Text       string    `json:"text,omitempty"` // the body, if it is text
	Body       []byte    `json:"body,omitempty"` // else, as base64
}

// DeadLetter implements [autoscale.Queue]: the message goes to the queue NAME-poison,
// as JSON. If the process ends in between, it goes there twice.
func (q *Queue) DeadLetter(ctx context.Context, m *autoscale.Message, reason string) error {
	a := deadLetter{Reason: reason, Time: time.Now().UTC(), ID: m.ID, Deliveries: m.Deliveries}
	if json.Valid(m.Body) {
		a.Text = string(m.Body)
	} else {
		a.Body = m.Body
	}
	text, err := json.Marshal(a)
	if err == nil && len(text) > MaxBody { // keep the reason, drop the body
		a.Text, a.Body = "", nil
		text, err = json.Marshal(a)
	}
	if err == nil {
		err = send(ctx, q.poison, text)
	}
	if err != nil {
		return q.fail("move to dead-letter queue", err)
	}
	return q.Delete(ctx, m)
}

// DeadLetters returns the oldest dead letters, at most 32, without removing them.
func (q *Queue) DeadLetters(ctx context.Context) ([]autoscale.DeadLetter, error) {
	r, err := q.poison.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: ptr(maxReceive)})
	if err != nil {
		return nil, q.fail("read dead letters", err)
	}
	var list []autoscale.DeadLetter
	for _, m := range r.Messages {
		var a deadLetter
		if err := json.Unmarshal(body(m.MessageText), &a); err != nil {
			a = deadLetter{Reason: "written by another program", Body: body(m.MessageText)}
		}
		if a.Text != "" {
			a.Body = []byte(a.Text)
		}
		list = append(list, autoscale.DeadLetter{Body: a.Body, Reason: a.Reason})
	}
	return list, nil
}
