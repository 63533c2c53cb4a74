// Package dashboard serves the web dashboard of the pipelines that a command runs.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/scalingview"
	"github.com/sluice-go/sluice/cmd/sluice/internal/targetaudit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/pipeline/web"
)

// Config says how a dashboard is served, as the --web flags do.
type Config struct {
	// Address is where the dashboard listens.
	Address string
	// CertFile, KeyFile and Token are those of [web.Config]. ACME are the hosts of
	// [UseACME].
	CertFile, KeyFile string
	ACME              []string
	Token             string
	// Autoscalers are the configuration files of the autoscalers whose decisions are shown.
	Autoscalers []string
	// AuditGroup is the consumer group that audits started from the dashboard read with.
	AuditGroup string
	// Dir is the command's data directory, or that of --web-dir. The dashboard keeps its files in
	// web/ below it, and those of [UseACME] in acme/.
	Dir string
	Log *slog.Logger
}

// Pipeline is a pipeline that the dashboard shows.
type Pipeline struct {
	Name     string
	Pipeline *pipeline.Pipeline
	Parts    *pipeline.Parts
	// Watched: the command calls [Dashboard.Warn] itself.
	Watched bool
	// Elsewhere: the pipeline's consumers run in other processes.
	Elsewhere bool
	// Scaling is the autoscaler of those processes, nil if there is none.
	Scaling *web.Scaling
	// Audit is used where the rows don't say which event each one belongs to. Default: compare
	// rows.
	Audit Auditor
	// Unaudited is why no audit is possible. Empty: an audit is possible.
	Unaudited string
}

// Auditor audits a pipeline like [web.Pipeline].Audit. It reads the hub with a consumer group of
// its own.
type Auditor func(ctx context.Context, consumerGroup string, progress func(events int64)) (*audit.Report, error)

// Dashboard is a dashboard that is served. A nil *Dashboard is valid: it shows nothing.
type Dashboard struct {
	server           *web.Server
	web              *web.Dashboard
	shown            map[string]*web.Pipeline
	closeAutoscalers func(context.Context) error
	stop             context.CancelFunc
	serving          sync.WaitGroup
}

// Open starts to serve a dashboard of some pipelines.
func Open(ctx context.Context, cfg *Config, pipelines ...Pipeline) (*Dashboard, error) {
	webConfig := &web.Config{
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, Token: cfg.Token, Dir: filepath.Join(cfg.Dir, "web"), Log: cfg.Log,
	}
	if len(cfg.ACME) > 0 {
		UseACME(webConfig, cfg.ACME, "", nil)
	}
	d := &Dashboard{shown: map[string]*web.Pipeline{}, closeAutoscalers: func(context.Context) error { return nil }}
	list := make([]web.Pipeline, len(pipelines))
	for i, p := range pipelines {
		topic, err := p.Parts.Source.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("dashboard of %s: %w", p.Name, err)
		}
		list[i] = web.Pipeline{
			Name: p.Name, Group: topic.Group, Source: p.Parts.Source, Leases: p.Parts.Leases, Checkpoints: p.Parts.Checkpoints, DeadLetters: p.Parts.DeadLetters,
			Watched: p.Watched || p.Parts.DeadLetters == nil, // a stage in memory has nothing to watch
		}
		if !p.Elsewhere {
			list[i].Meter, list[i].Pausable = web.NewMeter(), web.NewPausableSource(p.Parts.Source)
		}
		if p.Scaling != nil {
			webConfig.Scaling = p.Scaling
		}
		if list[i].Audit, list[i].Unaudited, err = auditOf(p, cfg.AuditGroup); err != nil {
			return nil, err
		}
		d.shown[p.Name] = &list[i]
	}
	var err error
	if len(cfg.Autoscalers) > 0 {
		if webConfig.Scaling, d.closeAutoscalers, err = openAutoscalers(ctx, cfg.Autoscalers); err != nil {
			return nil, err
		}
	}
	if d.web, err = web.New(list, webConfig); err == nil {
		d.server, err = d.web.Listen(cfg.Address)
	}
	switch {
	case errors.Is(err, web.ErrNoToken):
		err = fmt.Errorf("--web %s: %w: name the environment variable that holds one with --web-token-env, or listen on 127.0.0.1", cfg.Address, web.ErrNoToken)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("--web %s: %w: choose another port; port 0 picks a free one", cfg.Address, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, errors.Join(err, closeSoon(ctx, d.closeAutoscalers))
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.serving.Go(func() {
		if err := errors.Join(d.server.Serve(serving), closeSoon(serving, d.closeAutoscalers)); err != nil {
			cfg.Log.Error("dashboard stopped", "error", err)
		}
	})
	return d, nil
}

// openAutoscalers opens the states of autoscalers.
func openAutoscalers(ctx context.Context, paths []string) (_ *web.Scaling, _ func(context.Context) error, err error) {
	var closers []func(context.Context) error
	closeAll := func(ctx context.Context) error {
		var errs []error
		for _, one := range closers {
			errs = append(errs, one(ctx))
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeSoon(ctx, closeAll))
		}
	}()
	var list []*web.Scaling
	files := map[string]string{} // by resource
	for _, path := range paths {
		c, err := config.Load(path)
		if err != nil {
			return nil, nil, err
		}
		name := c.Resource.Name
		if other, taken := files[name]; taken {
			return nil, nil, fmt.Errorf("%s: the resource %s is that of %s too: show only one of them", path, name, other)
		}
		files[name] = path
		store, closeStore, err := c.OpenStore(ctx)
		if err != nil {
			return nil, nil, err
		}
		closers, list = append(closers, closeStore), append(list, scalingview.New(store, name))
	}
	return scalingview.Join(list...), closeAll, nil
}

// closeSoon closes something even if ctx has ended, within a bounded time: a store in Azure may
// not answer.
func closeSoon(ctx context.Context, close func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	return close(ctx)
}

// auditOf returns the audit of a pipeline, or why there is none.
func auditOf(p Pipeline, group string) (run func(context.Context, func(int64)) (*audit.Report, error), unaudited string, err error) {
	by := p.Audit
	switch {
	case p.Unaudited != "":
		return nil, p.Unaudited, nil
	case by == nil:
		if _, err := p.Pipeline.Lineage(); err != nil {
			return nil, fmt.Sprintf("Its events cannot be checked one by one: %v.", err), nil
		}
		by = func(ctx context.Context, group string, progress func(int64)) (*audit.Report, error) {
			return targetaudit.Run(ctx, p.Pipeline, targetaudit.Config{ConsumerGroup: group, Audit: audit.Config{Progress: progress}})
		}
	}
	if p.Pipeline.System == pipeline.EventHubs && group == p.Pipeline.Group.Name {
		return nil, "", usage.Errorf("--web-audit-group %s is the pipeline's own consumer group, and the hub allows it no second reader: name another group", group)
	}
	return func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
		report, err := by(ctx, group, progress)
		if errors.Is(err, sluice.ErrRefused) {
			err = fmt.Errorf("read with consumer group %s: %w", group, err)
		}
		return report, err
	}, "", nil
}

// Options adds what the dashboard needs to the options of a pipeline's consumer, and returns them.
func (d *Dashboard) Options(name string, opts *pipeline.Options) *pipeline.Options {
	if d != nil {
		p := d.shown[name]
		opts.Observer, opts.Source = driver.Observers(opts.Observer, p.Meter), p.Pausable
	}
	return opts
}

// Warn shows the warnings of a pipeline.
func (d *Dashboard) Warn(name string, warnings []health.Warning) {
	if d != nil {
		d.web.Warn(name, warnings)
	}
}

// String is the dashboard's URL, and its certificate's fingerprint if that is self-signed.
func (d *Dashboard) String() string { return d.server.String() }

// Close stops the dashboard and waits for it.
func (d *Dashboard) Close() {
	if d != nil {
		d.stop()
		d.serving.Wait()
	}
}
