package deadletters

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Checkpoints is the part of a [driver.TxStore] that [OfflineSource] needs.
type Checkpoints interface {
	Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error)
}

// OfflineSource is a source that, while the hub cannot be reached, describes the topic from its
// checkpoints, so that redrives from stored bodies work during an outage. Everything that reads
// the hub still fails.
type OfflineSource struct {
	driver.Source
	Group       driver.Group
	Checkpoints Checkpoints
	// Unreachable is called with the error each time the hub cannot be reached.
	Unreachable func(error)
}

// describeFor limits how long Describe waits for the hub.
const describeFor = 5 * time.Second

// Describe asks the hub. If that fails, the checkpoints answer.
func (r *OfflineSource) Describe(ctx context.Context) (driver.Topic, error) {
	asking, cancel := context.WithTimeout(ctx, describeFor)
	defer cancel()
	topic, err := r.Source.Describe(asking)
	if err == nil || ctx.Err() != nil {
		return topic, err
	}
	all, readErr := r.Checkpoints.Read(ctx, r.Group)
	if readErr != nil {
		return driver.Topic{}, fmt.Errorf("read checkpoints: %w", readErr)
	}
	if len(all) == 0 {
		return driver.Topic{}, err
	}
	r.Unreachable(err)
	topic = driver.Topic{Group: r.Group}
	var newest time.Time
	for _, p := range all {
		topic.Partitions = append(topic.Partitions, p.Partition)
		if topic.Incarnation == "" || p.Updated.After(newest) {
			topic.Incarnation, newest = p.Incarnation, p.Updated
		}
	}
	return topic, nil
}
