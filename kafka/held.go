package kafka

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heldBack returns what is after the last stable offset of a partition, nil if nothing is. If that
// offset is the one of the call before, it also asks whose transaction begins there.
func (s *Source) heldBack(ctx context.Context, l leader, stable int64) (*driver.HeldBack, error) {
	if s.cfg.ReadUncommitted {
		return nil, nil
	}
	watermark, err := s.listIn(ctx, l, readUncommitted, latestOffset)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	before, known := s.stable[l.partition]
	if s.stable == nil {
		s.stable = map[int32]int64{}
	}
	if delete(s.stable, l.partition); watermark.offset > stable {
		s.stable[l.partition] = stable
	}
	s.mu.Unlock()
	if watermark.offset <= stable {
		return nil, nil
	}
	held := &driver.HeldBack{
		Last: watermark.offset - 1,
		What: fmt.Sprintf("an open transaction has held back the events from offset %d on (last stable offset %d, high watermark %d)", stable, stable, watermark.offset),
		Check: fmt.Sprintf("if its producer is gone, end it with `kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d`",
			l.info.brokers[l.broker], s.topic, l.partition, stable),
	}
	if known && before == stable {
		held.What += s.openedBy(ctx, l, stable)
	}
	return held, nil
}

// openedBy says which producer has begun a transaction at an offset (KIP-664), as far as the leader
// says it.
func (s *Source) openedBy(ctx context.Context, l leader, offset int64) string {
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = s.topic, []int32{l.partition}
	req.Topics = append(req.Topics, topic)
	resp, err := request[*kmsg.DescribeProducersResponse](ctx, s.client, l.broker, req)
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return ""
	}
	p := &resp.Topics[0].Partitions[0]
	if kerr.ErrorForCode(p.ErrorCode) != nil {
		return ""
	}
	for _, a := range p.ActiveProducers {
		if a.CurrentTxnStartOffset == offset {
			return fmt.Sprintf(" of producer id %d (epoch %d)", a.ProducerID, a.ProducerEpoch)
		}
	}
	return ""
}
