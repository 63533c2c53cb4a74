package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Round is what became of a file in [Group.Once].
type Round struct {
	File     string
	Resource string                 // empty if the file is not valid
	Done     *autoscale.Round       // nil if there was no round
	Leased   *autoscale.LeasedError // another process works on the resource, so there was no round
	Err      error
}

// Once makes one round of each file, all at the same time, and closes what it has opened:
// see [autoscale.Autoscaler.Once]. It holds the resource's lease meanwhile. The group must
// be one of [AllParts]. nil opts are the zero value.
func (g *Group) Once(ctx context.Context, wait time.Duration, opts *Options) []Round {
	o := withLog(opts)
	rounds := make([]Round, len(g.members))
	_ = g.each(func(i int, m *member) error {
		rounds[i] = Round{File: m.path, Err: m.err}
		if m.config != nil {
			rounds[i].Resource = m.config.Resource.Name
			rounds[i].Err = m.config.once(ctx, wait, &o, &rounds[i])
		}
		return nil
	})
	return rounds
}

func (c *Config) once(ctx context.Context, wait time.Duration, opts *Options, r *Round) (err error) {
	if c.ofWorkers {
		return c.problem("target", errors.New("workers end with the process that has started them: --once needs another target"))
	}
	parts, err := c.Open(ctx, AllParts, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.closeSoon(ctx)) }()
	held, release, err := parts.holder.Hold(ctx)
	if errors.As(err, &r.Leased) {
		return nil
	}
	if err != nil {
		return c.problem("state", err)
	}
	defer release()
	r.Done, err = parts.part.(*autoscale.Autoscaler).Once(held, wait)
	switch {
	case lost(held) != nil:
		return lost(held)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: interrupted: the next run continues", c.Resource.Name)
	case err != nil:
		return fmt.Errorf("%s: %w", c.Resource.Name, err)
	}
	return nil
}
