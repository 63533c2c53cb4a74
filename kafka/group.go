package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrGroupActive means that a consumer group has members: only they may commit its offsets.
var ErrGroupActive = errors.New("the consumer group has active members")

// ConsumerGroup is a consumer group of Kafka: who reads in it, and how far it is in a topic.
type ConsumerGroup struct {
	// Members are the clients that read in it now, in any topic: client id and host.
	Members []string
	// Positions are those of the last events that are done, by partition. A partition without a
	// committed offset is missing. A position has the leader epoch, if it was committed.
	Positions map[string]driver.Position
}

// ConsumerGroup asks for a consumer group of Kafka and its offsets in the topic. It changes
// nothing. A group that does not exist has no members and no positions. Offsets that an open
// transaction commits are waited for.
func (s *Source) ConsumerGroup(ctx context.Context, name string) (ConsumerGroup, error) {
	ctx, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	for {
		g, err := s.askGroup(ctx, name)
		code := kerrOf(err)
		// The first group of a cluster waits until the brokers have made the topic of the offsets.
		if code == nil || !kerr.IsRetriable(code) || pause(ctx, groupPause) != nil {
			return g, s.explain(groupName(name), err)
		}
	}
}

// groupPause is the time between two requests about a group.
const groupPause = 200 * time.Millisecond

func (s *Source) askGroup(ctx context.Context, name string) (g ConsumerGroup, err error) {
	if g.Members, err = s.members(ctx, name); err != nil {
		return g, err
	}
	found, err := kadm.NewClient(s.client.requests).FetchOffsetsForTopics(kadm.RequireStable(ctx), name, s.topic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return g, nil
	}
	if err != nil {
		return g, err
	}
	g.Positions = map[string]driver.Position{}
	for partition, o := range found[s.topic] {
		if o.Err != nil {
			return g, o.Err
		}
		if o.At < 0 { // there is none
			continue
		}
		g.Positions[strconv.Itoa(int(partition))] = driver.Position{Sequence: o.At - 1, Offset: history{o.LeaderEpoch, -1}.String()}
	}
	return g, nil
}

// CommitOffsets commits positions, by partition, as offsets of a consumer group of Kafka in the
// topic, for programs that show the lag of such groups. Sluice itself never reads them. The error
// is an [ErrGroupActive] if the group has members.
func (s *Source) CommitOffsets(ctx context.Context, name string, positions map[string]driver.Position) error {
	ctx, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	offsets := kadm.Offsets{}
	for partition, p := range positions {
		number, err := s.number(partition)
		if err != nil {
			return err
		}
		if p.Sequence < driver.Origin.Sequence { // no start was chosen yet
			continue
		}
		offsets.AddOffset(s.topic, number, p.Sequence+1, historyOf(p.Offset).epoch)
	}
	err := kadm.NewClient(s.client.requests).CommitAllOffsets(ctx, name, offsets)
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.StaleMemberEpoch) {
		return fmt.Errorf("commit offsets of %s: %w", groupName(name), ErrGroupActive)
	}
	return s.explain("commit offsets of "+groupName(name), err)
}

// members returns the clients in a group of either protocol, sorted.
func (s *Source) members(ctx context.Context, name string) ([]string, error) {
	admin := kadm.NewClient(s.client.requests)
	var list []string
	add := func(client, host string) {
		list = append(list, s.client.oneLine(client+" at "+strings.TrimPrefix(host, "/")))
	}
	classic, err := admin.DescribeGroups(ctx, name)
	if err == nil {
		err = classic[name].Err
	}
	if _, answered := classic[name]; err == nil && !answered {
		err = errNoGroup
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	for _, m := range classic[name].Members {
		add(m.ClientID, m.ClientHost)
	}
	if len(list) == 0 && classic[name].State != "Empty" { // it may be of the protocol of KIP-848
		newer, err := admin.DescribeConsumerGroups(ctx, name)
		if err == nil {
			err = newer[name].Err
		}
		if _, answered := newer[name]; err == nil && !answered {
			err = errNoGroup
		}
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) && !unsupported(err) {
			return nil, err
		}
		for _, m := range newer[name].Members {
			add(m.ClientID, m.ClientHost)
		}
	}
	slices.Sort(list)
	return list, nil
}

// errNoGroup: that a group has no members must be said by an answer about it.
var errNoGroup = errors.New("the broker's answer leaves out the group")

func groupName(name string) string { return "consumer group " + name }
