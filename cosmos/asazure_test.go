package cosmos

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/storetest"
)

// asAzure is how the embedded accounts of the tests behave; nil while TestAsAzure does
// not run.
var asAzure *emulator.AsAzure

// TestAsAzure runs the tests with an embedded account again, on one that behaves as an
// account on Azure does.
func TestAsAzure(t *testing.T) {
	need.RealTime(t)
	asAzure = emulator.AllAsAzure(1)
	asAzure.Cosmos.TwoRegions = true
	defer func() { asAzure = nil }()
	t.Run("Emulator", TestEmulator)
	t.Run("CheckOfContainer", TestCheckOfContainer)
	t.Run("Splits", TestEmulatorSplits)
	t.Run("Faults", TestEmulatorFaults)
	t.Run("Zombie", TestEmulatorZombie)
	t.Run("Costs", TestEmulatorCosts)
	t.Run("KeyRevoked", TestEmulatorKeyRevoked)
	t.Run("Failover", testEmulatorFailover)
	t.Run("AnswerTooLarge", testAnswerTooLarge)
	t.Run("Conformance", testConformanceAsAzure)
}

// testEmulatorFailover: no document is lost while the regions change places.
func testEmulatorFailover(t *testing.T) {
	srv := embedded(t, emulator.CosmosContainer{}, nil)
	s := openSink(t, srv, nil)
	d := deliver(t.Context(), s, 200, func(i int) (Document, bool) {
		if i%500 == 499 {
			if err := srv.Failover(); err != nil {
				t.Error(err)
			}
		}
		return document(i), i < 2000
	})
	if n := d.done.Load(); n != 2000 || d.rejected.Load() != 0 {
		t.Errorf("%d of 2000 documents, %d rejected, %v", n, d.rejected.Load(), d.last.Load())
	}
	if st := stats(t, srv); st.Documents != 2000 {
		t.Errorf("%d documents in the container", st.Documents)
	}
}

// testAnswerTooLarge: a batch of conditional writes reads more than fits into an answer.
func testAnswerTooLarge(t *testing.T) {
	all := emulator.AllAsAzure(1)
	all.Cosmos.AnswerSize = 100_000
	srv := embedded(t, emulator.CosmosContainer{}, &emulator.CosmosConfig{AsAzure: all})
	large := func(sequence int64) (docs []Document) {
		for i := range 60 {
			d := document(i)
			d.Body = fmt.Appendf(nil, `{"key":"k%d","text":"%s"}`, i%97, bytes.Repeat([]byte("x"), 10_000))
			d.Source = &Source{Partition: "0", Sequence: sequence + int64(i)}
			docs = append(docs, d)
		}
		return docs
	}
	for _, sequence := range []int64{0, 100} { // each sink has nothing in its cache
		for i, r := range submit(t, openSink(t, srv, nil), large(sequence)...) {
			if r.Err != nil {
				t.Errorf("document %d: %v", i, r.Err)
			}
		}
	}
}

// testConformanceAsAzure runs the suite of sinks before an account as on Azure.
func testConformanceAsAzure(t *testing.T) {
	storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[Document] {
		srv := embedded(t, emulator.CosmosContainer{}, nil)
		gate := &gate{next: http.DefaultTransport.(*http.Transport).Clone(), open: make(chan struct{})}
		close(gate.open)
		t.Cleanup(gate.next.CloseIdleConnections)
		cfg := &Config{}
		cfg.Client.Transport = &http.Client{Transport: gate}
		client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		docs, err := client.NewContainer("db", "docs")
		if err != nil {
			t.Fatal(err)
		}
		refused := map[int]bool{}
		return storetest.SinkHarness[Document]{
			Sink: openSink(t, srv, cfg),
			Record: func(i int) Document {
				d := document(i)
				if refused[i] { // the body contradicts the partition key
					d.Body = []byte(`{"key":"another"}`)
				}
				return d
			},
			Written: func(i int) bool {
				d := document(i)
				_, err := docs.ReadItem(t.Context(), azcosmos.NewPartitionKeyString(d.PartitionKey[0].(string)), d.ID, nil)
				return err == nil
			},
			Refuse: func(i int) { refused[i] = true },
			Block:  gate.block,
			Break:  gate.breaks,
		}
	})
}

// gate is a network that can be held up, and broken.
type gate struct {
	next *http.Transport

	mu     sync.Mutex
	open   chan struct{}
	broken bool
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	open, broken := g.open, g.broken
	g.mu.Unlock()
	if broken {
		return nil, errors.New("the network is down")
	}
	select {
	case <-open:
		return g.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (g *gate) block() (release func()) {
	open := make(chan struct{})
	g.mu.Lock()
	g.open = open
	g.mu.Unlock()
	return func() { close(open) }
}

func (g *gate) breaks() (repair func()) {
	set := func(broken bool) {
		g.mu.Lock()
		g.broken = broken
		g.mu.Unlock()
	}
	set(true)
	return func() { set(false) }
}
