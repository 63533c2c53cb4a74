package eventhub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// ownReceiver receives with our own client. Events are decoded from the memory into which a message
// was copied from its frame, by the goroutine that calls take.
type ownReceiver struct {
	link     *link
	messages [][]byte // used by receive only, and kept for its memory
	ended    failure

	mu       sync.Mutex // guards what close may find before open has returned
	client   *amqp.Client
	receiver *amqp.Receiver
	closed   bool
	expired  error          // why the token was not renewed before it expired
	renewal  sync.WaitGroup // the goroutine that renews the token
}

// open implements receiver.
func (r *ownReceiver) open(ctx context.Context, start azeventhubs.StartPosition, epoch int64, credit int) ([]*driver.Event, error) {
	client, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	expires, err := r.putToken(ctx, client)
	if err != nil {
		return nil, r.explain(err)
	}
	owner := r.link.source.cfg.Owner
	properties := amqp.Map{{Key: amqp.Symbol("com.microsoft:receiver-name"), Value: owner}}
	if epoch != driver.NoEpoch {
		properties = append(properties, amqp.Pair{Key: amqp.Symbol("com.microsoft:epoch"), Value: epoch})
	}
	receiver, err := client.Attach(ctx, &amqp.ReceiverConfig{
		Source:     r.link.path,
		Target:     owner,
		Filter:     amqp.Map{{Key: selectorName, Value: amqp.Described{Descriptor: selectorCode, Value: selector(start)}}},
		Properties: properties,
		Desired:    []amqp.Symbol{"com.microsoft:georeplication"},
	})
	if err != nil {
		return nil, r.explain(err)
	}
	r.ended.attached = true
	if !r.keep(receiver, expires) {
		return nil, errClosed
	}
	r.receiver.Flow(credit)
	return nil, nil
}

// connect opens the connection.
func (r *ownReceiver) connect(ctx context.Context) (*amqp.Client, error) {
	s := r.link.source
	conn, err := s.dial(ctx, "wss://"+s.broker.host+"/$servicebus/websocket")
	if err != nil {
		return nil, err
	}
	client, err := amqp.NewClient(ctx, &pacedConn{Conn: conn, intake: &r.link.intake}, &amqp.ClientConfig{
		Hostname: s.broker.host,
		Properties: amqp.Map{
			{Key: amqp.Symbol("product"), Value: "Sluice"},
			{Key: amqp.Symbol("platform"), Value: runtime.GOOS},
			{Key: amqp.Symbol("framework"), Value: runtime.Version()},
			{Key: amqp.Symbol("user-agent"), Value: "sluice"},
		},
	})
	if err != nil {
		return nil, r.explain(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		client.Close(endedContext)
		return nil, errClosed
	}
	r.client = client
	return client, nil
}

// putToken proves the right to read the partition. It returns when the token expires.
func (r *ownReceiver) putToken(ctx context.Context, client *amqp.Client) (time.Time, error) {
	s := r.link.source
	audience := "amqps://" + s.broker.host + "/" + r.link.path
	if s.broker.plain {
		audience = "amqp://" + s.broker.host + "/" + r.link.path
	}
	token, kind, expires, err := s.tokens().token(ctx, audience)
	if err != nil {
		return expires, err
	}
	return expires, client.PutToken(ctx, amqp.Token{Value: token, Type: kind, Audience: audience, Expires: expires})
}

// keep notes the AMQP receiver and starts the renewal of its token, unless close was called. A
// token that cannot be renewed before it expires ends the connection.
func (r *ownReceiver) keep(receiver *amqp.Receiver, expires time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.receiver = receiver
	client := r.client
	r.renewal.Go(func() {
		err := keepToken(client.Done(), expires, func(left time.Duration) (time.Time, error) {
			return r.renew(client, left)
		})
		if err == nil {
			return
		}
		r.mu.Lock()
		r.expired = err
		r.mu.Unlock()
		client.Close(endedContext)
	})
	return true
}

// renew renews the token, which is valid for the time left. An attempt may take half of that:
// events may come before the broker's answer.
func (r *ownReceiver) renew(client *amqp.Client, left time.Duration) (time.Time, error) {
	r.link.intake.renewing(true)
	defer r.link.intake.renewing(false)
	ctx, cancel := context.WithTimeout(r.link.life, max(r.link.source.cfg.Timeout, left/2))
	defer cancel()
	return r.putToken(ctx, client)
}

// A token is renewed renewBefore it expires, as the SDKs do it, so that clocks may differ and
// attempts may fail; but not more often than renewEvery. After a failure the next attempt follows
// after renewRetry.
const (
	renewBefore = 10 * time.Minute
	renewEvery  = 2 * time.Minute
	renewRetry  = 30 * time.Second
)

// keepToken renews a token until done is closed, with put, which gets the time for which the token
// is still valid and returns when the new one expires. The error is that of the first attempt after
// a token has expired. A token without a time of expiry is not renewed.
func keepToken(done <-chan struct{}, expires time.Time, put func(left time.Duration) (time.Time, error)) error {
	if expires.IsZero() {
		return nil
	}
	for pause := max(time.Until(expires)-renewBefore, renewEvery); ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return nil
		}
		next, err := put(time.Until(expires))
		switch {
		case err == nil:
			expires, pause = next, max(time.Until(next)-renewBefore, renewEvery)
		case !time.Now().Before(expires):
			return err
		default:
			pause = renewRetry
		}
	}
}

// take implements receiver.
func (r *ownReceiver) take(credit int) ([]*driver.Event, error) {
	events, err := r.receive()
	if err == nil && r.receiver.Credit() <= credit/2 {
		r.receiver.Flow(credit)
	}
	return events, err
}

// wait implements receiver.
func (r *ownReceiver) wait(ctx context.Context) ([]*driver.Event, error) {
	for {
		if r.receiver.Credit() == 0 {
			r.receiver.Flow(1)
		}
		if events, err := r.receive(); len(events) > 0 || err != nil {
			return events, err
		}
		select {
		case <-r.receiver.Arrived():
		case <-r.receiver.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var errUndecodable = errors.New("an event cannot be decoded")

// receive returns the events that have arrived, decoded, up to one that cannot be. Without events
// it returns why no more come, nil if they may.
func (r *ownReceiver) receive() ([]*driver.Event, error) {
	if r.ended.undecodable != "" {
		return nil, errUndecodable
	}
	err := r.receiver.Err() // before Take: what came before the end counts
	r.messages = r.receiver.Take(r.messages[:0])
	defer clear(r.messages)
	if len(r.messages) == 0 && err != nil {
		return nil, r.explain(err)
	}
	events := make([]*driver.Event, 0, len(r.messages))
	var memory eventMemory
	for i, m := range r.messages {
		e := memory.next(len(m), len(r.messages)-i)
		sequence, err := decodeEvent(e, m, r.link.partition)
		if err != nil && sequence >= 0 && r.link.source.cfg.Undecodable == ParkUndecodable {
			*e = parked(e, m, err)
		} else if err != nil {
			r.ended.undecodable, r.ended.sequence = err.Error(), sequence
			if i == 0 {
				return nil, errUndecodable
			}
			break
		}
		events = append(events, e)
	}
	return events, nil
}

// explain notes what an error says about the link's end, and returns the error to report.
func (r *ownReceiver) explain(err error) error {
	r.mu.Lock()
	expired := r.expired
	r.mu.Unlock()
	var sent *amqp.Error
	var status *amqp.StatusError
	var token *tokenError
	switch {
	case expired != nil:
		return fmt.Errorf("the token has expired and was not renewed: %w", expired)
	case cancelled(err), errors.As(err, &status), errors.As(err, &token):
		return err
	case errors.As(err, &sent):
		// The connection may have ended since; of its end, the link has the same error.
		if r.ended.attached && err != r.client.Err() && sent.Condition != amqp.CondStolen {
			r.ended.cause, r.ended.refusal = errDetached, sent
			return errDetached
		}
		return err
	case errors.Is(err, amqp.ErrLinkClosed):
		r.ended.cause = errDetached
	default:
		r.ended.cause = connectionError(err)
	}
	return r.ended.cause
}

// failure implements receiver.
func (r *ownReceiver) failure() failure { return r.ended }

// close implements receiver.
func (r *ownReceiver) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	client, receiver := r.client, r.receiver
	r.mu.Unlock()
	if receiver != nil {
		_ = receiver.Detach(ctx) // closing the connection ends the link too
	}
	if client != nil {
		client.Close(ctx)
	}
	r.renewal.Wait()
}

// The filter of a source that selects where a link begins, as Apache Qpid has registered it.
const (
	selectorName amqp.Symbol = "apache.org:selector-filter:string"
	selectorCode uint64      = 0x0000468c00000004
)

// selector returns the expression for a start position.
func selector(start azeventhubs.StartPosition) string {
	op := ">"
	if start.Inclusive {
		op = ">="
	}
	switch {
	case start.SequenceNumber != nil:
		return fmt.Sprintf("amqp.annotation.x-opt-sequence-number %s '%d'", op, *start.SequenceNumber)
	case start.Offset != nil:
		return fmt.Sprintf("amqp.annotation.x-opt-offset %s '%s'", op, *start.Offset)
	case start.EnqueuedTime != nil:
		return fmt.Sprintf("amqp.annotation.x-opt-enqueued-time %s '%d'", op, start.EnqueuedTime.UnixMilli())
	case start.Earliest != nil && *start.Earliest:
		return "amqp.annotation.x-opt-offset > '-1'"
	}
	return "amqp.annotation.x-opt-offset > '@latest'"
}
