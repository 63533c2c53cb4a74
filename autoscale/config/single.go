package config

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/autoscale"
)

// OpenMetrics opens only the sources, by the metrics' names, and returns a function that closes
// them.
func (c *Config) OpenMetrics(ctx context.Context) (map[string]autoscale.Source, func(context.Context) error, error) {
	p := &Parts{}
	sources, err := (&opening{Config: c, ctx: ctx, opts: &Options{}, parts: p}).openSources()
	if err != nil {
		return nil, nil, errors.Join(err, p.Close(ctx))
	}
	return sources, p.Close, nil
}

// OpenTarget opens only the target, and returns a function that closes it. The target is nil if it
// is workers on this machine, which opening would start.
func (c *Config) OpenTarget(ctx context.Context) (autoscale.Target, func(context.Context) error, error) {
	if c.ofWorkers {
		return nil, noClose, nil
	}
	target, done, err := c.target(ctx, &Options{})
	if err != nil {
		return nil, nil, c.problem("target", err)
	}
	return target, done, nil
}

// Values returns all values that the file has for metrics and target, with their variables, so that
// a report can be searched for them. Some are names, and some may be secrets.
func (c *Config) Values() []string { return c.values }
