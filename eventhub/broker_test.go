package eventhub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
)

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

const hubName = "flights"

// broker is an emulator with one hub of four partitions.
type broker struct {
	*emulator.Server
	t        testing.TB
	receiver Receiver // of its sources
	producer *azeventhubs.ProducerClient
	now      context.Context // ends with the test, or its patience
}

func newBroker(t testing.TB, cfg *emulator.Config) *broker {
	t.Helper()
	var resolved emulator.Config
	if cfg != nil {
		resolved = *cfg
	}
	if resolved.AsAzure == nil {
		resolved.AsAzure = asazure.WithoutBusy() // a source repeats nothing
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: 4, ConsumerGroups: []string{"other"}}}, &resolved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	b := &broker{Server: srv, t: t, receiver: testedReceiver}
	b.connect()
	t.Cleanup(func() { b.producer.Close(context.Background()) })
	var cancel context.CancelFunc
	b.now, cancel = context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return b
}

// testedReceiver is what the sources of new brokers receive with. Tests run one after the other.
var testedReceiver = SDKReceiver

// receivers runs a test with each receiver.
func receivers(t *testing.T, run func(t *testing.T)) {
	defer func() { testedReceiver = SDKReceiver }()
	for _, testedReceiver = range []Receiver{SDKReceiver, OwnReceiver} {
		t.Run(string(testedReceiver), run)
	}
}

// connect creates the producer.
func (b *broker) connect() {
	b.t.Helper()
	var err error
	b.producer, err = azeventhubs.NewProducerClientFromConnectionString(b.ConnectionString(), hubName, nil)
	b.ok("new producer", err)
}

// source is a source on the broker's plain address.
func (b *broker) source(cfg *Config) *Source {
	b.t.Helper()
	return b.sourceOf(b.ConnectionString(), cfg)
}

func (b *broker) sourceOf(connection string, cfg *Config) *Source {
	b.t.Helper()
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Receiver = b.receiver
	s, err := New(connection, hubName, &c)
	b.ok("new source", err)
	b.t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func (b *broker) ok(what string, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// send sends n events of a size, whose bodies begin with their numbers from
// first on.
func (b *broker) send(partition string, first, n, size int) {
	b.t.Helper()
	events := make([]*azeventhubs.EventData, n)
	for i := range events {
		body := fmt.Sprint(first+i, " ")
		events[i] = &azeventhubs.EventData{Body: []byte(body + strings.Repeat("x", max(0, size-len(body))))}
	}
	b.sendEvents(partition, events...)
}

func (b *broker) sendEvents(partition string, events ...*azeventhubs.EventData) {
	b.t.Helper()
	options := &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)}
	batch, err := b.producer.NewEventDataBatch(b.now, options)
	b.ok("new batch", err)
	for _, e := range events {
		err := batch.AddEventData(e, nil)
		if err == azeventhubs.ErrEventDataTooLarge {
			b.ok("send", b.producer.SendEventDataBatch(b.now, batch, nil))
			batch, err = b.producer.NewEventDataBatch(b.now, options)
			b.ok("new batch", err)
			err = batch.AddEventData(e, nil)
		}
		b.ok("add event", err)
	}
	b.ok("send", b.producer.SendEventDataBatch(b.now, batch, nil))
}

func (b *broker) open(s *Source, partition string, after driver.Position, epoch int64) driver.Reader {
	b.t.Helper()
	r, err := s.Open(b.now, partition, after, epoch)
	b.ok("open", err)
	b.t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// openLower opens a reader in a lower epoch than that of one that was closed. The broker may still
// hold that: Close does not wait for ever until it is detached.
func (b *broker) openLower(s *Source, partition string, after driver.Position, epoch int64) (r driver.Reader) {
	b.t.Helper()
	b.eventually("the closed reader does not count any more", func() bool {
		var err error
		if r, err = s.Open(b.now, partition, after, epoch); errors.Is(err, driver.ErrStolen) {
			return false
		}
		b.ok("open", err)
		return true
	})
	b.t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// refusal returns why the broker refuses a reader: the error of Open, or of the first Read.
func (b *broker) refusal(s *Source, partition string, after driver.Position, epoch int64) error {
	b.t.Helper()
	r, err := s.Open(b.now, partition, after, epoch)
	if err != nil {
		return err
	}
	defer r.Close(b.now)
	_, err = r.Read(b.now, 10)
	return err
}

// read reads n events in batches of at most limit and checks that they follow
// each other.
func (b *broker) read(r driver.Reader, n, limit int) []*driver.Event {
	b.t.Helper()
	var all []*driver.Event
	for len(all) < n {
		events, err := r.Read(b.now, min(limit, n-len(all)))
		if err != nil {
			b.t.Fatalf("read after %d of %d events: %v", len(all), n, err)
		}
		if len(events) == 0 || len(events) > limit {
			b.t.Fatalf("read returned %d events, at most %d were asked for", len(events), limit)
		}
		all = append(all, events...)
	}
	for i, e := range all {
		if e.Sequence != all[0].Sequence+int64(i) {
			b.t.Fatalf("event %d is number %d, the first %d", i, e.Sequence, all[0].Sequence)
		}
	}
	return all
}

// eventually polls until ok.
func (b *broker) eventually(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-b.now.Done():
			buf := make([]byte, 1<<20)
			b.t.Fatalf("still not: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// tls trusts the broker's certificate.
func (b *broker) tls() *tls.Config { return &tls.Config{RootCAs: b.CertPool()} }

// brokers runs a test over plain TCP and over TLS.
func brokers(t *testing.T, run func(t *testing.T, b *broker, open func(*Config) *Source)) {
	t.Run("plain", func(t *testing.T) {
		b := newBroker(t, nil)
		run(t, b, b.source)
	})
	t.Run("tls", func(t *testing.T) {
		b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0"})
		run(t, b, func(cfg *Config) *Source {
			var c Config
			if cfg != nil {
				c = *cfg
			}
			c.TLSConfig = b.tls()
			return b.sourceOf(b.TLSConnectionString(), &c)
		})
	})
}
