package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics returns the names of the cluster's topics, sorted: those that the user may Describe, and
// none that Kafka keeps for itself, such as __consumer_offsets.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = nil // all
	resp, err := request[*kmsg.MetadataResponse](ctx, c, anyBroker, req)
	if err != nil {
		return nil, c.Explain("list of topics", err)
	}
	var names []string
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !kerr.IsRetriable(err) {
			return nil, c.Explain("list of topics", err)
		}
		if t.Topic != nil && !t.IsInternal {
			names = append(names, *t.Topic)
		}
	}
	slices.Sort(names)
	return names, nil
}
