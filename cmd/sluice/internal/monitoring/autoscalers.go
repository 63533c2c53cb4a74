package monitoring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
)

// Autoscalers has the metrics and probes of the autoscalers of one process. It is safe for
// concurrent use.
type Autoscalers struct {
	actions, errors, decisions metric.Int64Counter

	mu    sync.Mutex
	files map[string]*scalerFile // by the path
}

var _ config.Watch = (*Autoscalers)(nil)

// scalerFile is the state of a file's autoscaler.
type scalerFile struct {
	resource string // empty: the file has never been valid
	limits   autoscale.Limits
	role     config.Role
	moved    time.Time // when it last took the lease, read, counted or decided, tried to, or had its turn to

	instances, wanted int
	counted           bool
	last              *autoscale.Record // the last decision
	values            map[string]autoscale.Point
}

// Autoscalers returns the metrics and probes of autoscalers, which the process then serves
// instead of those of pipelines.
func (m *Monitoring) Autoscalers(files ...string) (*Autoscalers, error) {
	a := &Autoscalers{files: map[string]*scalerFile{}}
	for _, path := range files {
		a.files[path] = &scalerFile{role: config.Stopped, values: map[string]autoscale.Point{}}
	}
	var meter metric.Meter = noop.Meter{}
	if m.provider != nil {
		meter = m.provider.Meter("github.com/sluice-go/sluice/autoscale")
	}
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter("sluice.autoscale."+name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	a.actions = counter("actions", "{action}", "Actions that were completed, by outcome: succeeded or failed.")
	a.errors = counter("errors", "{error}", "Failed operations: read of a metric, count of the instances, or scale, an attempt of an action.")
	a.decisions = counter("decisions", "{decision}", "Decisions, by their kind (up, down, hold) and cause.")
	errs = append(errs, a.observe(meter))
	m.mu.Lock()
	m.autoscalers = a
	m.mu.Unlock()
	return a, errors.Join(errs...)
}

// Keys of the attributes.
const (
	resourceKey = attribute.Key("sluice.autoscale.resource")
	metricKey   = attribute.Key("sluice.autoscale.metric")
)

// observe registers the gauges.
func (a *Autoscalers) observe(meter metric.Meter) error {
	var errs []error
	gauge := func(name, unit, description string) metric.Float64ObservableGauge {
		g, err := meter.Float64ObservableGauge("sluice.autoscale."+name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	role := gauge("role", "", "1 for the role of this process: active, standby, or stopped if the file is not valid or cannot be opened.")
	lowest := gauge("instances.min", "{instance}", "The least instances that the rule allows.")
	highest := gauge("instances.max", "{instance}", "The most instances that the rule allows.")
	instances := gauge("instances", "{instance}", "Instances that the target reports.")
	wanted := gauge("instances.wanted", "{instance}", "Instances that the last decision wants.")
	decision := gauge("decision", "", "1 for the kind and the cause of the last decision.")
	round := gauge("round.time", "s", "When the last decision was made, in seconds since 1970.")
	value := gauge("metric.value", "", "The newest value of a metric.")
	age := gauge("metric.age", "s", "The age of the newest value of a metric.")
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		for path, f := range a.files {
			of := resourceKey.String(cmp.Or(f.resource, path))
			at := metric.WithAttributes(of)
			for _, r := range []config.Role{config.Active, config.Standby, config.Stopped} {
				o.ObserveFloat64(role, map[bool]float64{true: 1}[r == f.role], metric.WithAttributes(of, attribute.String("sluice.autoscale.role", string(r))))
			}
			if f.role == config.Stopped {
				continue
			}
			o.ObserveFloat64(lowest, float64(f.limits.Min), at)
			o.ObserveFloat64(highest, float64(f.limits.Max), at)
			if f.role != config.Active {
				continue
			}
			if f.counted {
				o.ObserveFloat64(instances, float64(f.instances), at)
			}
			if f.last != nil {
				o.ObserveFloat64(wanted, float64(f.wanted), at)
				o.ObserveFloat64(decision, 1, metric.WithAttributes(append(kindAndCause(f.last), of)...))
				o.ObserveFloat64(round, float64(f.last.Time.UnixMilli())/1000, at)
			}
			for name, p := range f.values {
				with := metric.WithAttributes(of, metricKey.String(name))
				o.ObserveFloat64(value, p.Value, with)
				o.ObserveFloat64(age, time.Since(p.Time).Seconds(), with)
			}
		}
		return nil
	}, role, lowest, highest, instances, wanted, decision, round, value, age)
	return errors.Join(append(errs, err)...)
}

func kindAndCause(r *autoscale.Record) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("sluice.autoscale.decision.kind", string(r.Kind)),
		attribute.String("sluice.autoscale.decision.cause", string(r.Cause)),
	}
}

// each calls fn with the files of a resource.
func (a *Autoscalers) each(resource string, fn func(f *scalerFile)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.files {
		if f.resource == resource {
			fn(f)
		}
	}
}

// OnRole implements [config.Watch].
func (a *Autoscalers) OnRole(file, resource string, limits autoscale.Limits, role config.Role) {
	a.mu.Lock()
	f := a.files[file]
	if f == nil {
		a.mu.Unlock()
		return
	}
	known := f.resource
	if resource != "" {
		f.resource, f.limits = resource, limits
	}
	if f.role != role { // what an earlier role has left is out of date
		f.last, f.counted, f.values = nil, false, map[string]autoscale.Point{}
	}
	f.role, f.moved = role, time.Now()
	a.mu.Unlock()
	if resource == "" || resource == known {
		return
	}
	// Counters begin at 0, so that the first increase is seen.
	of := resourceKey.String(resource)
	for _, outcome := range []string{"succeeded", "failed"} {
		a.actions.Add(context.Background(), 0, metric.WithAttributes(of, attribute.String("sluice.autoscale.outcome", outcome)))
	}
}

// OnRecord counts a record of the decision log.
func (a *Autoscalers) OnRecord(r autoscale.Record) {
	ctx, of := context.Background(), resourceKey.String(r.Resource)
	switch r.Kind {
	case autoscale.ActionSucceeded, autoscale.ActionFailed:
		a.actions.Add(ctx, 1, metric.WithAttributes(of, attribute.String("sluice.autoscale.outcome", string(r.Kind))))
		return
	}
	a.decisions.Add(ctx, 1, metric.WithAttributes(append(kindAndCause(&r), of)...))
	a.each(r.Resource, func(f *scalerFile) { f.last, f.wanted, f.moved = &r, r.Wanted, time.Now() })
}

// OnReading implements [config.Watch].
func (a *Autoscalers) OnReading(resource string, p autoscale.Point, err error) {
	if err != nil {
		a.fail(resource, "read", err, metricKey.String(p.Metric))
		return
	}
	a.each(resource, func(f *scalerFile) {
		f.moved = time.Now()
		if p.State == autoscale.Active {
			f.values[p.Metric] = p
		} else {
			delete(f.values, p.Metric) // it has been switched off
		}
	})
}

// OnCount implements [config.Watch].
func (a *Autoscalers) OnCount(resource string, instances int, err error) {
	if err != nil {
		a.fail(resource, "count", err)
		return
	}
	a.each(resource, func(f *scalerFile) { f.instances, f.counted, f.moved = instances, true, time.Now() })
}

// OnAttempt implements [config.Watch].
func (a *Autoscalers) OnAttempt(action autoscale.Action, err error) {
	if err != nil {
		a.fail(action.Resource, "scale", err)
	}
}

// OnRound implements [config.Watch].
func (a *Autoscalers) OnRound(resource string) {
	a.each(resource, func(f *scalerFile) { f.moved = time.Now() })
}

func (a *Autoscalers) fail(resource, operation string, err error, more ...attribute.KeyValue) {
	a.each(resource, func(f *scalerFile) { f.moved = time.Now() })
	a.errors.Add(context.Background(), 1, metric.WithAttributes(append(more, resourceKey.String(resource),
		attribute.String("sluice.autoscale.operation", operation), attribute.String("error.type", errorType(err)))...))
}

// errorType is one of a few values for an error, as error.type needs it.
func errorType(err error) string {
	var timeout interface{ Timeout() bool }
	var response *azcore.ResponseError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, autoscale.ErrNotHeld):
		return "lease_not_held"
	case errors.As(err, &response):
		return strconv.Itoa(response.StatusCode)
	}
	return "_OTHER"
}

// liveFor is how long an autoscaler may do nothing, if its interval is not longer.
const liveFor = 5 * time.Minute

// live returns an error if the autoscaler makes no progress.
func (f *scalerFile) live() error {
	if bound := max(liveFor, 3*f.limits.Interval); f.role != config.Stopped && time.Since(f.moved) > bound {
		return fmt.Errorf("%s: nothing read, counted or decided for %v", f.resource, time.Since(f.moved).Truncate(time.Second))
	}
	return nil
}

// ready returns an error if the process works neither on the resource nor stands by.
func (f *scalerFile) ready(path string) error {
	if f.role == config.Stopped {
		return fmt.Errorf("%s: does not run: see the log", cmp.Or(f.resource, path))
	}
	return nil
}

// ServeHTTP answers GET /livez and /readyz with 200 or 503, and a line for each resource.
func (a *Autoscalers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/livez" && r.URL.Path != "/readyz" {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	a.mu.Lock()
	defer a.mu.Unlock()
	status, text := http.StatusOK, ""
	for _, path := range slices.Sorted(maps.Keys(a.files)) {
		f := a.files[path]
		err := f.live()
		if r.URL.Path == "/readyz" {
			err = f.ready(path)
		}
		if err != nil {
			status, text = http.StatusServiceUnavailable, text+err.Error()+"\n"
		} else {
			text += fmt.Sprintf("%s: %s\n", cmp.Or(f.resource, path), f.role)
		}
	}
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}
