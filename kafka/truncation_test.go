package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// truncate has the leaders answer that an epoch ends at a number.
func truncate(fake *kfake.Cluster, epoch int32, end int64) {
	fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		ask := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = ask.Topics[0].Topic
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition, p.LeaderEpoch, p.EndOffset = ask.Topics[0].Partitions[0].Partition, epoch, end
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}

// Open compares the history of a position, and a reader that follows its leader does too.
func TestHistoryIsCompared(t *testing.T) {
	c, fake := newFake(t, kfake.NumBrokers(2))
	s := c.source(t, nil)
	c.send(t, "a", "b", "c", "d", "e")
	r := openAt(t, s, driver.Origin)
	_, at := readTo(t, r, 4)
	truncate(fake, historyOf(at.Offset).epoch, 3)
	_, err := s.Open(suite.Context(t), "0", at, 1)
	got, found := errors.AsType[*driver.TruncatedError](err)
	if want := (driver.TruncatedError{Partition: "0", Position: at, End: 3}); !found || *got != want {
		t.Errorf("opened at %v: got %v, want %v", at, err, &want)
	}
	for _, before := range []driver.Position{{Sequence: 2, Offset: at.Offset}, {Sequence: 4}} {
		openAt(t, s, before)
	}
	suite.NoError(t, "move", fake.MoveTopicPartition(c.topic, 0, 1-fake.LeaderFor(c.topic, 0)))
	if _, err := r.Read(suite.Context(t), 1); err == nil || errors.Is(err, driver.ErrTruncated) || !strings.Contains(err.Error(), "a leader without events from 3 on was elected") {
		t.Errorf("a reader whose leader has changed: %v; want an error after which the checkpoint is opened again", err)
	}
}

// A reader follows the leader.
func TestFollowsLeader(t *testing.T) {
	c, fake := newFake(t, kfake.NumBrokers(3))
	r := openAt(t, c.source(t, nil), driver.Origin)
	for round := range int64(6) {
		c.send(t, "a", "b")
		got, at := readTo(t, r, 2*round+1)
		if got != "ab" || historyOf(at.Offset).epoch < int32(round) {
			t.Errorf("round %d: read %q up to %v (%s)", round, got, at, at.Offset)
		}
		suite.NoError(t, "move", fake.MoveTopicPartition(c.topic, 0, int32(round+1)%3))
	}
	// An idle reader follows too, and is not disturbed.
	ctx, cancel := context.WithTimeout(suite.Context(t), 10*suite.Moment)
	defer cancel()
	if events, err := r.Read(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an idle reader: %v, %v", events, err)
	}
}

// Where a log does not name the epoch of a position, and goes on past it, its first record tells an
// epoch that compaction took from one that another leader's took the place of.
func TestEpochWithoutRecords(t *testing.T) {
	c, fake := newFake(t, kfake.NumBrokers(2))
	s := c.source(t, nil)
	c.send(t, "a", "b", "c")
	suite.NoError(t, "move", fake.MoveTopicPartition(c.topic, 0, 1-fake.LeaderFor(c.topic, 0)))
	c.send(t, "d", "e", "f")
	r := openAt(t, s, driver.Origin)
	_, at := readTo(t, r, 5)
	epoch := historyOf(at.Offset).epoch
	if at.Offset != (history{epoch, 3}).String() || epoch == 0 {
		t.Fatalf("the history of event 5 is %q", at.Offset)
	}
	truncate(fake, 0, 1000)
	// The log holds records of the epoch, or of later ones: those of before were compacted.
	openAt(t, s, at)
	openAt(t, s, driver.Position{Sequence: 4, Offset: at.Offset})
	// The log holds records of an earlier epoch at numbers of the position's.
	other := driver.Position{Sequence: 4, Offset: history{epoch, 2}.String()}
	_, err := s.Open(suite.Context(t), "0", other, 1)
	got, found := errors.AsType[*driver.TruncatedError](err)
	if want := (driver.TruncatedError{Partition: "0", Position: other, End: 2}); !found || *got != want {
		t.Errorf("opened at %v: got %v, want %v", other, err, &want)
	}
}
