package kafka

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names of the headers that a [Source] also returns in the fields of an event. The sink for Kafka
// writes them.
const (
	HeaderMessageID     = "message-id"
	HeaderCorrelationID = "correlation-id"
	HeaderContentType   = "content-type"
)

// NoTopicID is the incarnation of a topic whose brokers have no topic ids.
const NoTopicID = "no topic id"

// SourceConfig has the optional settings of a [Source]. The zero value is ready to use.
type SourceConfig struct {
	// Namespace is the name under which leases, checkpoints and dead letters are stored.
	// Default: the cluster's id.
	Namespace string
	// ReadUncommitted reads the records of transactions that are open, and of those that were
	// aborted. Default: only what is committed, and what was sent without a transaction.
	ReadUncommitted bool
	// PrefetchBytes is how many bytes of a partition, as the broker sends them, are held ahead of
	// Read; what one fetch returns may be more. When they are used up the partition is not fetched
	// until Read returns some. A response that has several partitions stays in memory for the last
	// of them, up to eight times these bytes. Default: 4 MiB.
	PrefetchBytes int
	// MaxBatchBytes is how many bytes a record batch may decompress to. A larger one is a
	// [driver.UndecodableError], and its partition halts. Default: 64 MiB.
	MaxBatchBytes int
	// Headers says what the values of headers are, for [driver.Event.Properties]; Event.Headers
	// are as they were sent. Default: what Event Hubs makes of AMQP's properties is decoded if the
	// brokers' domain is one of Event Hubs, except for text that happens to be a value of AMQP;
	// else they are bytes.
	Headers HeaderValues
}

// Source reads one topic. It is safe for concurrent use.
type Source struct {
	client *Client
	topic  string
	group  string
	cfg    SourceConfig

	mu        sync.Mutex
	described [16]byte // the topic id of the last Describe; zero before
	cluster   string   // empty before the first answer
	readers   map[*reader]struct{}
	stable    map[int32]int64 // last stable offsets of the partitions that were last seen held back
	closing   bool

	compaction compaction
	voidFor    time.Duration // how long a broker must return nothing; see void.go
}

var _ driver.Source = (*Source)(nil)

// Source returns a source for a topic. The group is the name under which leases, checkpoints and
// dead letters are stored; it is no consumer group of Kafka. Source does not connect.
func (c *Client) Source(topic, group string, cfg *SourceConfig) (*Source, error) {
	var sc SourceConfig
	if cfg != nil {
		sc = *cfg
	}
	sc.PrefetchBytes = cmp.Or(sc.PrefetchBytes, 4<<20)
	sc.MaxBatchBytes = cmp.Or(sc.MaxBatchBytes, 64<<20)
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	values, err := c.headerValues(sc.Headers)
	switch {
	case err != nil:
		return nil, err
	case group == "" || len(group) > 255:
		return nil, errors.New("consumer group: not a name: give 1 to 255 bytes")
	case sc.PrefetchBytes < 0 || sc.MaxBatchBytes < 0:
		return nil, fmt.Errorf("prefetch of %d bytes, batches of %d: must be positive", sc.PrefetchBytes, sc.MaxBatchBytes)
	}
	sc.Headers = values
	return &Source{client: c, topic: topic, group: group, cfg: sc, readers: map[*reader]struct{}{}, voidFor: voidFor}, nil
}

// Group returns the topic and the group, as Describe does, without a request. Its Namespace is
// empty until the cluster has answered a Describe, if SourceConfig names none.
func (s *Source) Group() driver.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return driver.Group{Namespace: cmp.Or(s.cfg.Namespace, s.cluster), Topic: s.topic, Name: s.group}
}

// Format writes the group for every verb.
func (s *Source) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Group().String()) }

// Close closes the source's readers. The client stays open.
func (s *Source) Close(context.Context) error {
	s.mu.Lock()
	s.closing = true
	open := make([]*reader, 0, len(s.readers))
	for r := range s.readers {
		open = append(open, r)
	}
	s.mu.Unlock()
	for _, r := range open {
		r.close()
	}
	return nil
}

// Describe implements [driver.Source].
func (s *Source) Describe(ctx context.Context) (driver.Topic, error) {
	info, err := s.settled(ctx)
	if err != nil {
		return driver.Topic{}, err
	}
	if s.cfg.Namespace == "" && info.cluster == "" {
		return driver.Topic{}, &refusedError{text: s.name() + ": the brokers name no cluster id, under which checkpoints are stored: set SourceConfig.Namespace (checkpoint_namespace in a pipeline)"}
	}
	s.mu.Lock()
	s.described, s.cluster = info.id, info.cluster
	s.mu.Unlock()
	t := driver.Topic{Group: s.Group(), Incarnation: incarnation(info.id), Sparse: true}
	for p := range info.partitions {
		t.Partitions = append(t.Partitions, strconv.Itoa(p))
	}
	return t, nil
}

// incarnation returns the text of a topic id.
func incarnation(id [16]byte) string {
	if id == [16]byte{} {
		return NoTopicID
	}
	return hex.EncodeToString(id[:])
}

// settled asks for the topic. A broker may learn of a new topic a moment after another, so one that
// seems not to exist is asked for again for a short time.
func (s *Source) settled(ctx context.Context) (*topicInfo, error) {
	until := time.Now().Add(min(unknownFor, s.client.timeout/3))
	for {
		info, err := s.client.topics.get(ctx, s.client, s.topic)
		if !isUnknownTopic(err) || time.Now().After(until) {
			return info, s.explain(s.name(), err)
		}
		if err := pause(ctx, unknownPause); err != nil {
			return nil, err
		}
	}
}

const (
	unknownFor   = 2 * time.Second
	unknownPause = 100 * time.Millisecond
)

// pause waits for a time.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// name returns the topic's name for messages.
func (s *Source) name() string { return "topic " + s.topic }

func (s *Source) partitionName(partition string) string {
	return fmt.Sprintf("topic %s partition %.20s", s.topic, partition)
}

// number returns the number of a partition.
func (s *Source) number(partition string) (int32, error) {
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != partition {
		return 0, &refusedError{text: fmt.Sprintf("%s: no partition has the name %.20q: the names are 0, 1, 2 …", s.name(), partition)}
	}
	return int32(n), nil
}

// isolation returns the isolation level of the source's requests.
func (s *Source) isolation() int8 {
	if s.cfg.ReadUncommitted {
		return 0
	}
	return 1
}

// kgoRequest is a request of Kafka's protocol.
type kgoRequest = kmsg.Request
