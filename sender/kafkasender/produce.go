package kafkasender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/sender"
)

// Send implements [sender.Transport]. It repeats a batch whose answer was lost until ctx ends, and
// one that came to the wrong broker, or under a number that the broker does not expect, a few
// times.
func (t *Transport) Send(ctx context.Context, batch sender.Batch) (sender.Outcome, error) {
	b := batch.(*recordBatch)
	b.seal()
	p := b.partition
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return sender.OutcomeBusy, fmt.Errorf("wait for the batch before: %w", ctx.Err())
	}
	s := sending{transport: t, partition: p, batch: b, pause: clock.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}}
	outcome, err := s.run(ctx)
	if outcome == sender.OutcomeAccepted {
		p.settle(b)
		b.recycle()
		return outcome, nil
	}
	if b.sent.unknown {
		outcome = sender.OutcomeUnknown
	}
	return outcome, err
}

// sending is one Send.
type sending struct {
	transport *Transport
	partition *partition
	batch     *recordBatch
	pause     clock.Backoff
	moves     int // how often another broker was tried
	epochs    int // how often the epoch was raised
}

// How often a Send tries another broker or another epoch. A batch that was stored by none of them
// is then for the caller to repeat, after a longer pause.
const (
	maxMoves  = 3
	maxEpochs = 3
)

// run sends the batch until its outcome is known and no repetition is due, or until ctx ends.
func (s *sending) run(ctx context.Context) (sender.Outcome, error) {
	sent := s.batch.sent
	for {
		outcome, err := s.attempt(ctx)
		switch outcome {
		case outcomeRepeat:
			continue
		case sender.OutcomeUnknown:
			sent.unknown = true
		case sender.OutcomeBusy: // an earlier attempt may have stored it
		case sender.OutcomeTooLarge, sender.OutcomeRejected:
			sent.unknown = false // earlier attempts met the same
			return outcome, err
		default:
			return outcome, err
		}
		closed := s.transport.requests.Context().Err() != nil
		if !sent.unknown || closed || clock.Sleep(ctx, s.pause.Next()) != nil {
			return outcome, err
		}
		s.moves = 0
	}
}

// outcomeRepeat is the outcome of an attempt that did not store the batch, and after which another
// one is due at once.
const outcomeRepeat sender.Outcome = -1

// attempt sends the batch once.
func (s *sending) attempt(ctx context.Context) (sender.Outcome, error) {
	t, p := s.transport, s.partition
	if err := p.give(ctx, t, s.batch); err != nil {
		return refused(t.explain("send to", err))
	}
	l, err := t.lookUpLeaders(ctx, nil)
	if err != nil {
		return refused(err)
	}
	if int(p.number) >= len(l.brokers) {
		return refused(permanentError{fmt.Errorf("topic %s has only %d partitions now, it has been created again: start the program again", t.name, len(l.brokers))})
	}
	leader := l.brokers[p.number]
	if leader < 0 {
		return s.moved(ctx, l, s.failed(kerr.LeaderNotAvailable))
	}
	answer, sent, err := t.produce(ctx, leader, p.number, s.batch.withHeader())
	switch {
	case err != nil && !sent:
		return s.moved(ctx, l, t.explain("send to", err))
	case err != nil:
		_, _ = t.lookUpLeaders(ctx, l) // the leader may be gone
		return sender.OutcomeUnknown, t.explain("send to", err)
	}
	return s.judge(ctx, l, answer)
}

// judge decides what a broker's answer means.
func (s *sending) judge(ctx context.Context, l *leaders, answer *kmsg.ProduceResponseTopicPartition) (sender.Outcome, error) {
	t := s.transport
	code := kerr.ErrorForCode(answer.ErrorCode)
	meaning, known := meanings[code]
	if code != nil && !known {
		meaning = sender.OutcomeUnknown
	}
	switch meaning {
	case outcomeReplaced:
		s.batch.sent.unknown = true
		return s.moved(ctx, l, s.failed(code))
	case outcomeMoved:
		return s.moved(ctx, l, s.failed(code))
	case outcomeFenced:
		if s.epochs++; s.epochs <= maxEpochs {
			s.partition.raiseEpoch()
			return outcomeRepeat, nil
		}
		meaning = sender.OutcomeBusy
	case outcomeCodec:
		if s.batch.sent.codec != kgo.CodecNone {
			t.plain.Store(true)
			s.batch.uncompress()
			return outcomeRepeat, nil
		}
		meaning = sender.OutcomeRejected
	case sender.OutcomeAccepted:
		return meaning, nil
	}
	if answer.ErrorMessage != nil && !strings.Contains(code.Error(), *answer.ErrorMessage) {
		code = fmt.Errorf("%w (%.200q)", code, *answer.ErrorMessage)
	}
	if meaning == sender.OutcomeDenied {
		return meaning, t.explain("send to", code)
	}
	return meaning, s.failed(code)
}

// moved looks up the leader after the batch could not be sent to it, or it said that it leads no
// more.
func (s *sending) moved(ctx context.Context, l *leaders, err error) (sender.Outcome, error) {
	newer, failed := s.transport.lookUpLeaders(ctx, l)
	if failed != nil {
		return refused(failed)
	}
	s.moves++
	if s.moves <= maxMoves && newer.leader(s.partition.number) != l.leader(s.partition.number) {
		return outcomeRepeat, nil
	}
	return refused(err)
}

// failed is the error of an attempt that another one may cure.
func (s *sending) failed(err error) error {
	return fmt.Errorf("send to topic %s: %w", s.transport.name, err)
}

// refused is the outcome of a batch that was not sent.
func refused(err error) (sender.Outcome, error) {
	if errors.Is(err, sender.ErrPermanent) {
		return sender.OutcomeDenied, err
	}
	return sender.OutcomeBusy, err
}

// Outcomes after which the batch is sent once more: to the present leader, with a new epoch, or
// without compression. It was not stored, except perhaps by a leader that was replaced, or whose
// disk failed, while it waited for the replicas.
const (
	outcomeMoved sender.Outcome = -2 - iota
	outcomeReplaced
	outcomeFenced
	outcomeCodec
)

// meanings is the outcome of each error that a broker answers a batch with. After every other error
// it is unknown.
var meanings = map[error]sender.Outcome{
	nil:                          sender.OutcomeAccepted,
	kerr.DuplicateSequenceNumber: sender.OutcomeAccepted,

	kerr.NotLeaderForPartition:   outcomeReplaced,
	kerr.LeaderNotAvailable:      outcomeMoved,
	kerr.FencedLeaderEpoch:       outcomeMoved,
	kerr.UnknownLeaderEpoch:      outcomeMoved,
	kerr.ReplicaNotAvailable:     outcomeMoved,
	kerr.BrokerNotAvailable:      outcomeMoved,
	kerr.KafkaStorageError:       outcomeReplaced,
	kerr.UnknownTopicOrPartition: outcomeMoved,
	kerr.UnknownTopicID:          outcomeMoved,
	kerr.InconsistentTopicID:     outcomeMoved,

	kerr.OutOfOrderSequenceNumber: outcomeFenced,
	kerr.InvalidProducerEpoch:     outcomeFenced,
	kerr.ProducerFenced:           outcomeFenced,
	kerr.UnknownProducerID:        outcomeFenced,
	kerr.InvalidProducerIDMapping: outcomeFenced,

	kerr.UnsupportedCompressionType: outcomeCodec,

	kerr.NotEnoughReplicas:       sender.OutcomeBusy,
	kerr.ThrottlingQuotaExceeded: sender.OutcomeBusy,
	kerr.CorruptMessage:          sender.OutcomeBusy, // damaged on the way

	kerr.MessageTooLarge:    sender.OutcomeTooLarge,
	kerr.RecordListTooLarge: sender.OutcomeTooLarge,

	kerr.InvalidRecord:               sender.OutcomeRejected,
	kerr.InvalidTimestamp:            sender.OutcomeRejected,
	kerr.UnsupportedForMessageFormat: sender.OutcomeRejected,
	kerr.PolicyViolation:             sender.OutcomeRejected,

	kerr.TopicAuthorizationFailed:   sender.OutcomeDenied,
	kerr.ClusterAuthorizationFailed: sender.OutcomeDenied,
	kerr.InvalidTopicException:      sender.OutcomeDenied,
	kerr.InvalidRequiredAcks:        sender.OutcomeDenied,
	kerr.UnsupportedVersion:         sender.OutcomeDenied,
}
