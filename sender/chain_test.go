package sender_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// lossyHub is a service in front of the next stage's hub. At random it is busy,
// loses a batch or loses an answer.
type lossyHub struct {
	hub *sluicetest.Hub

	mu   sync.Mutex
	rand *rand.Rand
	sent int // stored messages
}

func (r *lossyHub) Partitions(ctx context.Context) ([]string, error) {
	topic, err := r.hub.Describe(ctx)
	return topic.Partitions, err
}

func (r *lossyHub) Send(ctx context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fault := r.rand.IntN(10)
	switch fault {
	case 0:
		return sender.OutcomeBusy, errors.New("busy")
	case 1:
		return sender.OutcomeUnknown, errors.New("batch lost")
	}
	events := make([]*sluice.Event, len(messages))
	for i, m := range messages {
		events[i] = &sluice.Event{Key: m.Key, MessageID: m.MessageID, Properties: maps.Clone(m.Properties), Body: slices.Clone(m.Body)}
	}
	r.hub.Append(partition, events...)
	r.sent += len(messages)
	if fault == 2 {
		return sender.OutcomeUnknown, errors.New("answer lost")
	}
	return sender.OutcomeAccepted, nil
}

// TestChain runs two stages in a row. The first is killed again and again, and
// its connection to the next hub fails. Each event has its effects at the end of
// the chain exactly once, although its messages were sent more often.
func TestChain(t *testing.T) {
	const events, each, seeds = 400, 2, 5
	key := []byte("a key of the stages in this test")
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 3))
			first := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "raw", Name: "clean"}, 2)
			second := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "clean", Name: "store"}, 3)
			transport := &lossyHub{hub: second, rand: rand.New(rand.NewPCG(seed, 4))}
			e, err := sender.NewEstimator(transport, &sender.EstimatorConfig{MaxMessages: 20})
			if err != nil {
				t.Fatal(err)
			}
			split := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
				keyless, keyed := &sender.Message{Body: e.Body}, &sender.Message{Key: e.Key, Body: append([]byte("again "), e.Body...)}
				return []*sender.Message{keyless, keyed}, nil
			}
			between, leases := &sluicetest.Store{}, &sluicetest.Leases{}
			stage := func(owner string) (kill func()) {
				sink := sender.NewSink(e, &sender.SinkConfig{StampKey: key})
				delivery := sluice.AtLeastOnce(between, sender.Stamped(split), sink, nil)
				c, err := sluice.New(first, leases, delivery, &sluice.Config{Owner: owner})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan struct{})
				go func() { defer close(ran); c.Run(ctx) }()
				return func() {
					cancel()
					<-ran
					sink.Close(t.Context())
				}
			}

			last := &sluicetest.Store{}
			insert := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				return tx.Insert("effects", string(e.Body))
			})
			c, err := sluice.New(second, &sluicetest.Leases{}, sluice.Transactional(last, insert), &sluice.Config{StampsFrom: []stamp.Source{{Topic: "raw", Key: key}}})
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()

			kill := stage("0")
			for i := range events {
				first.Append(fmt.Sprint(i%2), &sluice.Event{Key: fmt.Sprint("key-", i%31), Body: fmt.Appendf(nil, "%d", i)})
				time.Sleep(time.Duration(chance.IntN(400)) * time.Millisecond)
				if chance.IntN(40) == 0 {
					kill()
					kill = stage(strconv.Itoa(i))
				}
			}
			time.Sleep(5 * time.Minute)
			kill()
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil {
				t.Error(err)
			}
			times := map[string]int{}
			for _, row := range last.Rows("effects") {
				times[row.(string)]++
			}
			for i := range events {
				for _, body := range []string{fmt.Sprint(i), fmt.Sprint("again ", i)} {
					if n := times[body]; n != 1 {
						t.Errorf("seed %d: %q has its effect %d times", seed, body, n)
					}
				}
			}
			if transport.sent <= events*each {
				t.Errorf("seed %d: %d messages sent: this shows nothing", seed, transport.sent)
			}
			t.Logf("%d messages sent for %d", transport.sent, events*each)
		})
	}
}
