package kafkasender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/sender"
)

const (
	// defaultMaxBytes is Kafka's own default of max.message.bytes.
	defaultMaxBytes = 1<<20 + 12
	// maxSeveral bounds a batch of several messages.
	maxSeveral = 1 << 20
	// maxBatch bounds every batch: lengths on the wire have 31 bits.
	maxBatch = 1 << 30
)

// exclusively runs a look-up while no other runs, unless ctx ends first.
func (t *Transport) exclusively(ctx context.Context, lookUp func() error) error {
	select {
	case t.lookups <- struct{}{}:
		defer func() { <-t.lookups }()
		return lookUp()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookUpPartitions returns the partitions, always the same.
func (t *Transport) lookUpPartitions(ctx context.Context) ([]*partition, error) {
	if list := t.partitions.Load(); list != nil {
		return *list, nil
	}
	l, err := t.lookUpLeaders(ctx, nil)
	if err != nil {
		return nil, err
	}
	list := make([]*partition, len(l.brokers))
	for i := range list {
		list[i] = &partition{number: int32(i), turn: make(chan struct{}, 1), id: -1}
	}
	t.partitions.CompareAndSwap(nil, &list) // another call may have been first
	return *t.partitions.Load(), nil
}

// lookUpLeaders returns who leads the partitions, by newer metadata than known.
func (t *Transport) lookUpLeaders(ctx context.Context, known *leaders) (l *leaders, err error) {
	if l = t.leaders.Load(); l != nil && l != known {
		return l, nil
	}
	err = t.exclusively(ctx, func() error {
		if l = t.leaders.Load(); l != nil && l != known {
			return nil // looked up in the meantime
		}
		brokers, err := t.metadata(ctx)
		if err != nil {
			return err
		}
		l = &leaders{brokers: brokers}
		t.leaders.Store(l)
		return nil
	})
	return l, err
}

// A topic that was created just now is unknown to some brokers for a moment.
const (
	unknownTries = 4
	unknownPause = 250 * time.Millisecond
)

// metadata asks for the leaders of the topic's partitions.
func (t *Transport) metadata(ctx context.Context) ([]int32, error) {
	for try := 1; ; try++ {
		brokers, err := t.metadataOnce(ctx)
		if codeOf(err) != kerr.UnknownTopicOrPartition || try == unknownTries {
			return brokers, err
		}
		if clock.Sleep(ctx, unknownPause) != nil {
			return nil, err
		}
	}
}

func (t *Transport) metadataOnce(ctx context.Context) ([]int32, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &t.name
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, t.requests)
	if err != nil {
		return nil, t.explain("look up", err)
	}
	if len(answer.Topics) != 1 {
		return nil, fmt.Errorf("look up topic %s: the answer has %d topics", t.name, len(answer.Topics))
	}
	found := &answer.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, t.explain("look up", err)
	}
	brokers := slices.Repeat([]int32{-1}, len(found.Partitions))
	for _, p := range found.Partitions {
		if p.Partition < 0 || int(p.Partition) >= len(brokers) {
			return nil, fmt.Errorf("look up topic %s: the answer has partition %d of %d", t.name, p.Partition, len(brokers))
		}
		brokers[p.Partition] = p.Leader
	}
	return brokers, nil
}

// lookUpLimits returns how large a batch may be, by the configuration and by the topic's.
func (t *Transport) lookUpLimits(ctx context.Context) (limits, error) {
	if l := t.limits.Load(); l != nil {
		return *l, nil
	}
	l := limits{batch: t.cfg.MaxBytes, message: t.cfg.MaxBytes}
	if t.cfg.MaxBytes > 0 {
		return l, nil
	}
	err := t.exclusively(ctx, func() error {
		if known := t.limits.Load(); known != nil {
			l = *known
			return nil
		}
		n, err := t.maxMessageBytes(ctx)
		if err != nil {
			return err
		}
		n = min(n, maxBatch)
		l = limits{batch: min(n, maxSeveral), message: n}
		t.limits.Store(&l)
		return nil
	})
	return l, err
}

// maxMessageBytes returns the topic's max.message.bytes, or Kafka's default where it may not be
// read: a batch that is refused as too large corrects the sender.
func (t *Transport) maxMessageBytes(ctx context.Context) (int, error) {
	const name = "max.message.bytes"
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.ConfigNames = kmsg.ConfigResourceTypeTopic, t.name, []string{name}
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, t.requests)
	if err != nil {
		if codeOf(err) != nil {
			return defaultMaxBytes, nil // such as a broker that does not know the request
		}
		return 0, t.explain("look up "+name+" of", err)
	}
	for _, r := range answer.Resources {
		for _, c := range r.Configs {
			if c.Name != name || c.Value == nil {
				continue
			}
			if n, err := strconv.Atoi(*c.Value); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return defaultMaxBytes, nil
}

// advice is what to do about errors that concern a sender.
var advice = map[error]string{
	kerr.TopicAuthorizationFailed:   "grant the operations Describe and Write on the topic",
	kerr.ClusterAuthorizationFailed: "grant the operation Write on the topic, and before Kafka 3.0 IdempotentWrite on the cluster",
}

// explain says in one line what failed and, if a retry does not cure it, what to do. Then it is a
// [sender.ErrPermanent].
func (t *Transport) explain(what string, err error) error {
	what += " topic " + t.name
	if next := advice[codeOf(err)]; next != "" {
		return permanentError{fmt.Errorf("%s: not authorised: %s (the broker says: %w)", what, next, err)}
	}
	err = t.client.Explain(what, err)
	if errors.Is(err, driver.ErrRefused) {
		return permanentError{err}
	}
	return err
}

// permanentError is a [sender.ErrPermanent] whose text is that of another error.
type permanentError struct{ error }

func (e permanentError) Unwrap() error        { return e.error }
func (e permanentError) Is(target error) bool { return target == sender.ErrPermanent }

// codeOf returns the broker's error in err, nil if there is none.
func codeOf(err error) error {
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e
	}
	return nil
}
