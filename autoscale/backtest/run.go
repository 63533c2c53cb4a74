package backtest

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Model computes how the backlog would have moved with another number of instances.
// The zero value is no model: the metrics stay as recorded.
type Model struct {
	// Backlog is the metric that the model computes. Default: the resource's only
	// metric.
	Backlog string
	// DrainRate is how much of the backlog an instance processes per second. 0: no
	// model.
	DrainRate float64
	// Load is the column with what has arrived since the row before. Without it,
	// arrivals are computed from the recorded backlog: its growth, plus what the
	// recorded instances (the column "instances") processed meanwhile. While the
	// recorded backlog is empty, that is a lower bound.
	Load string
	// StartupTime is the time until a new instance starts to process.
	StartupTime time.Duration
	// InitialInstances is the number of instances at the start. Default: as recorded,
	// else the minimum.
	InitialInstances int
}

// Result is the outcome of a backtest.
type Result struct {
	Name       string             `json:"name,omitempty"` // set by the caller, such as the name of the rule's file
	Rule       string             `json:"rule"`
	Steps      []Step             `json:"-"`
	Decisions  []autoscale.Record `json:"decisions"` // the decisions that scaled
	Thresholds []float64          `json:"thresholds,omitempty"`
	Backlog    string             `json:"backlog,omitempty"` // the metric plotted

	MaxBacklog    float64 `json:"worst_backlog"`
	MeanBacklog   float64 `json:"mean_backlog"` // the mean over time
	FinalBacklog  float64 `json:"final_backlog"`
	InstanceHours float64 `json:"instance_hours"`
	MaxInstances  int     `json:"most_instances"`
	Actions       int     `json:"actions"`
	ScaleUps      int     `json:"ups"`
	ScaleDowns    int     `json:"downs"`
}

// Step is the result for one row of the recording.
type Step struct {
	Time      time.Time
	Backlog   float64
	Instances int // after the decision at that time
}

// Run runs a resource's rule, within its limits, on a recording. Each action succeeds
// at once. The metric that the model computes need not be in the recording. A nil
// model is the zero value.
func Run(r *autoscale.Resource, recording *Recording, model *Model) (*Result, error) {
	if model == nil {
		model = &Model{}
	}
	p, err := newSimulation(r, recording, *model)
	if err != nil {
		return nil, err
	}
	for i := range recording.Rows {
		p.row(i)
	}
	return p.finish(), nil
}

// simulation is the state of a backtest between two rows.
type simulation struct {
	resource  autoscale.Resource
	recording *Recording
	model     Model
	memory    *autoscale.ResourceState
	starting  []time.Time // when instances that were started will start to process
	backlog   float64
	result    *Result
}

func newSimulation(r *autoscale.Resource, recording *Recording, model Model) (*simulation, error) {
	limits, err := r.Limits.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	every := recording.Interval()
	if len(recording.Rows) == 0 {
		return nil, errors.New("the recording is empty")
	}
	if every > 0 && limits.Window/every+1 < time.Duration(limits.MinPoints) {
		return nil, fmt.Errorf("the recording has a value every %v: a window of %v never has the %d values that the rule needs; use a longer window or fewer points", every, limits.Window, limits.MinPoints)
	}
	p := &simulation{resource: *r, recording: recording, model: model, memory: &autoscale.ResourceState{Resource: r.Name}}
	p.resource.Limits = limits
	if p.hasModel() && model.Backlog == "" {
		if len(r.Metrics) != 1 {
			return nil, errors.New("the model needs the name of the metric that is the backlog")
		}
		p.model.Backlog = r.Metrics[0]
	}
	for _, metric := range r.Metrics {
		if !recording.Has(metric) && (!p.hasModel() || metric != p.model.Backlog) {
			return nil, fmt.Errorf("the recording has no column %s, which the rule may use", metric)
		}
	}
	switch {
	case !(model.DrainRate >= 0 && model.DrainRate <= autoscale.MaxValue):
		return nil, fmt.Errorf("a drain of %v: must be a number of at least 0", model.DrainRate)
	case model.Load != "" && !p.hasModel():
		return nil, errors.New("a load needs a drain: how much an instance processes per second")
	case model.Load != "" && !recording.Has(model.Load):
		return nil, fmt.Errorf("the recording has no column %s, which is to be the load", model.Load)
	case p.hasModel() && model.Load == "" && !recording.Has(p.model.Backlog):
		return nil, fmt.Errorf("the recording has neither the column %s, the backlog, nor a load", p.model.Backlog)
	}
	p.memory.Instances = cmp.Or(model.InitialInstances, int(recording.value(0, InstancesColumn).Value), limits.Min)
	p.result = &Result{Backlog: cmp.Or(p.model.Backlog, r.Metrics[0])}
	if text, ok := r.Rule.(fmt.Stringer); ok {
		p.result.Rule = text.String()
	}
	p.result.Thresholds = thresholds(r.Rule, p.result.Backlog)
	return p, nil
}

func (p *simulation) hasModel() bool { return p.model.DrainRate > 0 }

// thresholds returns those of a rule that has them, for the plot.
func thresholds(rule autoscale.Rule, metric string) []float64 {
	if r, ok := rule.(interface{ Thresholds(metric string) []float64 }); ok {
		return r.Thresholds(metric)
	}
	return nil
}

// row processes one row: first what has happened since the row before, then the
// decision.
func (p *simulation) row(i int) {
	now := p.recording.Rows[i].Time
	if p.hasModel() {
		p.drain(i)
	} else if cell := p.recording.value(i, p.result.Backlog); cell.State == autoscale.Active {
		p.backlog = cell.Value
	}
	m := p.memory
	m.Reported = now
	for _, metric := range p.resource.Metrics {
		cell := p.recording.value(i, metric)
		if p.hasModel() && metric == p.model.Backlog && (p.model.Load != "" || cell.State == autoscale.Active) {
			cell = Cell{Value: p.backlog}
		}
		m.AddPoint(autoscale.Point{Resource: p.resource.Name, Metric: metric, Time: now, Value: cell.Value, State: cell.State, Cause: "not recorded"})
	}
	record := p.resource.Decide(m, now, autoscale.Never)
	if record.Kind != autoscale.Hold {
		p.apply(record, now)
	}
	p.result.Steps = append(p.result.Steps, Step{Time: now, Backlog: p.backlog, Instances: m.Instances})
}

// apply carries out a decision: its action succeeds at once.
func (p *simulation) apply(record autoscale.Record, now time.Time) {
	p.result.Decisions = append(p.result.Decisions, record)
	p.result.Actions++
	if record.Kind == autoscale.Up {
		p.result.ScaleUps++
		for range record.Wanted - record.Instances {
			p.starting = append(p.starting, now.Add(p.model.StartupTime))
		}
	} else {
		p.result.ScaleDowns++
		// The instances started last stop first.
		p.starting = p.starting[:max(0, len(p.starting)-(record.Instances-record.Wanted))]
	}
	p.memory.ApplyReport(autoscale.Report{Resource: p.resource.Name, Time: now, Instances: record.Wanted,
		Outcome: &autoscale.Outcome{Number: record.Action, Time: now, Attempts: 1}}, now)
}

// drain updates the backlog from the row before to row i.
func (p *simulation) drain(i int) {
	rows := p.recording.Rows
	load := p.recording.value(i, p.model.Load)
	if i == 0 {
		p.backlog = p.recording.value(0, p.model.Backlog).Value
		if p.model.Load != "" {
			p.backlog = load.Value
		}
		return
	}
	from, to := rows[i-1].Time, rows[i].Time
	arrived := load.Value
	if p.model.Load == "" {
		arrived = p.arrived(i, to.Sub(from).Seconds())
	}
	p.backlog = max(0, p.backlog+arrived-p.capacity(from, to))
}

// capacity returns how much the instances can process between two times.
func (p *simulation) capacity(from, to time.Time) float64 {
	seconds := float64(p.memory.Instances) * to.Sub(from).Seconds()
	still := p.starting[:0]
	for _, ready := range p.starting {
		if ready.After(from) {
			seconds -= min(ready.Sub(from), to.Sub(from)).Seconds()
			still = append(still, ready)
		}
	}
	p.starting = still
	return p.model.DrainRate * seconds
}

// arrived returns how much must have arrived, by the recorded backlog.
func (p *simulation) arrived(i int, seconds float64) float64 {
	before, after := p.recording.value(i-1, p.model.Backlog), p.recording.value(i, p.model.Backlog)
	if before.State != autoscale.Active || after.State != autoscale.Active {
		return 0
	}
	grown := after.Value - before.Value
	if after.Value <= 0 {
		return max(0, grown)
	}
	n := max(p.recording.value(i-1, InstancesColumn).Value, 0)
	if !p.recording.Has(InstancesColumn) {
		n = float64(cmp.Or(p.model.InitialInstances, p.resource.Limits.Min))
	}
	return max(0, grown+n*p.model.DrainRate*seconds)
}

// finish computes the summary.
func (p *simulation) finish() *Result {
	r := p.result
	var area, seconds float64
	for i, s := range r.Steps {
		r.MaxBacklog, r.MaxInstances = max(r.MaxBacklog, s.Backlog), max(r.MaxInstances, s.Instances)
		if i+1 < len(r.Steps) {
			next := r.Steps[i+1]
			d := next.Time.Sub(s.Time).Seconds()
			seconds += d
			area += d * (s.Backlog + next.Backlog) / 2
			r.InstanceHours += d / 3600 * float64(s.Instances)
		}
	}
	r.FinalBacklog = r.Steps[len(r.Steps)-1].Backlog
	r.MeanBacklog = r.FinalBacklog
	if seconds > 0 {
		r.MeanBacklog = area / seconds
	}
	return r
}
