package autoscale

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// CollectorConfig holds the options of a [Collector]. The zero value takes every
// default.
type CollectorConfig struct {
	// Interval is the interval between readings. Default: 1 min.
	Interval time.Duration
	// Timeout bounds each call of a source. Default: Interval, at most 30 s.
	Timeout time.Duration
	// OnReading is called with each reading, and with its error if it failed: for several
	// metrics at the same time. It must return soon.
	OnReading func(Point, error)
	// Clock replaces the system's clock in tests.
	Clock Clock
	// Log receives failures. Default: nothing is logged.
	Log *slog.Logger
}

// Collector reads the metrics of a resource at an interval and sends them as
// points; all points of a round have the same time. A metric that cannot be read
// is sent as a point with the state Failed.
type Collector struct {
	resource string
	sources  map[string]Source
	metrics  Queue
	cfg      CollectorConfig
	unsent   [][]byte
}

// NewCollector returns a collector that reads a resource's metrics from sources, by
// name, and sends them to the queue metrics. It does not close the sources.
func NewCollector(resource string, sources map[string]Source, metrics Queue, cfg *CollectorConfig) *Collector {
	c := &Collector{resource: resource, sources: sources, metrics: boundedQueue{metrics}}
	if cfg != nil {
		c.cfg = *cfg
	}
	c.cfg.Interval = cmp.Or(c.cfg.Interval, time.Minute)
	c.cfg.Timeout = cmp.Or(c.cfg.Timeout, min(c.cfg.Interval, 30*time.Second))
	c.cfg.Clock = clockOr(c.cfg.Clock)
	c.cfg.Log = logOr(c.cfg.Log).With("resource", resource)
	return c
}

// Run reads the metrics at once and then at the interval, until ctx ends; then it
// returns nil.
func (c *Collector) Run(ctx context.Context) error {
	for next := c.cfg.Clock.Elapsed(); ; {
		points := c.Read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.send(ctx, points)
		next = max(next+c.cfg.Interval, c.cfg.Clock.Elapsed()) // a round that took longer than the interval is not made up for
		if c.cfg.Clock.Sleep(ctx, next-c.cfg.Clock.Elapsed()) != nil {
			return nil
		}
	}
}

// Read reads every metric once, concurrently, and returns the points in the order
// of the metrics' names.
func (c *Collector) Read(ctx context.Context) []Point {
	names := slices.Sorted(maps.Keys(c.sources))
	points := make([]Point, len(names))
	now := c.cfg.Clock.Wall().UTC()
	var reading sync.WaitGroup
	for i, name := range names {
		reading.Go(func() {
			points[i] = c.point(ctx, name, now)
		})
	}
	reading.Wait()
	return points
}

func (c *Collector) point(ctx context.Context, metric string, now time.Time) (p Point) {
	var err error
	if c.cfg.OnReading != nil {
		defer func() { c.cfg.OnReading(p, err) }()
	}
	p = Point{Resource: c.resource, Metric: metric, Time: now}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, timeoutError(fmt.Sprintf("no answer within %v", c.cfg.Timeout)))
	defer cancel()
	var r Reading
	r, err = read(ctx, c.sources[metric])
	switch {
	case err == nil && r.State == Active && !inRange(r.Value):
		err = fmt.Errorf("%v is not a number between %v and %v", r.Value, -MaxValue, MaxValue)
	case err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		err = context.Cause(ctx)
	}
	if err != nil {
		p.State, p.Cause = Failed, oneLine(err)
		return p
	}
	p.State = r.State
	if r.State == Active {
		p.Value = r.Value
	}
	return p
}

// read calls a source. A panic becomes an error.
func read(ctx context.Context, s Source) (r Reading, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the source panicked: %v", r)
		}
	}()
	return s.Read(ctx)
}

// maxUnsent is how many points are kept while the queue cannot be reached; beyond
// that the oldest are dropped.
const maxUnsent = 1000

// send sends points, together with those that could not be sent before.
func (c *Collector) send(ctx context.Context, points []Point) {
	for _, p := range points {
		if p.State == Failed {
			c.cfg.Log.Warn("reading metric failed", "metric", p.Metric, "error", p.Cause)
		}
		body, err := json.Marshal(p)
		if err == nil {
			c.unsent = append(c.unsent, body)
		}
	}
	if extra := len(c.unsent) - maxUnsent; extra > 0 {
		c.unsent = slices.Delete(c.unsent, 0, extra)
	}
	err := c.sendUnsent(ctx)
	if err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("sending metrics failed, keeping them for the next round", "points", len(c.unsent), "error", err)
	}
}

// sendUnsent sends in batches: the bound of a call is too short for maxUnsent points on
// a slow connection.
func (c *Collector) sendUnsent(ctx context.Context) error {
	for len(c.unsent) > 0 {
		n := min(len(c.unsent), batchSize)
		if err := c.metrics.Send(ctx, c.unsent[:n]...); err != nil {
			return err
		}
		c.unsent = c.unsent[n:]
	}
	c.unsent = nil
	return nil
}

// maxLine is the length in bytes of an error's text in a point or an outcome.
const maxLine = 500

// oneLine returns an error's text as one line of bounded length.
func oneLine(err error) string { return cmp.Or(line(err.Error()), "error without a message") }

// line returns a text as one line of bounded length, without control characters. Texts
// in messages are treated so by those who receive them too: anybody may have sent them,
// and they end up in the state, in the environment of programs and on terminals.
func line(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}

func logOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

var errBadMessage = errors.New("invalid message")
