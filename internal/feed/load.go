package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// LoadConfig holds what has a default. The zero value is ready to use.
type LoadConfig struct {
	// Batch is how many documents a batch has, unless they are too large for
	// the hub. Default: 500.
	Batch int
	// Rate is how many documents are sent a second, by all clients together.
	// Default: as fast as the hub takes them.
	Rate float64
}

// MaxCount is how many documents a load may have.
const MaxCount = 100_000_000_000

// lanesPerClient is how many batches a client has in flight.
const lanesPerClient = 4

// Load sends made-up documents to one hub, over several connections.
//
// Azure puts a partition key on whole batches, where thousands of keys would
// mean batches of one. So a load does what Azure's service does itself: a key
// has a partition, a batch goes to a partition, and each event in it carries
// its own key in the annotation in which consumers find it. A key's documents
// are sent by one lane, which has one batch in flight at a time; so they keep
// their order.
type Load struct {
	clients    []*azeventhubs.ProducerClient
	partitions []string
	docs       *Documents
	count      int64
	cfg        LoadConfig
	pace       *pace
	acked      atomic.Int64
}

// NewLoad makes a load of the first count of docs, sent by clients of a hub
// with these partitions. The clients stay the caller's to close.
func NewLoad(clients []*azeventhubs.ProducerClient, partitions []string, docs *Documents, count int64, cfg *LoadConfig) (*Load, error) {
	l := &Load{clients: clients, partitions: partitions, docs: docs, count: count}
	if cfg != nil {
		l.cfg = *cfg
	}
	l.cfg.Batch = cmp.Or(l.cfg.Batch, 500)
	switch {
	case len(clients) == 0 || len(partitions) == 0:
		return nil, fmt.Errorf("%d clients of a hub with %d partitions: there must be some", len(clients), len(partitions))
	case count < 1 || count > MaxCount:
		return nil, fmt.Errorf("%d documents: must be 1 to %d", count, int64(MaxCount))
	case l.cfg.Batch < 0:
		return nil, fmt.Errorf("batches of %d documents: must be positive", l.cfg.Batch)
	case l.cfg.Rate < 0 || l.cfg.Rate > maxRate:
		return nil, fmt.Errorf("rate of %v a second: must be positive and at most %d", l.cfg.Rate, int(maxRate))
	}
	l.pace = newPace(l.cfg.Rate)
	return l, nil
}

// Acknowledged is how many documents the hub has confirmed.
func (l *Load) Acknowledged() int64 { return l.acked.Load() }

// Send sends all documents and returns once each is acknowledged. After an
// error of the hub, or once ctx ends, it sends no further batch, waits for
// those in flight and returns the error.
func (l *Load) Send(ctx context.Context) error {
	going, give := context.WithCancelCause(ctx)
	defer give(nil)
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(parting, cut) })()
	var work sync.WaitGroup
	for _, lane := range l.lanes() {
		work.Go(func() {
			if err := lane.run(going, sending); err != nil {
				give(err)
			}
		})
	}
	work.Wait()
	return context.Cause(going)
}

// lanes deals out the keys: by turns to the lanes, and by turns to the
// partitions.
func (l *Load) lanes() []*lane {
	lanes := make([]*lane, len(l.clients)*lanesPerClient)
	for i := range lanes {
		lanes[i] = &lane{load: l, client: l.clients[i%len(l.clients)], runs: make([]run, len(l.partitions)), note: map[any]any{}}
	}
	for k := range min(l.docs.cfg.Keys, l.count) {
		run := &lanes[k%int64(len(lanes))].runs[k%int64(len(l.partitions))]
		run.keys = append(run.keys, k)
	}
	return lanes
}

// lane sends the documents of some keys, batch after batch.
type lane struct {
	load    *Load
	client  *azeventhubs.ProducerClient
	runs    []run // by partition
	scratch []byte
	note    map[any]any // the annotations of one event
	due     time.Time   // of the document that is next; zero: not known yet
}

// run is the documents of a lane that go to one partition: those of its keys
// again and again, in the order of their numbers.
type run struct {
	keys []int64
	next int
	base int64 // of this round
}

// peek returns the number of the next document.
func (r *run) peek(count int64) (n int64, more bool) {
	if len(r.keys) == 0 {
		return 0, false
	}
	n = r.base + r.keys[r.next]
	return n, n < count
}

func (r *run) advance(keys int64) {
	if r.next++; r.next == len(r.keys) {
		r.next, r.base = 0, r.base+keys
	}
}

func (w *lane) run(going, sending context.Context) error {
	for more := true; more; {
		more = false
		for p := range w.runs {
			if _, some := w.runs[p].peek(w.load.count); !some {
				continue
			}
			more = true
			if going.Err() != nil {
				return nil
			}
			if err := w.send(going, sending, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends the next batch to a partition.
func (w *lane) send(going, sending context.Context, partition int) error {
	l, r := w.load, &w.runs[partition]
	name := l.partitions[partition]
	batch, err := w.client.NewEventDataBatch(sending, &azeventhubs.EventDataBatchOptions{PartitionID: &name})
	if err != nil {
		return fmt.Errorf("open a link to partition %s: %w", name, err)
	}
	first, _ := r.peek(l.count)
	began := time.Now()
	for int(batch.NumEvents()) < l.cfg.Batch {
		n, more := r.peek(l.count)
		if !more {
			break
		}
		if begun := batch.NumEvents() > 0; !w.await(going, begun, began) {
			if begun && going.Err() == nil {
				break
			}
			return nil
		}
		err := w.add(batch, n)
		if errors.Is(err, azeventhubs.ErrEventDataTooLarge) && batch.NumEvents() > 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("document %s of %d bytes: %w", l.docs.ID(n), l.docs.cfg.Size, err)
		}
		w.due = time.Time{}
		r.advance(l.docs.cfg.Keys)
	}
	if err := w.client.SendEventDataBatch(sending, batch, nil); err != nil {
		return fmt.Errorf("send %d documents to partition %s, %s and on: %w", batch.NumEvents(), name, l.docs.ID(first), err)
	}
	l.acked.Add(int64(batch.NumEvents()))
	return nil
}

// await waits until the next document is due. It does not if a batch has begun
// that would have to wait for too long, and if the load is going to end.
func (w *lane) await(going context.Context, begun bool, began time.Time) bool {
	if w.load.pace.every == 0 {
		return true
	}
	if w.due.IsZero() {
		w.due = w.load.pace.take()
	}
	if begun && w.due.Sub(began) > linger {
		return false
	}
	return sleepUntil(going, w.due) == nil
}

func (w *lane) add(batch *azeventhubs.EventDataBatch, n int64) error {
	docs := w.load.docs
	w.scratch = docs.Append(w.scratch[:0], n)
	w.note["x-opt-partition-key"] = docs.Key(n)
	return batch.AddAMQPAnnotatedMessage(&azeventhubs.AMQPAnnotatedMessage{
		Body:               azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{w.scratch}},
		MessageAnnotations: w.note,
		Properties:         &azeventhubs.AMQPAnnotatedMessageProperties{ContentType: to.Ptr("application/json"), MessageID: docs.ID(n)},
	}, nil)
}
