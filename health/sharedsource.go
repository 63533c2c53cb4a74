package health

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// SharedSource is a [driver.Source] that remembers what it was asked. A consumer that reads it asks
// for the bounds of its partitions anyway, so a [Watcher] over the same SharedSource need not ask
// the log for them again. It is safe for concurrent use.
type SharedSource struct {
	driver.Source

	mu          sync.Mutex
	group       driver.Group // empty: as the log says
	topic       driver.Topic
	describedAt time.Time // the zero time: it was not described
	bounds      map[string]askedBounds
}

// askedBounds is what the log has answered, and when it was asked.
type askedBounds struct {
	driver.Bounds
	asked time.Time
}

// NewSharedSource makes a source that remembers what it was asked.
func NewSharedSource(source driver.Source) *SharedSource {
	return &SharedSource{Source: source, bounds: map[string]askedBounds{}}
}

// BoundsPerSecond implements [driver.BoundsBudget].
func (s *SharedSource) BoundsPerSecond() float64 { return driver.BudgetOf(s.Source) }

// Group implements [driver.GroupNamer].
func (s *SharedSource) Group() driver.Group { return driver.GroupOf(s.Source) }

// SetGroup has the topic described with another group: for a log that ignores case in names, the
// one that [driver.Spelling] has returned.
func (s *SharedSource) SetGroup(group driver.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group = group
}

// Describe implements [driver.Source].
func (s *SharedSource) Describe(ctx context.Context) (driver.Topic, error) {
	at := time.Now()
	topic, err := s.Source.Describe(ctx)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if topic.Incarnation != s.topic.Incarnation {
			clear(s.bounds) // sequence numbers of two incarnations are unrelated
		}
		if s.group != (driver.Group{}) {
			topic.Group, topic.AnyCase = s.group, false
		}
		s.topic, s.describedAt = topic, at
	}
	return topic, err
}

// Bounds implements [driver.Source].
func (s *SharedSource) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	at := time.Now()
	b, err := s.Source.Bounds(ctx, partition)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bounds[partition] = askedBounds{b, at}
	}
	return b, err
}

// describe returns the topic as it was described not longer than age ago, or asks.
func (s *SharedSource) describe(ctx context.Context, age time.Duration) (driver.Topic, error) {
	s.mu.Lock()
	topic, known := s.topic, time.Since(s.describedAt) <= age
	s.mu.Unlock()
	if known {
		return topic, nil
	}
	return s.Describe(ctx)
}

// known returns the bounds of a partition that were last asked for.
func (s *SharedSource) known(partition string) askedBounds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bounds[partition]
}
