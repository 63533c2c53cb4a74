package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// history is what a position keeps of the log's history: the epoch of the leader who wrote the
// record, and the first number of that epoch that was read, or that a seek found.
type history struct {
	epoch int32 // -1 if unknown
	first int64 // -1 if unknown
}

// String returns the text that an Event's Offset has.
func (h history) String() string {
	switch {
	case h.epoch < 0:
		return ""
	case h.first < 0:
		return fmt.Sprintf("leader-epoch %d", h.epoch)
	}
	return fmt.Sprintf("leader-epoch %d from %d", h.epoch, h.first)
}

// historyOf parses what String returned. Any other text is an unknown history.
func historyOf(offset string) history {
	unknown := history{-1, -1}
	text, found := strings.CutPrefix(offset, "leader-epoch ")
	if !found {
		return unknown
	}
	epochText, fromText, hasFrom := strings.Cut(text, " from ")
	epoch, err := strconv.ParseInt(epochText, 10, 32)
	if err != nil || epoch < 0 {
		return unknown
	}
	h := history{int32(epoch), -1}
	if hasFrom {
		if h.first, err = strconv.ParseInt(fromText, 10, 64); err != nil || h.first < 0 {
			return unknown
		}
	}
	return h
}

// advance returns the history after a batch, of which the numbers from next on are read.
func (h history) advance(b *batch, next int64) history {
	switch {
	case b.epoch < 0:
		return history{-1, -1}
	case b.epoch == h.epoch && h.first >= 0:
		return h
	}
	return history{b.epoch, max(b.first, next)}
}

// check asks a leader whether its log holds what is before and after a position. The error is a
// [driver.TruncatedError], a [driver.RetentionError] or a [driver.ErrPastEnd] if it does not.
func (s *Source) check(ctx context.Context, l leader, after driver.Position) error {
	// What is committed may go back for a moment when the leader changes, the high watermark not.
	first, err := s.listIn(ctx, l, readUncommitted, earliestOffset)
	if err != nil {
		return err
	}
	known, err := s.checkHistory(ctx, l, after, first.offset)
	switch {
	case err != nil:
		return err
	case first.offset > after.Sequence+1:
		return &driver.RetentionError{Partition: l.name(), After: after.Sequence, First: first.offset}
	case known:
		return nil
	}
	end, err := s.listIn(ctx, l, readUncommitted, latestOffset)
	if err == nil && end.offset <= after.Sequence {
		err = &pastEndError{end.offset - 1}
	}
	return err
}

// checkHistory asks a leader whether its log, which begins at first, has the history of a position,
// and reports whether that is known. The error is a [driver.TruncatedError] if it has not.
func (s *Source) checkHistory(ctx context.Context, l leader, after driver.Position, first int64) (known bool, err error) {
	h := historyOf(after.Offset)
	if h.epoch < 0 || after.Sequence < 0 {
		return false, nil
	}
	truncated := func(end int64) (bool, error) {
		return true, &driver.TruncatedError{Partition: l.name(), Position: after, End: end}
	}
	end, err := s.epochEnd(ctx, l, h.epoch)
	switch {
	case unsupported(err):
		return false, nil
	case err != nil:
		return false, err
	case end.offset < 0 && l.epoch >= 0 && l.epoch < h.epoch && h.first >= 0:
		// The leader itself is of an earlier epoch: it is the leader of another log.
		return truncated(h.first)
	case end.offset < 0:
		return false, nil
	}
	lost, unclear := h.lostFrom(end, after.Sequence)
	if unclear && first <= after.Sequence {
		epoch, err := s.epochAt(ctx, l, max(h.first, first))
		if err != nil {
			return false, err
		}
		if epoch >= 0 && epoch < h.epoch {
			lost = h.first
		}
	}
	if lost >= 0 {
		return truncated(lost)
	}
	return true, nil
}

// lostFrom returns the first number that a log lost of what led to a position, -1 if it lost
// nothing. The end is the log's answer about the epoch. It is unclear if the log names no record of
// the epoch, and goes on past the position: then leaders of other epochs wrote the numbers of the
// epoch, or compaction removed all of its records before the replica was copied. The first batch
// that is left shows which.
func (h history) lostFrom(end listed, position int64) (lost int64, unclear bool) {
	other := h.first >= 0 && end.epoch < h.epoch
	switch {
	case end.offset > position:
		return -1, other
	case other:
		return min(h.first, end.offset), false
	}
	return end.offset, false
}

// epochAt fetches the first batch that ends at or after a number, and returns its epoch; -1 if
// there is none, because the log ends before it or compaction removed all from there on.
func (s *Source) epochAt(ctx context.Context, l leader, number int64) (int32, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch = 1, -1 // a broker returns one batch at least
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = s.topic, l.info.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = l.partition, l.epoch, number, 1
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := request[*kmsg.FetchResponse](ctx, s.client, l.broker, fetchRequest{req, l.info.id == [16]byte{}})
	if err != nil {
		return 0, s.silent(l, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errIncomplete
	}
	answer := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, err
	}
	for data := answer.RecordBatches; ; {
		b, rest, err := nextBatch(data)
		switch {
		case err != nil && answer.HighWatermark > number:
			hint, err := s.compaction.hint(ctx, s)
			if err == nil && hint != "" {
				err = fmt.Errorf("the broker returned nothing at offset %d, though its log ends at %d, %s", number, answer.HighWatermark-1, hint)
			}
			return -1, err
		case err != nil:
			return -1, nil
		case b.last >= number:
			return b.epoch, nil
		}
		data = rest
	}
}

// pastEndError says that a position is after the newest record.
type pastEndError struct{ newest int64 }

func (e *pastEndError) Error() string {
	return fmt.Sprintf("the position is after the newest event, which is %d", e.newest)
}

// Is reports whether target is [driver.ErrPastEnd].
func (e *pastEndError) Is(target error) bool { return target == driver.ErrPastEnd }

// name returns the partition's name.
func (l leader) name() string { return strconv.Itoa(int(l.partition)) }
