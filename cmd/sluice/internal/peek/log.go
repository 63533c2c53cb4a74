// Package peek looks at the events of a log without consuming them: its readers have no epoch, no
// lease and no checkpoint, and nothing is written anywhere.
package peek

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Source is a log as a consumer group reads it.
type Source interface {
	driver.Source
	Close(ctx context.Context) error
}

// Log is a hub or a topic to look at.
type Log struct {
	// Noun is hub or topic.
	Noun string
	// Open opens it in a consumer group. It connects when it is first used.
	Open func(group string) (Source, error)
	// Groups are the consumer groups to read in, at least one, in the order in which they are
	// tried: Event Hubs refuses a reader without an epoch in a group in which a consumer reads.
	Groups []string

	topic   string // once it is known
	mu      sync.Mutex
	sources map[string]Source
	best    int // the index of the group in which a partition was read last
}

// Name is what messages call the log, such as "hub flights", after Describe.
func (l *Log) Name() string { return l.Noun + " " + l.topic }

// source returns the log as the group of an index reads it.
func (l *Log) source(i int) (Source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	group := l.Groups[i]
	if s := l.sources[group]; s != nil {
		return s, nil
	}
	s, err := l.Open(group)
	if err != nil {
		return nil, err
	}
	if l.sources == nil {
		l.sources = map[string]Source{}
	}
	l.sources[group] = s
	return s, nil
}

// closeFor bounds the end of the connections.
const closeFor = 5 * time.Second

// Close ends all connections, even if ctx has ended.
func (l *Log) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer cancel()
	for _, s := range l.sources {
		_ = s.Close(ctx)
	}
}

// Describe asks for the topic.
func (l *Log) Describe(ctx context.Context) (driver.Topic, error) {
	s, err := l.source(0)
	if err != nil {
		return driver.Topic{}, err
	}
	topic, err := s.Describe(ctx)
	l.topic = topic.Topic
	return topic, err
}

// inSomeGroup calls fn with the log as one group after the other reads it, until fn succeeds. It
// goes on where the group is taken by a consumer, or does not exist.
func (l *Log) inSomeGroup(ctx context.Context, partition string, fn func(Source) error) error {
	l.mu.Lock()
	first := l.best
	l.mu.Unlock()
	var failed []error
	for n := range l.Groups {
		i := (first + n) % len(l.Groups)
		s, err := l.source(i)
		if err == nil {
			err = fn(s)
		}
		switch {
		case err == nil:
			l.mu.Lock()
			l.best = i
			l.mu.Unlock()
			return nil
		case ctx.Err() != nil, !errors.Is(err, driver.ErrStolen) && !errors.Is(err, driver.ErrRefused):
			return err
		}
		failed = append(failed, err)
	}
	return l.noGroup(partition, first, failed)
}

// noGroup is the error if no group can read, of which the one of an index was the first.
func (l *Log) noGroup(partition string, first int, failed []error) error {
	taken := false
	list := make([]string, len(failed))
	for i, err := range failed {
		reason := err.Error()
		if errors.Is(err, driver.ErrStolen) {
			taken, reason = true, "a consumer reads in it"
		}
		list[i] = l.Groups[(first+i)%len(l.Groups)] + " (" + reason + ")"
	}
	if !taken {
		return failed[0]
	}
	return &groupError{fmt.Sprintf("%s, partition %s: cannot be read in the consumer group %s: create a group to look with (az eventhubs eventhub consumer-group create), and pass --consumer-group NAME",
		l.Name(), partition, strings.Join(list, ", nor in "))}
}

// groupError says why no consumer group can be read in.
type groupError struct{ text string }

func (e *groupError) Error() string { return e.text }

// Is reports whether target is [driver.ErrRefused].
func (e *groupError) Is(target error) bool { return target == driver.ErrRefused }
