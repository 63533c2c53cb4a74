package kafkasender_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
	"github.com/sluice-go/sluice/storetest"
)

// blockable is a transport that can be blocked.
type blockable struct {
	*kafkasender.Transport
	mu    sync.Mutex
	gate  chan struct{} // nil: open
	sends atomic.Int64
}

func (g *blockable) Send(ctx context.Context, batch sender.Batch) (sender.Outcome, error) {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate != nil {
		<-gate
	}
	defer g.sends.Add(1)
	return g.Transport.Send(ctx, batch)
}

func (g *blockable) block() (release func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = gate
	return func() {
		close(gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.gate = nil
	}
}

// newSink makes a sink that the test closes.
func newSink(t testing.TB, transport sender.Transport, cfg *sender.SinkConfig) *sender.Sink {
	t.Helper()
	s := sender.NewSink(transport, cfg)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close the sink: %v", err)
		}
	})
	return s
}

// TestSinkConformance runs the conformance suite of sinks, with brokers that refuse batches and
// with brokers that are away.
func TestSinkConformance(t *testing.T) {
	for name, fail := range map[string]func(c *fakeCluster) (repair func()){
		"refused": func(c *fakeCluster) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
		},
		"away": (*fakeCluster).goAway,
	} {
		t.Run(name, func(t *testing.T) {
			suite.Virtual(t, func(t *testing.T) {
				storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[*sender.Message] { return harness(t, fail) })
			})
		})
	}
}

func harness(t testing.TB, fail func(c *fakeCluster) (repair func())) storetest.SinkHarness[*sender.Message] {
	c := start(t, 3)
	g := &blockable{Transport: c.transport(t, &kafkasender.Config{MaxBytes: 20_000, Compression: []kgo.CompressionCodec{kgo.NoCompression()}})}
	bad := []byte("not accepted")
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1, When: func(r kmsg.Request) bool {
		return bytes.Contains(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records, bad)
	}})
	there, at := map[string]bool{}, int64(0)
	var refused atomic.Int64
	refused.Store(-1)
	return storetest.SinkHarness[*sender.Message]{
		Sink: newSink(t, g, &sender.SinkConfig{Timeout: 5 * time.Second}),
		Record: func(i int) *sender.Message {
			m := &sender.Message{MessageID: strconv.Itoa(i), Body: []byte("body")}
			if i%3 > 0 {
				m.Key = fmt.Sprint("key-", i%97)
			}
			if int64(i) == refused.Load() {
				m.Body = bad
			}
			return m
		},
		Written: func(i int) bool {
			if sends := g.sends.Load(); at != sends {
				for _, r := range c.read(t) {
					there[string(r.Headers[0].Value)] = true
				}
				at = sends
			}
			return there[strconv.Itoa(i)]
		},
		Block:  g.block,
		Refuse: func(i int) { refused.Store(int64(i)) },
		Break:  func() func() { return fail(c) },
	}
}
