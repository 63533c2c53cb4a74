package group_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// complaints collects the errors of observations that are about no partition.
type complaints struct {
	mu   sync.Mutex
	list []string
}

func (c *complaints) Observe(o driver.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Kind == driver.KindFailed && o.Partition == "" {
		c.list = append(c.list, o.Err.Error())
	}
}

func (c *complaints) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// TestSecondReplica: a replay whose partitions another process owns says so once, and again if that
// happens again.
func TestSecondReplica(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.T
		replay := sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error { return nil }})
		_, stop := s.Run(s.Hub, replay, sluice.Config{})
		time.Sleep(5 * time.Second)
		heard := &complaints{}
		second := enginetest.Must(sluice.New(s.Hub, s.Leases, replay, &sluice.Config{Owner: "second", Observer: heard}))
		ran := make(chan error, 1)
		go func() { ran <- second.Run(t.Context()) }()
		time.Sleep(25 * time.Second)
		if said := heard.said(); len(said) > 0 {
			t.Errorf("within a lease: %q", said)
		}
		time.Sleep(10 * time.Minute)
		said := heard.said()
		if len(said) != 1 || !strings.HasPrefix(said[0], "replay: 2 of 2 partitions are owned by other processes (") ||
			!strings.HasSuffix(said[0], "), and this one waits for them: if each replica needs all events, run each without a lease store, or give each a consumer group of its own") {
			t.Errorf("said %q", said)
		}
		stop()
		time.Sleep(time.Minute)
		if err := second.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil || len(heard.said()) != 1 {
			t.Errorf("%v, said %q", err, heard.said())
		}
	})
}

// TestMorePartitionsThanThereAre: a number that the topic cannot have is reported, once.
func TestMorePartitionsThanThereAre(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		for partitions, want := range map[sluice.Partitions][]string{
			1: nil, sluice.AllPartitions: nil,
			99: {"99 partitions are configured, and topic " + enginetest.Group.Topic + " has 1: state at most 1, or all"},
		} {
			heard := &complaints{}
			c := enginetest.Must(sluice.New(sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), sluice.Transactional(&sluicetest.Store{}, enginetest.Nothing), &sluice.Config{Partitions: partitions, Observer: heard}))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()
			time.Sleep(10 * time.Minute)
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil || !slices.Equal(heard.said(), want) {
				t.Errorf("%d: %v, said %q, want %q", partitions, err, heard.said(), want)
			}
		}
	})
}
