package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sender"
)

// arrivals counts the bytes that a client receives.
type arrivals struct{ bytes atomic.Int64 }

// dial connects to an address.
func (a *arrivals) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return arrivingConn{conn, a}, nil
}

type arrivingConn struct {
	net.Conn
	arrivals *arrivals
}

func (c arrivingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.arrivals.bytes.Add(int64(n))
	return n, err
}

// testLogs are a hub and a topic, each named flights.
type testLogs struct {
	hubs   *emulator.Server
	topics *kfake.Cluster
}

// mappings of a source or a target, without the two braces at their ends.
const (
	aHub   = `{eventhub: {hub: flights, connection: "${EVENTHUB_CONNECTION_STRING}"`
	aTopic = `{kafka: {topic: flights, brokers: "${KAFKA_BROKERS}"`
)

func startLogs(t *testing.T, partitions int) *testLogs {
	t.Helper()
	hubs, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: partitions}}, nil)
	suite.NoError(t, "emulator", err)
	t.Cleanup(func() { suite.NoError(t, "close the emulator", hubs.Close()) })
	topics, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(partitions), "flights"))
	suite.NoError(t, "kfake", err)
	t.Cleanup(topics.Close)
	return &testLogs{hubs, topics}
}

// environment is that of files which name the logs, with more variables.
func (l *testLogs) environment(more ...string) func(string) (string, bool) {
	return environment(append(more, "EVENTHUB_CONNECTION_STRING="+l.hubs.ConnectionString(), "KAFKA_BROKERS="+strings.Join(l.topics.ListenAddrs(), ","))...)
}

// open opens partition 0 of a source with keys of its own.
func (l *testLogs) open(t *testing.T, log, keys, group string) (driver.Reader, *arrivals) {
	t.Helper()
	p, err := Parse("p.yaml", []byte("source: "+log+keys+"}}"+plainFile[strings.Index(plainFile, "\npartitions"):]), l.environment())
	suite.NoError(t, "parse", err)
	a := &arrivals{}
	switch log := p.source.(type) {
	case *hub:
		log.config.WebSocket = func(ctx context.Context, _ string) (net.Conn, error) { return a.dial(ctx, l.hubs.Addr()) }
	case *kafkaTopic:
		log.cluster.config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return a.dial(ctx, address) }
	}
	source, err := p.source.open(group)
	suite.NoError(t, "source", err)
	t.Cleanup(func() { suite.NoError(t, "close the source", source.Close(context.Background())) })
	_, err = source.Describe(suite.Context(t))
	suite.NoError(t, "describe", err)
	r, err := source.Open(suite.Context(t), "0", driver.Origin, 1)
	suite.NoError(t, "open", err)
	t.Cleanup(func() { r.Close(context.Background()) })
	return r, a
}

// send sends n events of a size, which compression leaves as it is.
func (l *testLogs) send(t *testing.T, log string, n, size int) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(sendTo(log+"}}")), l.environment())
	suite.NoError(t, "parse", err)
	out, err := targetOf[*messageTarget](p).transport()
	suite.NoError(t, "transport", err)
	random := rand.NewChaCha8([32]byte{})
	report, err := sender.New(out, nil).SendAll(suite.Context(t), func(yield func(sender.Message) bool) {
		for range n {
			body := make([]byte, size)
			random.Read(body)
			if !yield(sender.Message{Body: body}) {
				return
			}
		}
	})
	if err := errors.Join(err, out.Close(suite.Context(t))); err != nil || report.Messages != int64(n) {
		t.Fatalf("%+v, %v", report, err)
	}
}

func readEvents(t *testing.T, r driver.Reader, n int) {
	t.Helper()
	for n > 0 {
		events, err := r.Read(suite.Context(t), n)
		suite.NoError(t, "read", err)
		n -= len(events)
	}
}

// TestLogPrefetch reads one event of 4 MB: how much more arrives, while others read all of it?
func TestLogPrefetch(t *testing.T) {
	const n, size = 80, 50_000
	logs := startLogs(t, 1)
	logs.send(t, aHub, n, size)
	logs.send(t, aTopic, n, size)
	for name, c := range map[string]struct{ log, keys string }{
		"hub, events":  {aHub, ", prefetch: {events: 5}"},
		"hub, bytes":   {aHub, ", prefetch: {bytes: 256KiB}"},
		"topic, bytes": {aTopic, ", prefetch: {bytes: 256KiB}"},
	} {
		t.Run(name, func(t *testing.T) {
			limited, few := logs.open(t, c.log, c.keys, "limited")
			readEvents(t, limited, 1)
			unlimited, all := logs.open(t, c.log, "", "unlimited")
			readEvents(t, unlimited, 1)
			suite.Eventually(t, "much to arrive without a limit", func() bool { return all.bytes.Load() > n*size*2/3 })
			reader, _ := logs.open(t, c.log, "", "reader")
			readEvents(t, reader, n)
			if came := few.bytes.Load(); came > n*size/3 {
				t.Errorf("%d bytes arrived before they were read", came)
			}
			readEvents(t, limited, n-1)
		})
	}
}

// TestMaxRecordBatch: a record batch that decompresses to more stops the partition.
func TestMaxRecordBatch(t *testing.T) {
	logs := startLogs(t, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(logs.topics.ListenAddrs()...), kgo.DefaultProduceTopic("flights"), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	suite.NoError(t, "client", err)
	defer client.Close()
	suite.NoError(t, "produce", client.ProduceSync(suite.Context(t), &kgo.Record{Value: make([]byte, 200_000)}).FirstErr())
	for keys, fits := range map[string]bool{"": true, ", max_record_batch: 300KB": true, ", max_record_batch: 100KB": false} {
		r, _ := logs.open(t, aTopic, keys, "")
		events, err := r.Read(suite.Context(t), 1)
		if (err == nil) != fits || (len(events) == 1) != fits || !fits && !errors.Is(err, driver.ErrUndecodable) {
			t.Errorf("%q: %d events, %v", keys, len(events), err)
		}
	}
}
