package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/ownername"
)

// Group is one or more files whose autoscalers run in one process, each on its own: a
// target, a state or a file that fails stops and delays no other resource.
type Group struct {
	mode    Mode
	members []*member

	mu sync.Mutex // of the members' configs
}

// member is a file of a group.
type member struct {
	path   string
	config *Config // nil while the file is not valid
	err    error   // why its autoscaler does not run
}

// LoadGroup reads files. A file that cannot be read or is not valid does not stop the
// others, see [Group.Run]. LoadGroup fails if none is valid, and if two files have the
// same resource or the same target; the error names both.
func LoadGroup(mode Mode, paths ...string) (*Group, error) {
	g := &Group{mode: mode}
	var failed, conflicts []error
	for _, path := range paths {
		m := &member{path: path}
		c, err := Load(path)
		if err == nil {
			if err := g.conflict(c); err != nil {
				conflicts = append(conflicts, err)
			}
			m.config = c
		} else {
			m.err = err
			failed = append(failed, err)
		}
		g.members = append(g.members, m)
	}
	if len(failed) == len(paths) {
		return nil, errors.Join(failed...)
	}
	if err := errors.Join(conflicts...); err != nil {
		return nil, err
	}
	return g, nil
}

// conflict returns an error if a file cannot run beside the others.
func (g *Group) conflict(c *Config) error {
	for _, m := range g.members {
		if m.config == nil {
			continue
		}
		if err := c.conflict(m.config, g.mode); err != nil {
			return err
		}
	}
	return nil
}

const (
	// reopenMin and reopenMax bound the wait before a file that could not be opened is
	// read again.
	reopenMin = time.Second
	reopenMax = time.Minute
	// closeTimeout bounds closing: workers need time for a graceful stop.
	closeTimeout = 2 * time.Minute
)

// Run runs the autoscalers until ctx ends, and closes what they have opened. One whose file
// is not valid, or whose state or target cannot be opened, is logged; its file is read
// again after a wait of 1 s, which doubles up to 1 min, while the others run. At the end
// Run returns the errors of those that did not run. If there is only one file, Run
// returns its error at once. nil opts are the zero value.
//
// Of several processes with the same file and state, one works on the resource, and the
// others stand by until its lease has ended.
func (g *Group) Run(ctx context.Context, opts *Options) error {
	o := withLog(opts)
	return g.each(func(_ int, m *member) error {
		wait := clock.Backoff{Min: reopenMin, Max: reopenMax}
		for {
			ran, err := g.session(ctx, m, &o)
			if ctx.Err() != nil {
				return err
			}
			if ran {
				wait.Reset()
			}
			pause := wait.Next()
			other, leased := errors.AsType[*autoscale.LeasedError](err)
			switch {
			case leased && ran:
				o.Log.Warn("standing by, because another process has taken the lease, which was not renewed in time", "file", m.path, "resource", other.Resource, "holder", other.Lease.Owner)
			case len(g.members) == 1:
				return err
			default:
				o.Log.Error("autoscaler does not run, will be retried; the others run", "file", m.path, "wait", pause, "error", err)
				o.role(m, m.config, Stopped)
				g.set(m, nil)
			}
			if clock.New().Sleep(ctx, pause) != nil {
				return err
			}
		}
	})
}

func withLog(opts *Options) (o Options) {
	if opts != nil {
		o = *opts
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// each calls fn for each file, concurrently, and joins the errors.
func (g *Group) each(fn func(i int, m *member) error) error {
	errs := make([]error, len(g.members))
	var running sync.WaitGroup
	for i, m := range g.members {
		running.Go(func() { errs[i] = fn(i, m) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (g *Group) set(m *member, c *Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.config = c
}

// load reads a member's file, unless it has been read.
func (g *Group) load(m *member) (*Config, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.config != nil {
		return m.config, nil
	}
	c, err := Load(m.path)
	if err == nil {
		err = g.conflict(c)
	}
	if err != nil {
		return nil, err
	}
	m.config = c
	return c, nil
}

// session runs a file's autoscaler once, and reports whether it ran.
func (g *Group) session(ctx context.Context, m *member, opts *Options) (ran bool, err error) {
	c, err := g.load(m)
	if err != nil {
		return false, err
	}
	parts, err := c.Open(ctx, g.mode, opts)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // it was interrupted
		}
		return false, err
	}
	defer func() { err = errors.Join(err, parts.closeSoon(ctx)) }()
	if g.mode == AllParts {
		held, release, err := c.awaitLease(ctx, m, parts.holder, opts)
		if err != nil || held == nil {
			return false, err
		}
		defer release()
		ctx = held
	}
	opts.role(m, c, Active)
	l := c.Resource.Limits
	opts.Log.Info("autoscaling", "resource", c.Resource.Name, "every", l.Interval, "min", l.Min, "max", l.Max, "dry_run", g.mode == DryRun)
	return true, parts.runHeld(ctx)
}

// lost returns the error of a lease that another process has taken, nil if ctx has ended
// otherwise or not at all.
func lost(ctx context.Context) error {
	if other, ok := errors.AsType[*autoscale.LeasedError](context.Cause(ctx)); ok {
		return other
	}
	return nil
}

// closeSoon closes the parts, also after the end of ctx.
func (p *Parts) closeSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return p.Close(ctx)
}

// leaseFor is how long a lease outlives a process that was killed.
const leaseFor = 15 * time.Second

// lease returns a new lease of this process.
func (c *Config) lease() autoscale.Lease {
	file := c.places["name"].File
	if absolute, err := filepath.Abs(file); err == nil {
		file = absolute
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return autoscale.Lease{Owner: ownername.New(), File: file, Host: host, Duration: leaseFor}
}

// awaitLease takes the lease of the resource. While a process with the same file holds it,
// such as another replica, one that was killed, or the pod that this one replaces, it stands
// by; then a state that cannot be reached is waited for too. A process with another file is an
// error that names both. If ctx ends meanwhile, held is nil.
func (c *Config) awaitLease(ctx context.Context, m *member, holder *autoscale.Holder, opts *Options) (held context.Context, release func(), err error) {
	log := opts.Log.With("resource", c.Resource.Name)
	mine := c.lease()
	standby, failing := time.Time{}, false
	for {
		held, release, err := holder.Hold(ctx)
		var other *autoscale.LeasedError
		leased := errors.As(err, &other)
		switch {
		case err == nil:
			if !standby.IsZero() {
				log.Info("active: the lease of the other process has ended", "stood_by", time.Since(standby).Round(time.Second))
			}
			return held, release, nil
		case ctx.Err() != nil:
			return nil, nil, nil
		case !leased && standby.IsZero():
			return nil, nil, c.problem("state", err)
		case leased && other.Lease.File != mine.File:
			return nil, nil, c.problem("name", fmt.Errorf("%w: two files must not have the same resource: give this one another name, or stop that process", err))
		case !leased && !failing:
			log.Warn("standby: the state cannot be reached, will be retried", "error", err)
		case leased && standby.IsZero():
			standby = time.Now()
			log.Info("standby: another process works on the resource, waiting for its lease", "holder", other.Lease.Owner, "host", other.Lease.Host)
		}
		if !standby.IsZero() { // also while the state cannot be reached: a restart would not help
			opts.role(m, c, Standby)
		}
		failing = !leased
		_ = clock.New().Sleep(ctx, time.Second)
	}
}
