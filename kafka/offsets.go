package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leader is the leader of a partition, as a metadata request named it.
type leader struct {
	info      *topicInfo
	partition int32
	broker    int32
	epoch     int32
}

// withLeader calls ask with the leader of a partition, again after a while if the leader has
// changed or does not answer, until ctx ends or the timeout is over. The first time the leader is
// one that was known recently, unless fresh.
func (s *Source) withLeader(ctx context.Context, partition int32, fresh bool, ask func(context.Context, leader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.client.timeout, errTimeout)
	defer cancel()
	var last error
	began := time.Now()
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		l, err := s.leader(ctx, partition, fresh || last != nil)
		if err == nil {
			err = ask(ctx, l)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			if context.Cause(ctx) != errTimeout {
				return ctx.Err()
			}
			return cmp.Or(last, error(errTimeout))
		case !passes(err), isUnknownTopic(err) && time.Since(began) > unknownFor:
			return err
		}
		last = err
		if pause(ctx, wait) != nil && context.Cause(ctx) != errTimeout {
			return ctx.Err()
		}
	}
}

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// errTimeout ends a context after Config.Timeout.
var errTimeout net.Error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string   { return "timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// leader returns who leads a partition.
func (s *Source) leader(ctx context.Context, partition int32, fresh bool) (leader, error) {
	ask := s.client.topics.recent
	if fresh {
		ask = s.client.topics.get
	}
	info, err := ask(ctx, s.client, s.topic)
	if err != nil {
		return leader{}, err
	}
	if int(partition) >= len(info.partitions) {
		if !fresh {
			return s.leader(ctx, partition, true)
		}
		return leader{}, &refusedError{text: fmt.Sprintf("%s: no such partition: the topic has %d", s.partitionName(strconv.Itoa(int(partition))), len(info.partitions))}
	}
	p := info.partitions[partition]
	return leader{info, partition, p.leader, p.epoch}, p.err
}

// ListOffsets takes these in place of a timestamp.
const (
	latestOffset   = -1
	earliestOffset = -2
	newestTime     = -3 // the record with the highest timestamp
)

// firstVersion is the first version of ListOffsets that knows a value in place of a timestamp. An
// earlier one takes it for a timestamp, and answers with the oldest record.
var firstVersion = map[int64]int16{newestTime: 7, earliestLocal: 8}

// listed is the answer of ListOffsets: a number with the epoch of its leader (-1 if unknown), and
// for a record its timestamp. The number is -1 if there is no such record.
type listed struct {
	offset, timestamp int64
	epoch             int32
}

// list asks a leader for an offset by a timestamp, or by one of the values in place of it.
func (s *Source) list(ctx context.Context, l leader, timestamp int64) (listed, error) {
	return s.listIn(ctx, l, s.isolation(), timestamp)
}

func (s *Source) listIn(ctx context.Context, l leader, isolation int8, timestamp int64) (listed, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	req.TimeoutMillis = int32(s.client.timeout.Milliseconds() / 3)
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = s.topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = l.partition, l.epoch, timestamp
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := request[*kmsg.ListOffsetsResponse](ctx, s.client, l.broker, req)
	if err != nil {
		return listed{}, s.silent(l, err)
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != s.topic || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != l.partition {
		return listed{}, errIncomplete
	}
	of := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(of.ErrorCode); err != nil {
		return listed{}, err
	}
	if resp.Version < firstVersion[timestamp] {
		return listed{}, kerr.UnsupportedVersion
	}
	found := listed{of.Offset, of.Timestamp, of.LeaderEpoch}
	if resp.Version == 0 {
		found = listed{-1, -1, -1}
		if len(of.OldStyleOffsets) > 0 {
			found.offset = of.OldStyleOffsets[0]
		}
	}
	if found.offset < 0 && (timestamp == earliestOffset || timestamp == latestOffset) {
		return listed{}, errNoBound
	}
	return found, nil
}

var (
	errIncomplete = errors.New("the broker's answer leaves out the partition")
	// errNoBound: every log has a beginning and an end. Without them 0 must not be assumed.
	errNoBound = errors.New("the broker's answer has no number for the beginning or the end of the log")
)

// silent names the broker in the error of a request to it.
func (s *Source) silent(l leader, err error) error {
	return fmt.Errorf("%s: %w", l.info.brokerName(l.broker), err)
}

// both asks a leader for two offsets at once.
func (s *Source) both(ctx context.Context, l leader, a, b int64) (at, bt listed, err error) {
	var other error
	var asking sync.WaitGroup
	asking.Go(func() { bt, other = s.list(ctx, l, b) })
	at, err = s.list(ctx, l, a)
	asking.Wait()
	if err == nil {
		err = other
	}
	return at, bt, err
}

// Bounds implements [driver.Source]. Unless [SourceConfig].ReadUncommitted is set, Last is before
// the oldest open transaction, and Held says what is after it. LastEnqueued is the highest
// timestamp of the partition, which brokers before 3.0 and Event Hubs do not report.
func (s *Source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	n, err := s.number(partition)
	if err != nil {
		return driver.Bounds{}, err
	}
	var b driver.Bounds
	err = s.withLeader(ctx, n, false, func(ctx context.Context, l leader) error {
		first, end, err := s.both(ctx, l, earliestOffset, latestOffset)
		if err != nil {
			return err
		}
		// A record may come, and retention may pass, between the two requests.
		b = driver.Bounds{First: first.offset, Last: positionBefore(listed{max(end.offset, first.offset), -1, end.epoch})}
		if b.Held, err = s.heldBack(ctx, l, end.offset); err != nil {
			return err
		}
		if b.Last.Sequence < b.First {
			return nil
		}
		newest, err := s.list(ctx, l, newestTime)
		switch {
		case unsupported(err):
			return nil
		case err == nil && newest.offset >= 0 && newest.timestamp >= 0:
			b.LastEnqueued = time.UnixMilli(newest.timestamp).UTC()
		}
		return err
	})
	if err != nil {
		return driver.Bounds{}, s.explain(s.partitionName(partition), err)
	}
	return b, nil
}

// positionBefore returns the position before a number. The epoch is that of a leader who had the
// number: the end of that epoch is after the position, unless the log was truncated.
func positionBefore(n listed) driver.Position {
	if n.offset <= 0 {
		return driver.Origin
	}
	return driver.Position{Sequence: n.offset - 1, Offset: history{epoch: n.epoch, first: -1}.String()}
}

// epochEnd asks a leader where an epoch ends in its log: it answers with the highest epoch that is
// not above it, and the first number after that epoch. It answers -1 if it does not know.
func (s *Source) epochEnd(ctx context.Context, l leader, epoch int32) (listed, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = s.topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = l.partition, l.epoch, epoch
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := request[*kmsg.OffsetForLeaderEpochResponse](ctx, s.client, l.broker, req)
	if err != nil {
		return listed{}, s.silent(l, err)
	}
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != s.topic || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != l.partition {
		return listed{}, errIncomplete
	}
	of := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(of.ErrorCode); err != nil {
		return listed{}, err
	}
	return listed{of.EndOffset, -1, of.LeaderEpoch}, nil
}
