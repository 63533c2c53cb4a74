package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/scalingview"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/watch"
	"github.com/sluice-go/sluice/web"
)

// webFlags are those of commands that have a dashboard. Add and addScaling
// declare them: the second is for those without an autoscaler of their own.
type webFlags struct {
	address, cert, key, tokenEnv, autoscaler, auditGroup string
	acme                                                 []string
}

func (w *webFlags) add(f *pflag.FlagSet) {
	f.StringVar(&w.address, "web", "", "show a dashboard at this `address` over HTTPS, like 127.0.0.1:8443")
	f.StringVar(&w.cert, "web-cert", "", "its certificate, a PEM `file` (default one of its own)")
	f.StringVar(&w.key, "web-key", "", "its certificate's key, a PEM `file`")
	f.StringSliceVar(&w.acme, "web-acme", nil, "obtain certificates for these public `names` from Let's Encrypt, whose terms this accepts; --web must be their port 443")
	f.StringVar(&w.tokenEnv, "web-token-env", "", "the environment `variable` that holds the token to sign in with; needed beyond loopback")
	f.StringVar(&w.auditGroup, "web-audit-group", defaultAuditGroup, "`name` of the consumer group that audits from the dashboard read by")
}

func (w *webFlags) addScaling(f *pflag.FlagSet) {
	f.StringVar(&w.autoscaler, "web-autoscale", "", "show the decisions of the autoscaler of this `CONFIG.yaml` too, wherever it runs")
}

// defaultAuditGroup is that of sluice audit hub.
const defaultAuditGroup = "sluice-audit"

// config checks the flags and reads the token.
func (w *webFlags) config() (*web.Config, error) {
	cfg := &web.Config{CertFile: w.cert, KeyFile: w.key, ACME: w.acme}
	switch {
	case w.address == "" && (w.cert != "" || w.key != "" || w.tokenEnv != "" || w.autoscaler != "" || w.auditGroup != defaultAuditGroup || len(w.acme) > 0):
		return nil, misused("flags that begin with --web- go with --web")
	case w.address == "":
		return nil, nil
	case (w.cert == "") != (w.key == ""):
		return nil, misused("--web-cert and --web-key go together")
	case w.cert != "" && len(w.acme) > 0:
		return nil, misused("--web-acme goes without --web-cert")
	}
	if w.tokenEnv != "" {
		cfg.Token = strings.TrimSpace(os.Getenv(w.tokenEnv))
		if cfg.Token == "" {
			return nil, fmt.Errorf("--web-token-env: the environment variable %s is empty: put the dashboard's token into it", w.tokenEnv)
		}
	}
	return cfg, nil
}

// board is a dashboard of pipelines that run; nil if there is to be none.
type board struct {
	server *web.Server
	web    *web.Dashboard
	shown  map[string]*web.Pipeline
	done   func(context.Context) error // closes the autoscaler's state
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// seen is a pipeline that is to be shown.
type seen struct {
	name      string
	pipeline  *pipeline.Pipeline
	parts     *pipeline.Parts
	watched   bool         // somebody else looks for warnings
	elsewhere bool         // its consumers are other processes
	scaling   *web.Scaling // of these; nil if there is none
	audit     auditor      // in another way than by its rows
	unaudited string       // why it can't be audited
}

// auditor audits a pipeline as web.Pipeline's Audit does, reading the hub by a
// consumer group.
type auditor func(ctx context.Context, consumerGroup string, progress func(events int64)) (*audit.Report, error)

// board opens the dashboard of some pipelines, if the flags say so. What it
// needs to keep it keeps under dir.
func (a *app) board(ctx context.Context, flags *webFlags, dir string, pipelines ...seen) (*board, error) {
	cfg, err := flags.config()
	if err != nil || cfg == nil {
		return nil, err
	}
	cfg.Dir, cfg.Log = filepath.Join(dir, "web"), a.log
	b := &board{shown: map[string]*web.Pipeline{}, done: func(context.Context) error { return nil }}
	list := make([]web.Pipeline, len(pipelines))
	for i, s := range pipelines {
		topic, err := s.parts.Source.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("dashboard of %s: %w", s.name, err)
		}
		list[i] = web.Pipeline{
			Name: s.name, Group: topic.Group, Source: s.parts.Source, Leases: s.parts.Leases, Checkpoints: s.parts.Checkpoints, DeadLetters: s.parts.DeadLetters,
			Watched: s.watched || s.parts.DeadLetters == nil, // which is in memory
		}
		if !s.elsewhere {
			list[i].Meter, list[i].Gate = web.NewMeter(), web.NewGate(s.parts.Source)
		}
		if s.scaling != nil {
			cfg.Scaling = s.scaling
		}
		if list[i].Audit, list[i].Unaudited, err = flags.audit(&s); err != nil {
			return nil, err
		}
		b.shown[s.name] = &list[i]
	}
	if flags.autoscaler != "" {
		if cfg.Scaling, b.done, err = decisions(ctx, flags.autoscaler); err != nil {
			return nil, err
		}
	}
	if b.web, err = web.New(list, cfg); err == nil {
		b.server, err = b.web.Listen(flags.address)
	}
	switch {
	case errors.Is(err, web.ErrNoToken):
		err = fmt.Errorf("--web %s: %w: name the variable that holds one with --web-token-env, or listen at 127.0.0.1", flags.address, web.ErrNoToken)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("--web %s: %w: name another port; 0 is a free one", flags.address, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, errors.Join(err, closeSoon(ctx, b.done))
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.ended.Go(func() {
		if err := errors.Join(b.server.Serve(serving), closeSoon(serving, b.done)); err != nil {
			a.log.Error("the dashboard has ended", "error", err)
		}
	})
	return b, nil
}

// audit is what audits a pipeline, or why none can.
func (w *webFlags) audit(s *seen) (run func(context.Context, func(int64)) (*audit.Report, error), unaudited string, err error) {
	by := s.audit
	switch {
	case s.unaudited != "":
		return nil, s.unaudited, nil
	case by == nil:
		if _, err := s.pipeline.Trace(); err != nil {
			return nil, fmt.Sprintf("Its events can't be looked for one by one: %v.", err), nil
		}
		by = auditRows(s.pipeline)
	}
	group := w.auditGroup
	if group == s.pipeline.Group.Name {
		return nil, "", misused("--web-audit-group %s is the pipeline's own: the hub lets no second reader into it", group)
	}
	return func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
		report, err := by(ctx, group, progress)
		if errors.Is(err, sluice.ErrRefused) {
			err = fmt.Errorf("read by consumer group %s: %w", group, err)
		}
		return report, err
	}, "", nil
}

// auditRows audits a pipeline whose rows say which event each is of.
func auditRows(p *pipeline.Pipeline) auditor {
	return func(ctx context.Context, consumerGroup string, progress func(int64)) (*audit.Report, error) {
		ledger, err := openLedger(p)
		if err != nil {
			return nil, err
		}
		defer ledger.Close()
		source, err := p.SourceAs(consumerGroup)
		if err != nil {
			return nil, err
		}
		defer closeSoon(ctx, source.Close)
		return audit.Hub(ctx, source, ledger, p.Group, &audit.Config{Start: p.Start(), Progress: progress})
	}
}

// decisions opens the state of an autoscaler.
func decisions(ctx context.Context, path string) (*web.Scaling, func(context.Context) error, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, nil, err
	}
	store, done, err := c.OpenStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	return scalingview.New(store, c.Resource.Name), done, nil
}

// join adds what the dashboard needs to the options of a pipeline's consumer.
func (b *board) join(name string, opts *pipeline.Options) *pipeline.Options {
	if b != nil {
		p := b.shown[name]
		opts.Observer, opts.Source = sluice.Observers(opts.Observer, p.Meter), p.Gate
	}
	return opts
}

// warn shows a pipeline's warnings.
func (b *board) warn(name string, warnings []watch.Warning) {
	if b != nil {
		b.web.Warn(name, warnings)
	}
}

// String says where it is.
func (b *board) String() string {
	text := b.server.URL()
	if print := b.server.Fingerprint(); print != "" {
		text += " (certificate SHA-256 " + print[:23] + "…)"
	}
	return text
}

func (b *board) close() {
	if b != nil {
		b.stop()
		b.ended.Wait()
	}
}
