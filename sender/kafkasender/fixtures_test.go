package kafkasender_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

const topic = "flights"

// network is the way to a cluster. It can fail.
type network struct {
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	away    atomic.Bool  // refuses connections
	lost    atomic.Int64 // answers

	mu        sync.Mutex
	connected []*lossyConn
	deaf      bool // new connections lose their answers too
}

// dial connects to a broker.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.away.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := n.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	lossy := &lossyConn{Conn: conn, lost: &n.lost, deaf: n.deaf}
	n.connected = append(n.connected, lossy)
	return lossy, nil
}

// goAway makes the brokers unreachable.
func (n *network) goAway() (comeBack func()) {
	n.away.Store(true)
	n.loseAnswers()
	return func() { n.away.Store(false) }
}

// loseAnswers closes every present connection instead of delivering the next answer.
func (n *network) loseAnswers() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose()
}

// loseAllAnswers loses every answer until its result is called, also those of new connections.
func (n *network) loseAllAnswers() (end func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = true
	n.lose()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.deaf = false
	}
}

func (n *network) lose() {
	for _, conn := range n.connected {
		conn.mu.Lock()
		conn.deaf = true
		conn.mu.Unlock()
	}
	n.connected = nil
}

// client connects to a cluster.
func (n *network) client(t testing.TB, brokers ...string) *kafka.Client {
	t.Helper()
	client, err := kafka.Open(brokers, &kafka.Config{Dial: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return client
}

// lossyConn is a connection that can lose what the broker answers.
type lossyConn struct {
	net.Conn
	lost *atomic.Int64 // counts lost answers
	mu   sync.Mutex
	deaf bool // closes instead of reading
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf && err == nil {
		c.Conn.Close()
		c.lost.Add(1)
		return 0, net.ErrClosed
	}
	return n, err
}

// fakeCluster is brokers in memory, on a network in memory, so that it works in a bubble of
// synctest.
type fakeCluster struct {
	*kfake.Cluster
	network
}

// start starts a cluster of three brokers that has the topic with so many partitions.
func start(t testing.TB, partitions int32, options ...kfake.Opt) *fakeCluster {
	t.Helper()
	virtual := &kfake.VirtualNetwork{}
	c := &fakeCluster{network: network{connect: virtual.DialContext}}
	options = append([]kfake.Opt{
		kfake.ListenFn(virtual.Listen), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(partitions, topic),
	}, options...)
	var err error
	if c.Cluster, err = kfake.NewCluster(options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Cluster.Close)
	return c
}

// client connects to the cluster.
func (c *fakeCluster) client(t testing.TB) *kafka.Client {
	t.Helper()
	return c.network.client(t, "localhost:9092")
}

// transport makes a transport to the topic.
func (c *fakeCluster) transport(t testing.TB, cfg *kafkasender.Config) *kafkasender.Transport {
	t.Helper()
	return newTransport(t, c.client(t), topic, cfg)
}

func newTransport(t testing.TB, client *kafka.Client, topic string, cfg *kafkasender.Config) *kafkasender.Transport {
	t.Helper()
	transport, err := kafkasender.New(client, topic, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// stored reads the topic, until a second brings nothing more, and checks how many records it has.
func (c *fakeCluster) stored(t testing.TB, want int) []*kgo.Record {
	t.Helper()
	records := c.read(t)
	if len(records) != want {
		t.Errorf("%d records stored, want %d", len(records), want)
	}
	return records
}

func (c *fakeCluster) read(t testing.TB) (records []*kgo.Record) {
	t.Helper()
	return read(t, c.connect, topic, "localhost:9092")
}

// read reads a topic, until a second brings nothing more.
func read(t testing.TB, dial func(ctx context.Context, network, address string) (net.Conn, error), topic string, brokers ...string) (records []*kgo.Record) {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.Dialer(dial), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for over := false; !over; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fetched := reader.PollFetches(ctx)
		over = ctx.Err() != nil
		cancel()
		fetched.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records
}

// observe calls see for each produce request, on the cluster's goroutine.
func (c *fakeCluster) observe(see func(*kmsg.ProduceRequest)) {
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		see(r.(*kmsg.ProduceRequest))
		return nil, nil, false
	})
}

// batchOf makes a batch of these messages.
func batchOf(t testing.TB, transport sender.Transport, partition string, messages ...sender.Message) sender.Batch {
	t.Helper()
	b, err := transport.NewBatch(t.Context(), partition)
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if err := b.Add(&messages[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}
