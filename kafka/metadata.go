package kafka

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicInfo is what the cluster says about a topic.
type topicInfo struct {
	asked      time.Time // when it was asked for
	cluster    string
	id         [16]byte // zero if the brokers have no topic ids
	partitions []partitionInfo
	brokers    map[int32]string // their addresses
}

// partitionInfo is who leads a partition.
type partitionInfo struct {
	leader int32
	epoch  int32 // of the leader; -1 if unknown
	err    error // why there is no leader
}

// brokerName returns a broker's name for messages.
func (t *topicInfo) brokerName(id int32) string {
	if address := t.brokers[id]; address != "" {
		return fmt.Sprintf("broker %d (%s)", id, address)
	}
	return fmt.Sprintf("broker %d", id)
}

// topicRequests asks for topics. Callers that ask for the same topic while a request has not been
// sent yet share it: its answer is as new as that of a request of their own.
type topicRequests struct {
	mu     sync.Mutex
	topics map[string]*topicRequest
}

// topicRequest is the requests for one topic. They are few, and never removed.
type topicRequest struct {
	last *topicInfo    // the last answer, under topicRequests.mu
	turn chan struct{} // held while one is at the brokers
	next *topicCall    // the one that waits for its turn, under topicRequests.mu
}

// topicCall is a request that several callers wait for.
type topicCall struct {
	done chan struct{}
	info *topicInfo
	err  error
}

// get asks for a topic.
func (t *topicRequests) get(ctx context.Context, c *Client, topic string) (*topicInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, err := t.join(c, topic)
	if err != nil {
		return nil, err
	}
	select {
	case <-call.done:
		return call.info, call.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// recent returns the last answer about a topic if it is not older than recentFor, else it asks.
func (t *topicRequests) recent(ctx context.Context, c *Client, topic string) (*topicInfo, error) {
	t.mu.Lock()
	if r := t.topics[topic]; r != nil && r.last != nil && time.Since(r.last.asked) < recentFor {
		defer t.mu.Unlock()
		return r.last, nil
	}
	t.mu.Unlock()
	return t.get(ctx, c, topic)
}

// recentFor is how long an answer serves requests that notice by themselves if the leader has
// changed.
const recentFor = 10 * time.Second

// join returns the call that waits for its turn, or a new one.
func (t *topicRequests) join(c *Client, topic string) (*topicCall, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics == nil {
		t.topics = map[string]*topicRequest{}
	}
	r := t.topics[topic]
	if r == nil {
		r = &topicRequest{turn: make(chan struct{}, 1)}
		t.topics[topic] = r
	}
	if r.next != nil {
		return r.next, nil
	}
	call := &topicCall{done: make(chan struct{})}
	if !c.start(func() { t.send(c, topic, r, call) }) {
		return nil, errClosed
	}
	r.next = call
	return call, nil
}

func (t *topicRequests) send(c *Client, topic string, r *topicRequest, call *topicCall) {
	defer close(call.done)
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	t.mu.Lock()
	r.next = nil
	t.mu.Unlock()
	call.info, call.err = c.metadata(topic)
	if call.err == nil {
		t.mu.Lock()
		r.last = call.info
		t.mu.Unlock()
	}
}

// metadata asks the cluster for a topic.
func (c *Client) metadata(topic string) (*topicInfo, error) {
	began := time.Now()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, one)
	resp, err := request[*kmsg.MetadataResponse](c.life, c, anyBroker, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("a broker answered about %d topics instead of one", len(resp.Topics))
	}
	about := &resp.Topics[0]
	if err := kerr.ErrorForCode(about.ErrorCode); err != nil {
		return nil, err
	}
	info := &topicInfo{asked: began, id: about.TopicID, partitions: make([]partitionInfo, len(about.Partitions)), brokers: map[int32]string{}}
	if resp.ClusterID != nil {
		info.cluster = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		info.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for i := range info.partitions {
		info.partitions[i] = partitionInfo{leader: -1, epoch: -1, err: kerr.UnknownTopicOrPartition}
	}
	for _, p := range about.Partitions {
		if p.Partition < 0 || int(p.Partition) >= len(info.partitions) {
			return nil, fmt.Errorf("a broker names partition %d of %d", p.Partition, len(info.partitions))
		}
		err := kerr.ErrorForCode(p.ErrorCode)
		if p.Leader >= 0 {
			err = nil // a replica that is not available is no reason not to read
		} else if err == nil {
			err = kerr.LeaderNotAvailable
		}
		info.partitions[p.Partition] = partitionInfo{leader: p.Leader, epoch: p.LeaderEpoch, err: err}
	}
	return info, nil
}
