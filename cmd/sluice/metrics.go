package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/watch"
)

// metricsFlags say where metrics and probes are served.
type metricsFlags struct{ address string }

func (m *metricsFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.address, "metrics", "", "serve /metrics (Prometheus), /livez and /readyz over plain HTTP at this `address`, such as 127.0.0.1:9090")
}

// watchEvery is how often a group is looked at for warnings.
const watchEvery = 30 * time.Second

// gauges is what a process tells those who watch it: metrics and probes if
// they are asked for, warnings in the log always.
type gauges struct {
	app      *app
	provider *metric.MeterProvider // nil: no metrics
	traces   *trace.TracerProvider // nil: no spans
	warnings *prometheus.GaugeVec
	server   *http.Server
	address  net.Addr

	stop    context.CancelFunc
	watched context.Context
	work    sync.WaitGroup

	mu     sync.Mutex
	health health.Together // of each work
}

// gauges begins to serve.
func (a *app) gauges(ctx context.Context, flags *metricsFlags) (*gauges, error) {
	g := &gauges{app: a, warnings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_warnings", Help: "1 for each partition of a warning that a person must see, by kind.",
	}, []string{"consumer", "kind"})}
	g.watched, g.stop = context.WithCancel(ctx)
	if err := g.trace(ctx); err != nil {
		g.stop()
		return nil, err
	}
	if flags.address == "" {
		return g, nil
	}
	listener, err := net.Listen("tcp", flags.address)
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("--metrics %s: %w", flags.address, errors.Unwrap(err))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(g.warnings, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		g.stop()
		return nil, errors.Join(fmt.Errorf("metrics: %w", err), listener.Close())
	}
	g.provider = metric.NewMeterProvider(metric.WithReader(reader))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/", g.probe)
	g.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	g.address = listener.Addr()
	g.work.Go(func() {
		if err := g.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("metrics and probes are served no more", "error", err)
		}
	})
	a.log.Info("metrics", "at", fmt.Sprintf("http://%s/metrics", g.address))
	return g, nil
}

// close ends what serves and what watches, and waits for it.
func (g *gauges) close() {
	g.stop()
	if g.server != nil {
		_ = g.server.Close()
	}
	g.work.Wait()
	g.flush()
}

// join adds a work's metrics and warnings, which the dashboard shows too.
func (g *gauges) join(w *work, b *board) error {
	if !w.InMemory {
		watcher := watch.New(w.parts.Source, w.parts.Leases, w.parts.Checkpoints, nil)
		g.work.Go(func() {
			watcher.Run(g.watched, watchEvery, func(l watch.Look) {
				g.warn(w, l)
				b.warn(w.Name, l.Warnings)
			})
		})
	}
	if g.provider == nil {
		return nil
	}
	metrics, err := sluiceotel.New(&sluiceotel.Config{Group: w.Group, Meter: g.provider})
	if err != nil {
		return err
	}
	probes := health.New(&health.Config{LeaseFor: w.LeaseFor()})
	w.observer = sluice.Observers(w.observer, metrics, probes)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.health = append(g.health, probes)
	return nil
}

// probe answers for all works.
func (g *gauges) probe(out http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	list := slices.Clone(g.health)
	g.mu.Unlock()
	list.ServeHTTP(out, r)
}

// warn tells what a look has found.
func (g *gauges) warn(w *work, l watch.Look) {
	for _, x := range l.Began {
		w.log.Warn(x.Text, "kind", string(x.Kind))
	}
	for _, x := range l.Ended {
		w.log.Info("no longer so", "kind", string(x.Kind), "partitions", x.Partitions)
	}
	count := map[watch.Kind]int{}
	for _, x := range l.Warnings {
		count[x.Kind] += len(x.Partitions)
	}
	for _, kind := range watch.Kinds {
		g.warnings.WithLabelValues(w.Name, string(kind)).Set(float64(count[kind]))
	}
	if l.Err != nil {
		g.app.log.Debug("could not look for warnings", "error", l.Err)
	}
}
