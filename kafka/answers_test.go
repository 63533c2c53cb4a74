package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// answerOffsets has the brokers answer each question for an offset with one partition.
func answerOffsets(fake *kfake.Cluster, topic string, answer kmsg.ListOffsetsResponseTopicPartition) {
	fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		about := kmsg.NewListOffsetsResponseTopic()
		about.Topic, about.Partitions = topic, append(about.Partitions, answer)
		resp.Topics = append(resp.Topics, about)
		return resp, nil, true
	})
}

// TestOffsetsOfNothing: an answer without a number, or about another partition, is not that the log
// begins at 0: a consumer would read all of it again, or a report say that nothing waits.
func TestOffsetsOfNothing(t *testing.T) {
	one := func(partition int32, offset int64) kmsg.ListOffsetsResponseTopicPartition {
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.Partition, p.Offset = partition, offset
		return p
	}
	for name, answer := range map[string]struct {
		topic string
		kmsg.ListOffsetsResponseTopicPartition
	}{
		"no number":         {topicName, one(0, -1)},
		"another partition": {topicName, one(1, 3)},
		"another topic":     {"other", one(0, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			c, fake := newFake(t)
			s, err := c.open(t, &Config{Timeout: minTimeout}).Source(c.topic, "test", nil)
			suite.NoError(t, "source", err)
			answerOffsets(fake, answer.topic, answer.ListOffsetsResponseTopicPartition)
			if b, err := s.Bounds(suite.Context(t), "0"); err == nil {
				t.Errorf("bounds %+v", b)
			}
			for _, start := range []driver.Start{{Kind: driver.StartLatest}, {Kind: driver.StartEarliest}, {Kind: driver.StartSequence, Sequence: 7}, {Kind: driver.StartTime, Time: time.Unix(1, 0)}} {
				at, err := s.Seek(suite.Context(t), "0", start, -1)
				if err == nil {
					t.Errorf("a start at %v is %v", start, at)
				} else if !strings.Contains(err.Error(), "the broker's answer") {
					t.Errorf("a start at %v: %v", start, err)
				}
			}
		})
	}
}

// TestGroupOfNothing: an answer that leaves out the group is not that it has no members.
func TestGroupOfNothing(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.DescribeGroups, kmsg.ConsumerGroupDescribe} {
		t.Run(fmt.Sprint(key), func(t *testing.T) {
			c, fake := newFake(t)
			fake.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				return req.ResponseKind(), nil, true
			})
			if g, err := c.source(t, nil).ConsumerGroup(suite.Context(t), "old"); err == nil || !strings.Contains(err.Error(), "leaves out the group") {
				t.Errorf("got %+v, %v", g, err)
			}
		})
	}
}
