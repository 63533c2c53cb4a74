package amqp

import (
	"bytes"
	"context"
	"sync/atomic"
)

// ReceiverConfig says what a [Receiver] is attached to.
type ReceiverConfig struct {
	// Source is the address to receive from, Target that of the client's end.
	Source, Target string
	// Filter is the filter set of the source, Properties are the link's.
	Filter, Properties Map
	// Desired are capabilities that the client desires.
	Desired []Symbol
	// Settled asks the server to send messages settled. Otherwise it decides.
	Settled bool
}

// Receiver is a link on which the client receives: its receiving link endpoint (section 2.6).
// Messages that come unsettled stay so: Event Hubs keeps no state of deliveries. One goroutine at a
// time uses a Receiver; [Receiver.Detach] may be called by another one.
type Receiver struct {
	clientLink

	// Guarded by Client.mu.
	queue         [][]byte // messages that Take has not returned
	deliveryCount uint32   // of the messages handed over

	limit atomic.Uint32 // the delivery-count up to which the server may send

	// Only the reader uses these.
	count   uint32 // the delivery-count of what has come
	came    [][]byte
	partial *Delivery // a message whose last transfer is missing
	chunk   []byte    // the memory of the next messages
}

// Attach attaches a receiver in a session of its own, and waits for the server's answer until ctx
// ends. The server sends nothing before [Receiver.Flow].
func (c *Client) Attach(ctx context.Context, cfg *ReceiverConfig) (*Receiver, error) {
	s, err := c.begin()
	if err != nil {
		return nil, err
	}
	r, err := s.receiver(cfg)
	if err == nil {
		err = r.await(ctx)
	}
	if err != nil {
		s.end(endedContext)
		return nil, err
	}
	return r, nil
}

// endedContext is for what must not wait.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receiver sends the attach of a receiver.
func (s *clientSession) receiver(cfg *ReceiverConfig) (*Receiver, error) {
	p := &attach{
		receiver: true, sndSettle: senderMixed, rcvSettle: receiverFirst,
		source: &terminus{address: cfg.Source, filter: cfg.Filter}, target: &terminus{address: cfg.Target},
		desired: cfg.Desired, properties: cfg.Properties,
	}
	if cfg.Settled {
		p.sndSettle = senderSettled
	}
	r := new(Receiver)
	return r, s.attach(r, p)
}

// Flow lets the server send credit messages beyond those that have come so far.
func (r *Receiver) Flow(credit int) {
	r.s.c.mu.Lock()
	defer r.s.c.mu.Unlock()
	if r.err != nil || r.detachSent {
		return
	}
	// A limit is never taken back: messages up to an earlier one may be on their way.
	if limit := r.deliveryCount + uint32(credit); int32(limit-r.limit.Load()) > 0 {
		r.limit.Store(limit)
	}
	r.pushFlow(uint32(credit))
}

// Credit returns how many messages the server may still send, and those that Take has not returned.
func (r *Receiver) Credit() int {
	r.s.c.mu.Lock()
	defer r.s.c.mu.Unlock()
	return int(max(0, int32(r.limit.Load()-r.deliveryCount))) + len(r.queue)
}

func (r *Receiver) pushFlow(credit uint32) {
	r.s.pushFlow(flow{handle: r.handle, hasHandle: true, deliveryCount: r.deliveryCount, credit: credit})
}

// onFlow notes the server's delivery-count, which passes ours if it gives up credit. While a
// message is not complete the server has counted it and the client has not: then the count says
// nothing.
func (r *Receiver) onFlow(p *flow) {
	if p.hasCount && r.partial == nil && int32(p.deliveryCount-r.count) > 0 {
		r.deliveryCount, r.count = p.deliveryCount, p.deliveryCount
		r.wake()
	}
	if p.echo {
		r.pushFlow(uint32(max(0, int32(r.limit.Load()-r.deliveryCount))))
	}
}

// Arrived receives a value when messages have come that Take has not returned, and when the server
// has given up credit.
func (r *Receiver) Arrived() <-chan struct{} { return r.signal }

func (r *Receiver) wake() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// Take appends the messages that have come to into, and returns the result. Each is the encoded
// message, in memory that nothing changes, and that it shares with at most 16 KiB of other
// messages. After the link has ended, Take still returns what came before.
func (r *Receiver) Take(into [][]byte) [][]byte {
	r.s.c.mu.Lock()
	defer r.s.c.mu.Unlock()
	into = append(into, r.queue...)
	clear(r.queue)
	r.queue = r.queue[:0]
	return into
}

// receive adds a transfer to its message. Only the reader calls it.
func (r *Receiver) receive(p *transfer, payload []byte) error {
	if r.partial == nil {
		if int32(r.limit.Load()-r.count) <= 0 {
			return Errorf(CondTransferLimit, "more messages than the link's credit")
		}
		if !p.more && !p.aborted {
			r.complete(payload)
			return nil
		}
		r.partial = &Delivery{id: p.deliveryID, tag: bytes.Clone(p.tag), buf: newBuffer(4 * len(payload))}
	}
	d := r.partial
	if err := d.add(p, payload); err != nil {
		return err
	}
	*d.buf = append(*d.buf, payload...)
	if n := len(*d.buf); n > r.s.c.cfg.MaxMessageSize {
		return Errorf(CondMessageSize, "a message of more than %d bytes", r.s.c.cfg.MaxMessageSize)
	}
	if p.more && !p.aborted {
		return nil
	}
	r.partial = nil
	if p.aborted {
		r.count++
	} else {
		r.complete(*d.buf)
	}
	d.free()
	return nil
}

// sharedMemory is how many bytes of messages share an allocation at most: the last of them that is
// in use keeps all of it.
const sharedMemory = 16 << 10

// complete keeps a copy of a message: what it is read into is used again. Messages that have come
// together share memory, as much as is left in the read buffer.
func (r *Receiver) complete(message []byte) {
	r.count++
	n := len(message)
	if n > sharedMemory/4 {
		r.came = append(r.came, bytes.Clone(message))
		return
	}
	if cap(r.chunk)-len(r.chunk) < n {
		r.chunk = make([]byte, 0, min(max(r.s.c.fr.unused(), n), sharedMemory))
	}
	at := len(r.chunk)
	r.chunk = append(r.chunk, message...)
	r.came = append(r.came, r.chunk[at:at+n:at+n])
}

// handOver makes the messages that have come available to Take. Client.mu is held.
func (r *Receiver) handOver() {
	r.chunk = nil
	if r.deliveryCount == r.count && len(r.came) == 0 {
		return
	}
	r.deliveryCount = r.count
	if !r.detachSent {
		r.queue = append(r.queue, r.came...)
		r.wake() // without messages too: deliveries that were aborted have used credit
	}
	clear(r.came)
	r.came = r.came[:0]
}
