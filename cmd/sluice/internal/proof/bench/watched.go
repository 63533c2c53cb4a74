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

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/pipeline"
	"github.com/sluice-go/sluice/sluiceotel"
	"github.com/sluice-go/sluice/web"
)

// onlookers is all that may look at a consumer at once: metrics that are
// scraped, spans that are made, probes, and the dashboard with a browser on its
// live stream.
type onlookers struct {
	stop context.CancelFunc
	work sync.WaitGroup
	last []func() error

	mu    sync.Mutex
	looks map[string]int // answers that they had
}

// look adds the onlookers to a pipeline's options.
func look(ctx context.Context, p *pipeline.Pipeline, parts *pipeline.Parts, opts *pipeline.Options) (_ *onlookers, err error) {
	l := &onlookers{looks: map[string]int{}}
	ctx, l.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.leave())
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
	l.last = append(l.last, func() error { served.Close(); return nil }, func() error { return spans.Shutdown(context.Background()) })

	dir, err := os.MkdirTemp("", "sluice-bench-web")
	if err != nil {
		return nil, err
	}
	l.last = append(l.last, func() error { return os.RemoveAll(dir) })
	shown := web.Pipeline{
		Name: p.Name, Group: p.Group, Source: parts.Source, Leases: parts.Leases, Checkpoints: parts.Checkpoints, DeadLetters: parts.DeadLetters,
		Meter: web.NewMeter(), Gate: web.NewGate(opts.Source),
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
	opts.Observer = sluice.Observers(opts.Observer, metrics, health.New(nil), shown.Meter)
	opts.Source, opts.Traces = shown.Gate, spans

	// The certificate is the dashboard's own, made a moment ago.
	browser := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	l.work.Go(func() { l.follow(ctx, browser, server.URL()+"api/live") })
	l.work.Go(func() { l.scrape(ctx, served.URL) })
	return l, nil
}

// scrape asks for the metrics every second.
func (l *onlookers) scrape(ctx context.Context, url string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := answer(ctx, http.DefaultClient, url, func(n int) { l.note("scrape", n) }); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow reads a stream as long as it lasts.
func (l *onlookers) follow(ctx context.Context, client *http.Client, url string) {
	_ = answer(ctx, client, url, func(n int) { l.note("browser", n) })
	client.CloseIdleConnections()
}

func (l *onlookers) note(who string, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks[who] += bytes
}

// answer reads an answer and tells how much came, as it comes.
func answer(ctx context.Context, client *http.Client, url string, came func(int)) error {
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

// leave ends the onlookers. It fails if they saw nothing.
func (l *onlookers) leave() error {
	l.stop()
	l.work.Wait()
	var errs []error
	for _, last := range l.last {
		errs = append(errs, last())
	}
	for _, who := range []string{"scrape", "browser"} {
		if l.looks[who] == 0 {
			errs = append(errs, fmt.Errorf("the onlookers: the %s saw nothing", who))
		}
	}
	return errors.Join(errs...)
}
