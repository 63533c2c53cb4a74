package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// A receiver that drains gets what there is, and its credit back.
func TestDrain(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	send(t, producer(t, srv, "h"), to0(), numbered(0, 3)...)
	r := receiver(t, session(t, srv), fromZero, &amqp.ReceiverOptions{Credit: -1})
	if err := r.IssueCredit(10); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next(t, r)
	}
	if err := r.DrainCredit(testContext(t), nil); err != nil {
		t.Fatal(err)
	}
	send(t, producer(t, srv, "h"), to0(), "new")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if m, err := r.Receive(ctx, nil); err == nil {
		t.Errorf("got %q without credit", m.GetData())
	}
	if err := r.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	if m := next(t, r); string(m.GetData()) != "new" {
		t.Errorf("got %q", m.GetData())
	}
}

// A reader that asks for events one by one, without prefetching.
func TestNoPrefetch(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	send(t, producer(t, srv, "h"), to0(), numbered(0, 20)...)
	pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: -1})
	for i := 0; i < 20; i += 4 {
		if got := receive(t, pc, 4); string(got[3].Body) != fmt.Sprintf("event %d", i+3) {
			t.Errorf("got %q", got[3].Body)
		}
	}
}

// Receivers without credit hold up neither each other nor the senders of their connection.
func TestSlowReceivers(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	s := session(t, srv)
	l := sender(t, s, "h")
	for i := range 3 {
		receiver(t, s, fmt.Sprintf("h/ConsumerGroups/slow%d/Partitions/0", i), &amqp.ReceiverOptions{Credit: -1})
	}
	r := receiver(t, s, fromZero, nil)
	for i := range 100 {
		if err := l.Send(testContext(t), &amqp.Message{Data: [][]byte{make([]byte, 100_000)}}, nil); err != nil {
			t.Fatal(err)
		}
		if m := next(t, r); m.Annotations["x-opt-sequence-number"] != int64(i) {
			t.Fatalf("event %v", m.Annotations)
		}
	}
}

// The readers of one client share a connection. Those that don't read on, and those
// that read one event at a time, take nothing from the others; in the end each has had
// every event of its partition, in order.
func TestSlowReadersOfOneClient(t *testing.T) {
	const events, size = 3000, 4000
	srv := start(t, one("h", 4), nil)
	p := producer(t, srv, "h")
	for id := range 4 {
		for first := 0; first < events; first += 200 {
			var bodies []string
			for i := first; i < first+200; i++ {
				bodies = append(bodies, fmt.Sprintf("%-*d", size, i))
			}
			send(t, p, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(id))}, bodies...)
		}
	}
	c := consumer(t, srv, "h", "$Default", "")
	read := func(pc *azeventhubs.PartitionClient, from, to, atOnce int) {
		for i := from; i < to; {
			got, err := pc.ReceiveEvents(testContext(t), min(atOnce, to-i), nil)
			if err != nil {
				t.Errorf("event %d: %v", i, err)
				return
			}
			for _, e := range got {
				if e.SequenceNumber != int64(i) || len(e.Body) != size {
					t.Errorf("event %d of %d bytes instead of event %d", e.SequenceNumber, len(e.Body), i)
					return
				}
				i++
			}
		}
	}
	readers := make([]*azeventhubs.PartitionClient, 4)
	for i, prefetch := range []int32{0, 0, 1, -1} { // the usual number, one, none
		readers[i] = partition(t, c, fmt.Sprint(i), &azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: prefetch})
	}
	read(readers[0], 0, 1, 1) // has more on its way than it takes
	read(readers[2], 0, 1, 1)
	read(readers[3], 0, 1, 1)
	read(readers[1], 0, events, 100)
	var rest sync.WaitGroup
	for _, i := range []int{0, 2, 3} {
		rest.Go(func() { read(readers[i], 1, events, 10) })
	}
	rest.Wait()
}

// A connection that is silent for the idle timeout is closed. An idle client sends
// empty frames in time, and stays connected: if the link were attached again, a
// receiver without retries would see an error.
func TestIdleReceiver(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	for ctx := testContext(t); ; {
		longest := watchStalls()
		err := idleReceiver(t)
		if stall := longest(); err == nil {
			return
		} else if stall < time.Second || ctx.Err() != nil { // a second does not make the client's frames late
			t.Fatalf("longest stall %s: %v", stall, err)
		}
	}
}

func idleReceiver(t *testing.T) error {
	const silence = 5 * time.Second
	srv := start(t, one("h", 1), &emulator.Config{IdleTimeout: silence})
	pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: to.Ptr(int64(1))})
	ctx, cancel := context.WithTimeout(testContext(t), 2*silence+silence/2)
	defer cancel()
	if _, err := pc.ReceiveEvents(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("an idle reader got %v", err)
	}
	if err := trySend(testContext(t), producer(t, srv, "h"), to0(), "at last"); err != nil {
		return err
	}
	got, err := pc.ReceiveEvents(testContext(t), 1, nil)
	if err == nil && string(got[0].Body) != "at last" {
		t.Errorf("got %q", got[0].Body)
	}
	return err
}

// watchStalls measures the longest time for which the process gets no processor, until longest is
// called.
func watchStalls() (longest func() time.Duration) {
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for last, stopped := time.Now(), false; !stopped; {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-stop:
				stopped = true
			}
			now := time.Now()
			most, last = max(most, now.Sub(last)), now
		}
		result <- most
	}()
	return func() time.Duration {
		close(stop)
		return <-result
	}
}
