// Package monitoring serves the metrics and probes of the pipelines that a process runs, exports
// their metrics and spans by OTLP, and logs their warnings.
package monitoring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/sluiceotel"
)

// watchEvery is the time between two checks of a consumer group for warnings.
const watchEvery = 30 * time.Second

// Monitoring watches the pipelines of one process.
type Monitoring struct {
	log      *slog.Logger
	provider *metric.MeterProvider // nil: no metrics
	traces   *trace.TracerProvider // nil: no spans
	resource *resource.Resource
	server   *http.Server

	stop    context.CancelFunc
	watched context.Context
	work    sync.WaitGroup

	mu          sync.Mutex
	health      health.Combined // one for each pipeline
	autoscalers *Autoscalers    // nil: the process runs none
}

// Start begins to export spans and metrics, if the OTEL_ variables name a collector, and serves
// /metrics, /livez and /readyz on listener. A nil listener means that neither metrics nor probes
// are served; warnings are logged all the same. Close closes listener.
func Start(ctx context.Context, listener net.Listener, log *slog.Logger) (*Monitoring, error) {
	m := &Monitoring{log: log}
	m.watched, m.stop = context.WithCancel(ctx)
	readers, err := m.startExport(ctx)
	if err == nil && listener != nil {
		var reader metric.Reader
		reader, err = m.serve(listener)
		readers = append(readers, reader)
	}
	if err != nil {
		m.stop()
		m.flush() // ends what exports spans
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return nil, err
	}
	if len(readers) > 0 {
		// The SDK's limit of 2000 series would leave out those of a hub with 400 partitions. Their
		// number is bounded by that of the partitions.
		options := []metric.Option{metric.WithResource(m.resource), metric.WithCardinalityLimit(0)}
		for _, r := range readers {
			options = append(options, metric.WithReader(r))
		}
		m.provider = metric.NewMeterProvider(options...)
	}
	return m, nil
}

// serve serves metrics and probes. It returns the reader of the metrics.
func (m *Monitoring) serve(listener net.Listener) (metric.Reader, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/", m.serveProbe)
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	m.work.Go(func() {
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics and probes stopped", "error", err)
		}
	})
	m.log.Info("metrics", "at", fmt.Sprintf("http://%s/metrics", listener.Addr()))
	return reader, nil
}

// Close stops serving and watching, waits for both, and sends the last spans and metrics.
func (m *Monitoring) Close() {
	m.stop()
	if m.server != nil {
		_ = m.server.Close()
	}
	m.work.Wait()
	m.flush()
}

// Pipeline is a pipeline to monitor.
type Pipeline struct {
	*pipeline.Pipeline
	Parts *pipeline.Parts
	Log   *slog.Logger
	// OnWarnings receives the present warnings after each check.
	OnWarnings func([]health.Warning)
}

// Add begins to watch a pipeline for warnings. It returns the observer that its consumer needs
// for metrics and probes, nil if they are not served.
func (m *Monitoring) Add(p Pipeline) (driver.Observer, error) {
	if m.provider == nil {
		m.watch(p, &health.WatcherConfig{}, func(health.Report) {})
		return nil, nil
	}
	metrics, err := sluiceotel.New(&sluiceotel.Config{Group: p.Parts.Group, System: string(p.System), Meter: m.provider})
	if err != nil {
		return nil, err
	}
	m.watch(p, &health.WatcherConfig{DeadLetters: p.Parts.DeadLetters}, metrics.Watch)
	probes := health.NewProbes(&health.ProbesConfig{LeaseFor: p.LeaseFor()})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health = append(m.health, probes)
	return driver.Observers(metrics, probes), nil
}

// serveProbe answers for all pipelines together.
func (m *Monitoring) serveProbe(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	list, autoscalers := slices.Clone(m.health), m.autoscalers
	m.mu.Unlock()
	if autoscalers != nil {
		autoscalers.ServeHTTP(w, r)
		return
	}
	list.ServeHTTP(w, r)
}

// watch checks the group of a pipeline from outside until Close. A rollup has neither
// leases nor checkpoints that are stored.
func (m *Monitoring) watch(p Pipeline, cfg *health.WatcherConfig, export func(health.Report)) {
	if p.Rollup {
		return
	}
	watcher := health.NewWatcher(p.Parts.Source, p.Parts.Leases, p.Parts.Checkpoints, cfg)
	uncounted := false
	m.work.Go(func() {
		watcher.Run(m.watched, watchEvery, func(l health.Report) {
			m.warn(p, l)
			switch {
			case l.DeadLetters != nil:
				uncounted = false
			case l.DeadLetterErr != nil && !uncounted:
				uncounted = true
				p.Log.Warn("dead letters not counted, retrying", "error", l.DeadLetterErr)
			}
			export(l)
			p.OnWarnings(l.Warnings)
		})
	})
}

// warn logs the warnings of a check.
func (m *Monitoring) warn(p Pipeline, l health.Report) {
	for _, x := range l.Began {
		p.Log.Warn(x.Text, "kind", string(x.Kind))
	}
	for _, x := range l.Ended {
		p.Log.Info("warning resolved", "kind", string(x.Kind), "partitions", x.Partitions)
	}
	if l.Err != nil {
		m.log.Debug("check for warnings failed", "error", l.Err)
	}
}
