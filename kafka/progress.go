package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/publisher"
)

const (
	// publishEvery bounds how often progress is published.
	publishEvery = 5 * time.Second
	// publishAll is how often partitions whose checkpoint stays are published again, because Kafka
	// forgets the offsets of groups without members (offsets.retention.minutes, a week by default).
	publishAll = time.Hour
	// publishTimeout bounds one request.
	publishTimeout = 15 * time.Second
)

// offsetCommitter is the part of a [Source] that publishing progress needs.
type offsetCommitter interface {
	ConsumerGroup(ctx context.Context, name string) (ConsumerGroup, error)
	CommitOffsets(ctx context.Context, name string, positions map[string]driver.Position) error
}

// Progress publishes the checkpoints of the partitions that a process holds as the committed
// offsets of a consumer group of Kafka, for programs that compute the lag from these. It is an
// observer:
//
//	progress, err := kafka.NewProgress(ctx, source, "orders-progress", nil)
//	defer progress.Close(ctx) // after the consumer has stopped
//	consumer, err := sluice.New(source, leases, delivery, &sluice.Config{Observer: progress})
//
// Each checkpoint is published after it was stored, every 5 seconds and in Close, so the offsets
// are never ahead of it. Nothing of Sluice reads them. Failures do not affect the consumer; what
// was not published is tried again. It is safe for concurrent use.
type Progress struct{ *publisher.Publisher }

// ProgressConfig has the settings of [Progress]. The zero value is ready to use.
type ProgressConfig struct {
	// Observer gets failures, as [driver.KindHookFailed]: the first one, and no more until a
	// request succeeds. Default: none.
	Observer driver.Observer
}

// NewProgress publishes in the group of this name, until Close. The error is an [ErrGroupActive] if
// the group has members, whose offsets these are, and a [driver.ErrRefused] if the brokers refuse
// to say. If they do not answer, it tries later. cfg may be nil.
func NewProgress(ctx context.Context, source *Source, group string, cfg *ProgressConfig) (*Progress, error) {
	var c ProgressConfig
	if cfg != nil {
		c = *cfg
	}
	return newProgress(ctx, source, group, c.Observer)
}

func newProgress(ctx context.Context, log offsetCommitter, group string, observer driver.Observer) (*Progress, error) {
	asking, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := checkUnread(asking, log, group); errors.Is(err, ErrGroupActive) || errors.Is(err, driver.ErrRefused) {
		return nil, err
	}
	return &Progress{publisher.Start(publisher.Config{
		What: "publish progress to Kafka", Every: publishEvery, Again: publishAll, Timeout: publishTimeout, Observer: observer,
		Publish: func(ctx context.Context, due map[string]publisher.Checkpoint) error {
			positions := make(map[string]driver.Position, len(due))
			for partition, c := range due {
				positions[partition] = c.Position
			}
			err := log.CommitOffsets(ctx, group, positions)
			if err == nil {
				clear(due)
			}
			return err
		},
	})}, nil
}

// CheckUnread checks that a consumer group of Kafka has no members. The error is an
// [ErrGroupActive] if it has.
func (s *Source) CheckUnread(ctx context.Context, group string) error {
	return checkUnread(ctx, s, group)
}

func checkUnread(ctx context.Context, log offsetCommitter, group string) error {
	found, err := log.ConsumerGroup(ctx, group)
	const named = 3
	switch members := found.Members; {
	case len(members) > 0:
		return fmt.Errorf("group %s: %w: %s: stop them, or name a group that no program reads in", group, ErrGroupActive, strings.Join(members[:min(len(members), named)], ", "))
	case err != nil:
		return fmt.Errorf("group %s: %w", group, err)
	}
	return nil
}
