package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Compacted reports whether the topic is compacted: whether the brokers may remove an event of
// which a later one has the same key.
func (s *Source) Compacted(ctx context.Context) (bool, error) {
	policy, err := s.setting(ctx, "cleanup.policy")
	return slices.Contains(strings.Split(policy, ","), "compact"), err
}

// setting returns a setting of the topic, or the default of its broker.
func (s *Source) setting(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	all, err := kadm.NewClient(s.client.requests).DescribeTopicConfigs(ctx, s.topic)
	if err == nil && len(all) == 0 {
		err = errors.New("the answer has none")
	}
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		return "", s.explain("configuration of "+s.name(), err)
	}
	i := slices.IndexFunc(all[0].Configs, func(c kadm.Config) bool { return c.Key == name })
	if i < 0 {
		return "", nil
	}
	return all[0].Configs[i].MaybeValue(), nil
}
