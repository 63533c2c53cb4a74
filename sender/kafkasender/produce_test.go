package kafkasender_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// TestOutcomes checks which outcome each error of a broker becomes, and that the partition works
// afterwards.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		err     *kerr.Error
		times   int // how often the broker answers with it
		outcome sender.Outcome
		text    string // of the error
	}{
		{kerr.DuplicateSequenceNumber, 1, sender.OutcomeAccepted, ""},
		{kerr.NotEnoughReplicas, 1, sender.OutcomeBusy, "NOT_ENOUGH_REPLICAS"},
		{kerr.ThrottlingQuotaExceeded, 1, sender.OutcomeBusy, ""},
		{kerr.CorruptMessage, 1, sender.OutcomeBusy, ""},
		{kerr.NotLeaderForPartition, 1, sender.OutcomeAccepted, ""}, // and repeated: it may be stored
		{kerr.NotLeaderForPartition, -1, sender.OutcomeUnknown, ""}, // the leader is the same by the metadata
		{kerr.KafkaStorageError, 1, sender.OutcomeAccepted, ""},
		{kerr.UnknownTopicOrPartition, 1, sender.OutcomeBusy, ""}, // the topic is there by the metadata
		{kerr.MessageTooLarge, 1, sender.OutcomeTooLarge, ""},
		{kerr.RecordListTooLarge, 1, sender.OutcomeTooLarge, ""},
		{kerr.InvalidRecord, 1, sender.OutcomeRejected, ""},
		{kerr.InvalidTimestamp, 1, sender.OutcomeRejected, ""},
		{kerr.PolicyViolation, 1, sender.OutcomeRejected, ""},
		{kerr.TopicAuthorizationFailed, 1, sender.OutcomeDenied, "topic flights: not authorised: grant the operations Describe and Write on the topic"},
		{kerr.ClusterAuthorizationFailed, 1, sender.OutcomeDenied, "grant the operation Write on the topic, and before Kafka 3.0 IdempotentWrite on the cluster"},
		{kerr.RequestTimedOut, 1, sender.OutcomeAccepted, ""}, // and repeated
		{kerr.NotEnoughReplicasAfterAppend, 3, sender.OutcomeAccepted, ""},
		{kerr.UnknownServerError, 2, sender.OutcomeAccepted, ""},
		{kerr.UnknownServerError, -1, sender.OutcomeUnknown, "UNKNOWN_SERVER_ERROR"},
		{kerr.RequestTimedOut, -1, sender.OutcomeUnknown, ""},
		{kerr.OutOfOrderSequenceNumber, 2, sender.OutcomeAccepted, ""},
		{kerr.OutOfOrderSequenceNumber, -1, sender.OutcomeBusy, ""},
		{kerr.UnknownProducerID, 1, sender.OutcomeAccepted, ""},
		{kerr.UnsupportedCompressionType, 1, sender.OutcomeAccepted, ""}, // uncompressed
		{kerr.UnsupportedCompressionType, -1, sender.OutcomeRejected, ""},
	} {
		t.Run(fmt.Sprint(c.err.Message, c.times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := start(t, 1)
				transport := cluster.transport(t, nil)
				large := sender.Message{MessageID: "first", Body: slices.Repeat([]byte("large "), 100)}
				first, second := batchOf(t, transport, "0", large), batchOf(t, transport, "0", sender.Message{MessageID: "second"})
				fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: c.err, Count: c.times})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				outcome, err := transport.Send(ctx, first)
				if outcome != c.outcome || (err == nil) != (outcome == sender.OutcomeAccepted) || errors.Is(err, sender.ErrPermanent) != (outcome == sender.OutcomeDenied) {
					t.Errorf("outcome %d, %v, want %d", outcome, err, c.outcome)
				}
				if err != nil && (!strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), topic) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("error %v, want %q in it", err, c.text)
				}
				fault.Remove()
				if outcome, err := transport.Send(t.Context(), second); outcome != sender.OutcomeAccepted || err != nil {
					t.Errorf("the next batch: outcome %d, %v", outcome, err)
				}
				stored := 1
				if c.outcome == sender.OutcomeAccepted && c.err != kerr.DuplicateSequenceNumber || c.err == kerr.RequestTimedOut {
					stored = 2
				}
				cluster.stored(t, stored)
			})
		})
	}
}

// TestLostAnswers loses the answers to batches that are stored: each is repeated, and is stored
// once.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		c := start(t, 1)
		transport := c.transport(t, nil)
		var requests atomic.Int64
		c.observe(func(*kmsg.ProduceRequest) {
			if requests.Add(1)%3 == 1 {
				c.loseAnswers()
			}
		})
		for i := range n {
			if outcome, err := transport.Send(t.Context(), batchOf(t, transport, "0", message(i), message(i+n))); outcome != sender.OutcomeAccepted || err != nil {
				t.Fatal(outcome, err)
			}
		}
		for i, r := range c.stored(t, 2*n) {
			if want := i/2 + i%2*n; string(r.Value) != fmt.Sprint("body ", want) {
				t.Errorf("record %d is %s, want body %d", i, r.Value, want)
			}
		}
		if requests.Load() <= n {
			t.Errorf("%d requests: no answer was lost", requests.Load())
		}
	})
}

// TestUnknown lets the context end while answers are lost. The same batch is stored once if it is
// sent again at once. If another comes between, a late arrival of the old one is refused.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		transport := c.transport(t, nil)
		var losing atomic.Bool
		var seen []kmsg.RecordBatch
		c.observe(func(r *kmsg.ProduceRequest) {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(r.Topics[0].Partitions[0].Records); err != nil {
				t.Error(err)
			}
			seen = append(seen, b)
			if losing.Load() {
				c.loseAnswers()
			}
		})
		send := func(b sender.Batch, lose bool, want sender.Outcome) {
			t.Helper()
			losing.Store(lose)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if outcome, err := transport.Send(ctx, b); outcome != want {
				t.Errorf("outcome %d, %v, want %d", outcome, err, want)
			}
		}
		first, second := batchOf(t, transport, "0", message(1)), batchOf(t, transport, "0", message(2))
		send(first, true, sender.OutcomeUnknown)
		send(first, false, sender.OutcomeAccepted)
		c.stored(t, 1)
		send(second, true, sender.OutcomeUnknown)
		late, arrive := seen[len(seen)-1], kafkasender.Late(transport, second)
		send(batchOf(t, transport, "0", message(3)), false, sender.OutcomeAccepted)
		if b := seen[len(seen)-1]; b.ProducerID != late.ProducerID || b.ProducerEpoch != late.ProducerEpoch+1 || b.FirstSequence != 0 {
			t.Errorf("after a batch of epoch %d comes number %d of epoch %d", late.ProducerEpoch, b.FirstSequence, b.ProducerEpoch)
		}
		if err := arrive(t.Context()); !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("the late batch: %v", err)
		}
		c.stored(t, 3)
		send(second, false, sender.OutcomeAccepted) // again: it can't be recognized any more
		c.stored(t, 4)
	})
}

// TestReplacedLeader sends a batch to a leader that is replaced, as it says also if the batch was
// stored before. The next batch must not have its number: a log that has stored the first one would
// take it for the same.
func TestReplacedLeader(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.KafkaStorageError} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, 1)
			transport := c.transport(t, nil)
			var seen kmsg.RecordBatch
			c.observe(func(r *kmsg.ProduceRequest) {
				if err := seen.ReadFrom(r.Topics[0].Partitions[0].Records); err != nil {
					t.Error(err)
				}
			})
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: -1})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			given := batchOf(t, transport, "0", message(1))
			if outcome, err := transport.Send(ctx, given); outcome != sender.OutcomeUnknown {
				t.Errorf("%v: outcome %d, %v, want %d", code, outcome, err, sender.OutcomeUnknown)
			}
			fault.Remove()
			if outcome, err := transport.Send(t.Context(), batchOf(t, transport, "0", message(2))); outcome != sender.OutcomeAccepted {
				t.Error(outcome, err)
			}
			if seen.ProducerEpoch != 1 || seen.FirstSequence != 0 {
				t.Errorf("%v: the next batch has number %d of epoch %d, want 0 of 1", code, seen.FirstSequence, seen.ProducerEpoch)
			}
		})
	}
}

// TestRefusedNumber checks that no batch gets the number of another that the broker refused.
func TestRefusedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		transport := c.transport(t, nil)
		var numbers []string
		c.observe(func(r *kmsg.ProduceRequest) {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(r.Topics[0].Partitions[0].Records); err != nil {
				t.Error(err)
			}
			numbers = append(numbers, fmt.Sprintf("%d of %d", b.FirstSequence, b.ProducerEpoch))
		})
		accept := func(b sender.Batch) {
			t.Helper()
			if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeAccepted {
				t.Error(outcome, err)
			}
		}
		accept(batchOf(t, transport, "0", message(1)))
		again := batchOf(t, transport, "0", message(2))
		for _, b := range []sender.Batch{again, again, batchOf(t, transport, "0", message(3))} {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas})
			if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeBusy {
				t.Error(outcome, err)
			}
		}
		accept(again)
		accept(batchOf(t, transport, "0", message(4)))
		if want := []string{"0 of 0", "1 of 0", "1 of 0", "0 of 1", "0 of 2", "1 of 2"}; !slices.Equal(numbers, want) {
			t.Errorf("numbers %q, want %q", numbers, want)
		}
	})
}

// TestLeaderMoves moves the partition to other brokers.
func TestLeaderMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		transport := c.transport(t, nil)
		for i := range 9 {
			if err := c.MoveTopicPartition(topic, 0, int32(i%3)); err != nil {
				t.Fatal(err)
			}
			if outcome, err := transport.Send(t.Context(), batchOf(t, transport, "0", message(i))); outcome != sender.OutcomeAccepted || err != nil {
				t.Fatal(outcome, err)
			}
		}
		c.stored(t, 9)
	})
}

// TestTopicMissing checks what a missing topic, and one that goes, is reported as.
func TestTopicMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 2)
		transport := c.transport(t, nil)
		b, err := transport.NewBatch(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Add(&sender.Message{}), c.DeleteTopic(topic)); err != nil {
			t.Fatal(err)
		}
		if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeDenied || !errors.Is(err, sender.ErrPermanent) {
			t.Error(outcome, err)
		}
		if err := c.transport(t, nil).Check(t.Context()); !errors.Is(err, sender.ErrPermanent) || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Error(err)
		}
		if err := c.CreateTopic(topic, 1, nil); err != nil {
			t.Fatal(err)
		}
		if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeDenied || !strings.Contains(err.Error(), "has only 1 partitions now") {
			t.Error(outcome, err)
		}
	})
}

// TestBrokersAway sends while no broker can be reached, and after that.
func TestBrokersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		transport := c.transport(t, nil)
		b := batchOf(t, transport, "0", message(1))
		comeBack := c.goAway()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if outcome, err := transport.Send(ctx, b); outcome != sender.OutcomeBusy || err == nil {
			t.Error(outcome, err)
		}
		comeBack()
		if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeAccepted || err != nil {
			t.Error(outcome, err)
		}
		c.stored(t, 1)
	})
}

// TestSequenceWraps lets the numbers of a partition begin again.
func TestSequenceWraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		transport := c.transport(t, nil)
		kafkasender.SetSequence(transport, 0, 1<<31-4)
		for i := range 4 {
			if outcome, err := transport.Send(t.Context(), batchOf(t, transport, "0", message(1), message(2), message(i))); outcome != sender.OutcomeAccepted || err != nil {
				t.Fatal(outcome, err)
			}
		}
		c.stored(t, 12)
	})
}

// TestClientCloses closes the client during a Send.
func TestClientCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1)
		client := c.client(t)
		transport, err := kafkasender.New(client, topic, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := batchOf(t, transport, "0", message(1))
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1})
		time.AfterFunc(30*time.Second, func() { client.Close(context.Background()) })
		began := time.Now()
		if outcome, err := transport.Send(t.Context(), b); outcome != sender.OutcomeUnknown || err == nil || time.Since(began) > 35*time.Second {
			t.Error(outcome, err, time.Since(began))
		}
	})
}
