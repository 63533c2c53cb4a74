package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// A cluster whose first consumer group this is makes the topic of the offsets first, and an open
// transaction may commit offsets: both are waited for.
func TestGroupIsWaitedFor(t *testing.T) {
	c, fake := newFake(t)
	offsets := kadm.Offsets{}
	offsets.AddOffset(c.topic, 1, 20, 3)
	suite.NoError(t, "commit", c.admin.CommitAllOffsets(t.Context(), "old", offsets))
	topics, err := c.admin.ListTopics(t.Context(), c.topic)
	suite.NoError(t, "list", err)
	found, fetched := 0, 0
	fake.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if found++; found > 3 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		coordinator := kmsg.NewFindCoordinatorResponseCoordinator()
		coordinator.Key, coordinator.ErrorCode = "old", kerr.CoordinatorNotAvailable.Code
		resp.Coordinators = append(resp.Coordinators, coordinator)
		return resp, nil, true
	})
	fake.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if fetched++; fetched > 2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		group := kmsg.NewOffsetFetchResponseGroup()
		group.Group = "old"
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = c.topic, topics[c.topic].ID
		partition := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		partition.Partition, partition.ErrorCode = 1, kerr.UnstableOffsetCommit.Code
		topic.Partitions = append(topic.Partitions, partition)
		group.Topics = append(group.Topics, topic)
		resp.Groups = append(resp.Groups, group)
		return resp, nil, true
	})
	g, err := c.source(t, nil).ConsumerGroup(suite.Context(t), "old")
	if want := (driver.Position{Sequence: 19, Offset: "leader-epoch 3"}); err != nil || len(g.Positions) != 1 || g.Positions["1"] != want || len(g.Members) != 0 {
		t.Errorf("got %+v, %v; want partition 1 at %v", g, err, want)
	}
	if found < 4 || fetched < 3 {
		t.Errorf("coordinator asked for %d times, offsets %d times", found, fetched)
	}
}
