package kafkasender

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicasTimeout is how long a broker waits for the replicas in sync before it answers that the
// time is over.
const replicasTimeout = 10 * time.Second

// produce sends a batch to a broker and returns the answer. If there is none, sent says whether the
// batch may have been sent.
func (t *Transport) produce(ctx context.Context, broker, partition int32, batch []byte) (answer *kmsg.ProduceResponseTopicPartition, sent bool, err error) {
	r := &produceRequest{ProduceRequest: kmsg.NewPtrProduceRequest()}
	r.Acks, r.TimeoutMillis = -1, int32(replicasTimeout/time.Millisecond)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = t.name
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = partition, batch
	topic.Partitions = append(topic.Partitions, part)
	r.Topics = append(r.Topics, topic)
	response, err := t.requests.Broker(int(broker)).Request(ctx, r)
	if err != nil {
		return nil, !r.state.CompareAndSwap(requestNew, requestWithdrawn), err
	}
	found, ok := response.(*kmsg.ProduceResponse)
	if !ok || len(found.Topics) != 1 || len(found.Topics[0].Partitions) != 1 {
		return nil, true, fmt.Errorf("answer without the partition: %T", response)
	}
	return &found.Topics[0].Partitions[0], true, nil
}

// produceRequest is a produce request that knows whether it was sent. It names the topic, because
// not every broker that knows topic ids reports them.
type produceRequest struct {
	*kmsg.ProduceRequest
	state atomic.Int32
}

// The states of a request.
const (
	requestNew       = iota
	requestWritten   // AppendTo was called
	requestWithdrawn // Send has given it up; a request that is still written has no batch
)

// MaxVersion is the last version that names topics.
func (*produceRequest) MaxVersion() int16 { return 12 }

// AppendTo is called when the request is written to a connection.
func (r *produceRequest) AppendTo(dst []byte) []byte {
	if r.state.CompareAndSwap(requestNew, requestWritten) || r.state.Load() == requestWritten {
		return r.ProduceRequest.AppendTo(dst)
	}
	empty := *r.ProduceRequest
	empty.Topics = nil
	return empty.AppendTo(dst)
}
