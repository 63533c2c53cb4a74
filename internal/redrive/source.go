package redrive

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// Checkpoints is the side of a [sluice.TxStore] that is needed here.
type Checkpoints interface {
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}

// Recorded is a source that describes its topic as the checkpoints know it
// while the hub is out of reach, so that retries go on from stored bodies.
// Whatever needs the log itself still fails.
type Recorded struct {
	sluice.Source
	Group       sluice.Group
	Checkpoints Checkpoints
	// Unreachable is called with the hub's error each time.
	Unreachable func(error)
}

// describeFor is how long the hub is waited for.
const describeFor = 5 * time.Second

// Describe asks the hub, then the checkpoints.
func (r *Recorded) Describe(ctx context.Context) (sluice.Topic, error) {
	asking, cancel := context.WithTimeout(ctx, describeFor)
	defer cancel()
	topic, err := r.Source.Describe(asking)
	if err == nil || ctx.Err() != nil {
		return topic, err
	}
	all, readErr := r.Checkpoints.Read(ctx, r.Group)
	if readErr != nil {
		return sluice.Topic{}, fmt.Errorf("read checkpoints: %w", readErr)
	}
	if len(all) == 0 {
		return sluice.Topic{}, err
	}
	r.Unreachable(err)
	topic = sluice.Topic{Group: r.Group}
	var newest time.Time
	for _, p := range all {
		topic.Partitions = append(topic.Partitions, p.Partition)
		if topic.Incarnation == "" || p.Updated.After(newest) {
			topic.Incarnation, newest = p.Incarnation, p.Updated
		}
	}
	return topic, nil
}
