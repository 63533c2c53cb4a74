package flights

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline/web"
)

// AuditGroup is the consumer group that audits read with, unless another is named.
const AuditGroup = "sluice-audit"

// Serve serves a dashboard of the demo at an address of this machine.
func Serve(ctx context.Context, d *Demo, address string, log *slog.Logger) (*View, error) {
	topic, err := d.Source.Describe(ctx)
	if err != nil {
		return nil, err
	}
	meter, pausable := web.NewMeter(), web.NewPausableSource(d.Source)
	dashboard, err := web.New([]web.Pipeline{{
		Name: "flights", Group: topic.Group, Source: d.Source, Leases: d.store.Leases(), Checkpoints: d.Checkpoints, DeadLetters: d.DeadLetters,
		Meter: meter, Pausable: pausable,
		Audit: func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
			return d.HubAudit(ctx, AuditGroup, progress)
		},
	}}, &web.Config{Dir: filepath.Join(d.Dir, "web"), Log: log})
	if err != nil {
		return nil, err
	}
	server, err := dashboard.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("--web %s: %w: choose a free port of this machine, such as 127.0.0.1:0", address, err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		if err := server.Serve(serving); err != nil {
			log.Error("dashboard stopped", "error", err)
		}
	})
	return &View{Address: server.String(), Observer: meter, Source: pausable, Close: func() { stop(); done.Wait() }}, nil
}
