package sluice

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/stamp"
)

// Settings are the configuration of a consumer, with every default filled in. sluice.Config says
// what the fields mean.
type Settings struct {
	Partitions           int // 0: all; negative: balanced
	Owner                string
	Start                driver.Start
	LeaseFor, RenewEvery time.Duration
	AssignEvery          time.Duration
	AssignBurst          int
	MaxBatch             int
	PrefetchBytes        int
	Attempts             int
	RetryMin, RetryMax   time.Duration
	RedriveEvery         time.Duration
	BodyLimit            int
	CopyDeadLetters      func(ctx context.Context, dead []driver.DeadLetter) error
	StallAfter           time.Duration
	SilentAfter          time.Duration
	StampsFrom           []stamp.Source
	Filter               func(*driver.Event) bool
	Hooks                SettingsHooks
	Observer             driver.Observer
	Clock                driver.Clock
	Seed                 uint64
}

// SettingsHooks are called at the steps of a partition's assignment: see sluice.Hooks.
type SettingsHooks struct {
	Assigned func(ctx context.Context, lease driver.Lease, at driver.Checkpoint) error
	Renewed  func(ctx context.Context, lease driver.Lease) error
	Released func(ctx context.Context, lease driver.Lease, cause error) error
	Batch    func(ctx context.Context, b driver.Batch) error
	Error    func(ctx context.Context, lease driver.Lease, err error) error
}

// backoff returns new waits between attempts, from RetryMin to RetryMax.
func (s *Settings) backoff(r *rand.Rand) *clock.Backoff {
	return &clock.Backoff{Min: s.RetryMin, Max: s.RetryMax, Rand: r}
}

// observe adds time and owner to an observation and passes it to the observer.
func (s *Settings) observe(o driver.Observation) {
	o.Time, o.Owner = s.Clock.Wall(), s.Owner
	_ = guard(func() error { s.Observer.Observe(o); return nil })
}
