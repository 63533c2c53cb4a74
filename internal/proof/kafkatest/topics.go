//go:build unix

package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// moveWithin bounds a move, during which a replica may leave those in sync and come back.
const moveWithin = 2 * time.Minute

// CreateTopic makes a topic, replicated to all brokers, at most to three, and waits until its
// partitions have leaders. configs are topic configurations, such as "cleanup.policy=compact".
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int, configs ...string) error {
	return c.createTopic(ctx, name, partitions, -1, configs)
}

// CreateTopicOn is [Cluster.CreateTopic] with a number of replicas.
func (c *Cluster) CreateTopicOn(ctx context.Context, name string, partitions, replicas int, configs ...string) error {
	return c.createTopic(ctx, name, partitions, replicas, configs)
}

func (c *Cluster) createTopic(ctx context.Context, name string, partitions, replicas int, configs []string) error {
	values := map[string]*string{}
	for _, config := range configs {
		key, value, _ := strings.Cut(config, "=")
		values[key] = &value
	}
	if _, err := c.admin.CreateTopic(ctx, int32(partitions), int16(replicas), values, name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return c.awaitLeaders(ctx, name, partitions)
}

// awaitLeaders waits until a topic has so many partitions, and all of them take requests.
func (c *Cluster) awaitLeaders(ctx context.Context, topic string, partitions int) error {
	return await(ctx, "topic "+topic+" has leaders", func() (bool, error) {
		ends, err := c.admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		return len(ends[topic]) == partitions, err
	})
}

// DeleteTopic deletes a topic, and waits until no broker knows it any more.
func (c *Cluster) DeleteTopic(ctx context.Context, name string) error {
	if _, err := c.admin.DeleteTopic(ctx, name); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return await(ctx, "topic "+name+" is deleted", func() (bool, error) {
		list, err := c.admin.ListTopics(ctx, name)
		return !list.Has(name) || errors.Is(list[name].Err, kerr.UnknownTopicOrPartition), err
	})
}

// AddPartitions gives a topic more partitions, all of which it has then.
func (c *Cluster) AddPartitions(ctx context.Context, topic string, partitions int) error {
	responses, err := c.admin.UpdatePartitions(ctx, partitions, topic)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("add partitions to topic %s: %w", topic, err)
	}
	return c.awaitLeaders(ctx, topic, partitions)
}

// DeleteRecords deletes the records of a partition before an offset.
func (c *Cluster) DeleteRecords(ctx context.Context, topic string, partition int, before int64) error {
	var offsets kadm.Offsets
	offsets.AddOffset(topic, int32(partition), before, -1)
	responses, err := c.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("delete records of %s/%d: %w", topic, partition, err)
	}
	return nil
}

// Partition describes a partition: its leader, or -1 without one, its replicas, and those in sync.
// All brokers that run agree about it. One that was paused or cut off knows the former state for a
// while.
func (c *Cluster) Partition(ctx context.Context, topic string, partition int) (p Partition, err error) {
	err = c.await(ctx, topic, partition, "is known", func(now Partition) bool { p = now; return true })
	return p, err
}

// Partition is the state of a partition.
type Partition struct {
	Leader, Epoch int32
	Replicas, ISR []int32
}

// await waits until a condition holds for what all brokers that run say about a partition.
func (c *Cluster) await(ctx context.Context, topic string, partition int, what string, ok func(Partition) bool) error {
	return await(ctx, fmt.Sprintf("partition %s/%d %s", topic, partition, what), func() (bool, error) {
		var said []Partition
		for _, n := range c.nodes {
			if !n.answers.Load() {
				continue
			}
			p, err := c.ask(ctx, n.id, topic, partition)
			if err != nil {
				return false, err
			}
			if said = append(said, p); !reflect.DeepEqual(p, said[0]) {
				return false, fmt.Errorf("the brokers don't agree: %+v", said)
			}
		}
		return len(said) > 0 && ok(said[0]), nil
	})
}

// ask asks one broker about a partition.
func (c *Cluster) ask(ctx context.Context, broker int, topic string, partition int) (Partition, error) {
	request := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	request.Topics = append(request.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := c.client.Broker(broker).Request(ctx, request)
	if err != nil {
		return Partition{}, fmt.Errorf("ask broker %d: %w", broker, err)
	}
	for _, t := range answer.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			if int(p.Partition) == partition {
				slices.Sort(p.ISR)
				return Partition{p.Leader, p.LeaderEpoch, p.Replicas, p.ISR}, nil
			}
		}
	}
	return Partition{}, fmt.Errorf("broker %d has no partition %s/%d", broker, topic, partition)
}

// AwaitSynced waits until all replicas of a partition are in sync.
func (c *Cluster) AwaitSynced(ctx context.Context, topic string, partition int) error {
	return c.await(ctx, topic, partition, "is in sync", func(p Partition) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// Move makes a replica of a partition its leader, which must be in sync.
func (c *Cluster) Move(ctx context.Context, topic string, partition, to int) error {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	p, err := c.Partition(ctx, topic, partition)
	if err != nil {
		return err
	}
	order := append([]int32{int32(to)}, slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return id == int32(to) })...)
	var request kadm.AlterPartitionAssignmentsReq
	request.Assign(topic, int32(partition), order)
	responses, err := c.admin.AlterPartitionAssignments(ctx, request)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		return fmt.Errorf("move %s/%d to broker %d: %w", topic, partition, to, err)
	}
	// The election takes a replica only while it is in sync, so it may have to be repeated.
	return c.await(ctx, topic, partition, fmt.Sprintf("is led by broker %d", to), func(p Partition) bool {
		if int(p.Leader) != to {
			c.elect(ctx, kadm.ElectPreferredReplica, topic, partition)
		}
		return int(p.Leader) == to
	})
}

// LoseEnd makes a partition lose all that write writes: its other replicas are paused meanwhile,
// then its leader is killed, and one of the others becomes the leader in an unclean election. It
// returns when the former leader is in sync again, which it is after it has truncated its log. The
// topic needs two replicas and min.insync.replicas=1. It is better without
// unclean.leader.election.enable: then this is the only unclean election, also if a broker gets no
// CPU meanwhile and is taken for lost.
func (c *Cluster) LoseEnd(ctx context.Context, topic string, partition int, write func() error) (err error) {
	if err := c.AwaitSynced(ctx, topic, partition); err != nil {
		return err
	}
	p, err := c.Partition(ctx, topic, partition)
	if err != nil {
		return err
	}
	if len(p.Replicas) != 2 {
		return fmt.Errorf("partition %s/%d has %d replicas: the controllers need a majority without one of two", topic, partition, len(p.Replicas))
	}
	leader, other := int(p.Leader), int(p.Replicas[0]+p.Replicas[1]-p.Leader)
	if err := c.Pause(other); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Continue(other)) }()
	if err := c.await(ctx, topic, partition, "has no replica but its leader", func(p Partition) bool { return len(p.ISR) == 1 }); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	if err := c.Kill(leader); err != nil {
		return err
	}
	if err := c.Continue(other); err != nil {
		return err
	}
	if err := c.await(ctx, topic, partition, "has the other replica as its leader", func(p Partition) bool {
		if p.Leader < 0 {
			c.elect(ctx, kadm.ElectLiveReplica, topic, partition)
		}
		return int(p.Leader) == other
	}); err != nil {
		return err
	}
	if err := c.Restart(leader); err != nil {
		return err
	}
	return c.AwaitSynced(ctx, topic, partition)
}

// elect asks for the election of a partition's leader. An error passes: the brokers may not be
// ready for it.
func (c *Cluster) elect(ctx context.Context, how kadm.ElectLeadersHow, topic string, partition int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var set kadm.TopicsSet
	set.Add(topic, int32(partition))
	_, _ = c.admin.ElectLeaders(ctx, how, set)
}
