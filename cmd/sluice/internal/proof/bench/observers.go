//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluiceotel"
)

// observers is everything that may observe a consumer at once: metrics that are
// scraped, spans that are made, probes, and the dashboard with a browser on its
// live stream.
type observers struct {
	stop    context.CancelFunc
	work    sync.WaitGroup
	cleanup []func() error

	mu      sync.Mutex
	answers map[string]int // bytes that each has received
}

// observe adds all observers to a pipeline's options.
func observe(ctx context.Context, p *pipeline.Pipeline, parts *pipeline.Parts, opts *pipeline.Options) (_ *observers, err error) {
	l := &observers{answers: map[string]int{}}
	ctx, l.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	metrics, err := sluiceotel.New(&sluiceotel.Config{Group: p.Group, Meter: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		return nil, err
	}
	served := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	spans := trace.NewTracerProvider(trace.WithBatcher(tracetest.NewNoopExporter()))
	l.cleanup = append(l.cleanup, func() error { served.Close(); return nil }, func() error { return spans.Shutdown(context.Background()) })

	dir, err := os.MkdirTemp("", "sluice-bench-web")
	if err != nil {
		return nil, err
	}
	l.cleanup = append(l.cleanup, func() error { return os.RemoveAll(dir) })
	shown := web.Pipeline{
		Name: p.Name, Group: p.Group, Source: parts.Source, Leases: parts.Leases, Checkpoints: parts.Checkpoints, DeadLetters: parts.DeadLetters,
		Meter: web.NewMeter(), Pausable: web.NewPausableSource(opts.Source),
	}
	board, err := web.New([]web.Pipeline{shown}, &web.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	server, err := board.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.work.Go(func() { _ = server.Serve(ctx) })
	opts.Observer = driver.Observers(opts.Observer, metrics, health.NewProbes(nil), shown.Meter)
	opts.Source, opts.TracerProvider = shown.Pausable, spans

	// The dashboard has just made its own self-signed certificate.
	browser := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	l.work.Go(func() { l.follow(ctx, browser, server.URL()+"api/live") })
	l.work.Go(func() { l.scrape(ctx, served.URL) })
	return l, nil
}

// scrape reads the metrics every second.
func (l *observers) scrape(ctx context.Context, url string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := readAnswer(ctx, http.DefaultClient, url, func(n int) { l.count("scrape", n) }); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow reads the dashboard's stream until it ends.
func (l *observers) follow(ctx context.Context, client *http.Client, url string) {
	_ = readAnswer(ctx, client, url, func(n int) { l.count("browser", n) })
	client.CloseIdleConnections()
}

func (l *observers) count(who string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[who] += bytes
}

// readAnswer reads an answer, and calls came with the size of each part as it arrives.
func readAnswer(ctx context.Context, client *http.Client, url string, came func(int)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	part := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(part)
		came(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// close stops the observers. It fails if one of them received nothing.
func (l *observers) close() error {
	l.stop()
	l.work.Wait()
	var errs []error
	for _, last := range l.cleanup {
		errs = append(errs, last())
	}
	for _, who := range []string{"scrape", "browser"} {
		if l.answers[who] == 0 {
			errs = append(errs, fmt.Errorf("the observer %s received nothing", who))
		}
	}
	return errors.Join(errs...)
}
