package kafkasender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
)

// Config holds optional settings. The zero value is ready to use.
type Config struct {
	// MaxBytes is how large a batch may be before compression. Default: what the topic takes
	// (max.message.bytes), and 1 MiB if that is more and the batch has several messages.
	MaxBytes int
	// MaxMessages is how many messages a batch may have. Default: any number.
	MaxMessages int
	// Compression is the codec, or several in order of preference. Default: snappy. If the broker
	// does not support the codec, batches are sent uncompressed.
	Compression []kgo.CompressionCodec
}

// Transport is a [sender.Transport] to a topic. It is safe for concurrent use. It needs no closing;
// the caller closes the client.
//
// The partitions are those that the topic has when they are first asked for: partitions that are
// added later get messages from the next Transport on.
type Transport struct {
	client     *kafka.Client
	requests   *kgo.Client
	name       string // of the topic
	cfg        Config
	compressor kgo.Compressor // nil: none
	plain      atomic.Bool    // the broker does not support the codec
	buffers    sync.Pool      // of *[]byte, the memory of accepted batches

	lookups    chan struct{} // held while metadata or limits are looked up
	leaders    atomic.Pointer[leaders]
	limits     atomic.Pointer[limits]
	partitions atomic.Pointer[[]*partition] // nil until they are known
}

var (
	_ sender.Transport      = (*Transport)(nil)
	_ sender.KeyPartitioner = (*Transport)(nil)
	_ sender.Sizer          = (*recordBatch)(nil)
)

// New makes a transport to a topic. It does not connect.
func New(client *kafka.Client, topic string, cfg *Config) (*Transport, error) {
	t := &Transport{client: client, requests: client.Requests(), name: topic, lookups: make(chan struct{}, 1)}
	if cfg != nil {
		t.cfg = *cfg
	}
	c := &t.cfg
	switch {
	case topic == "":
		return nil, errors.New("kafka: the name of the topic is missing")
	case c.MaxBytes < 0 || c.MaxBytes > maxBatch || c.MaxMessages < 0:
		return nil, fmt.Errorf("kafka: MaxBytes %d must be between 0 and %d, and MaxMessages %d not negative", c.MaxBytes, maxBatch, c.MaxMessages)
	}
	c.MaxMessages = cmp.Or(c.MaxMessages, math.MaxInt32)
	if len(c.Compression) == 0 {
		c.Compression = []kgo.CompressionCodec{kgo.SnappyCompression()}
	}
	var err error
	if t.compressor, err = kgo.DefaultCompressor(c.Compression...); err != nil {
		return nil, fmt.Errorf("kafka: compression: %w", err)
	}
	return t, nil
}

// Check looks up the topic. The error says why nothing can be sent to it.
func (t *Transport) Check(ctx context.Context) error {
	_, err := t.Partitions(ctx)
	return err
}

// Partitions implements [sender.Transport].
func (t *Transport) Partitions(ctx context.Context) ([]string, error) {
	list, err := t.lookUpPartitions(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names, nil
}

// PartitionOf implements [sender.KeyPartitioner].
func (t *Transport) PartitionOf(key string, n int) int { return partitionkey.KafkaPartition(key, n) }

// MaxBatchBytes returns how large a batch of several messages may be, in bytes. It connects.
func (t *Transport) MaxBatchBytes(ctx context.Context) (int, error) {
	l, err := t.lookUpLimits(ctx)
	return l.batch, err
}

// NewBatch implements [sender.Transport].
func (t *Transport) NewBatch(ctx context.Context, partition string) (sender.Batch, error) {
	list, err := t.lookUpPartitions(ctx)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(partition)
	if err != nil || n < 0 || n >= len(list) {
		return nil, permanentError{fmt.Errorf("topic %s has no partition %s, it has %d", t.name, partition, len(list))}
	}
	l, err := t.lookUpLimits(ctx)
	if err != nil {
		return nil, err
	}
	return t.newBatch(list[n], l), nil
}

// leaders is which broker leads each partition.
type leaders struct {
	brokers []int32 // by partition; -1: none
}

// leader returns the leader of a partition, -1 if there is none.
func (l *leaders) leader(partition int32) int32 {
	if int(partition) >= len(l.brokers) {
		return -1
	}
	return l.brokers[partition]
}

// limits is how large a batch may be, in bytes before compression.
type limits struct {
	batch   int // of several messages
	message int // of one message
}
