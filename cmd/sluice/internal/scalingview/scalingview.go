// Package scalingview shows an autoscaler's state on the dashboard.
package scalingview

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/pipeline/web"
)

// Reader is the part of an [autoscale.Store] that is read.
type Reader interface {
	Load(ctx context.Context, resource string) (*autoscale.ResourceState, error)
	Records(ctx context.Context, resource string, since time.Time, limit int) ([]autoscale.Record, error)
}

// New returns what the dashboard shows of the resources whose state a store
// holds.
func New(store Reader, resources ...string) *web.Scaling {
	return &web.Scaling{Resources: resources, Store: view{store}}
}

// Join returns what the dashboard shows of several autoscalers, each with a store of its
// own. No two may have a resource of the same name.
func Join(list ...*web.Scaling) *web.Scaling {
	stores := joined{}
	all := &web.Scaling{Store: stores}
	for _, s := range list {
		all.Resources = append(all.Resources, s.Resources...)
		for _, name := range s.Resources {
			stores[name] = s.Store
		}
	}
	return all
}

// joined has the store of each resource.
type joined map[string]web.ScalingStore

// State implements [web.ScalingStore].
func (j joined) State(ctx context.Context, resource string) (*web.ScalingState, error) {
	return j[resource].State(ctx, resource)
}

// Decisions implements [web.ScalingStore].
func (j joined) Decisions(ctx context.Context, resource string, since time.Time, limit int) ([]web.ScalingDecision, error) {
	return j[resource].Decisions(ctx, resource, since, limit)
}

type view struct{ store Reader }

// State implements [web.ScalingStore].
func (v view) State(ctx context.Context, resource string) (*web.ScalingState, error) {
	m, err := v.store.Load(ctx, resource)
	if err != nil {
		return nil, err
	}
	state := &web.ScalingState{
		Instances: m.Instances, Reported: m.Reported, LastUp: m.LastUp, LastDown: m.LastDown, Pending: m.Pending != nil,
		Metrics: make(map[string]web.ScalingMetric, len(m.Windows)),
	}
	for name, w := range m.Windows {
		metric := web.ScalingMetric{State: string(w.State), Cause: w.Cause, Values: make([]web.ScalingValue, len(w.Values))}
		for i, p := range w.Values {
			metric.Values[i] = web.ScalingValue(p)
		}
		state.Metrics[name] = metric
	}
	return state, nil
}

// Decisions implements [web.ScalingStore].
func (v view) Decisions(ctx context.Context, resource string, since time.Time, limit int) ([]web.ScalingDecision, error) {
	records, err := v.store.Records(ctx, resource, since, limit)
	if err != nil {
		return nil, err
	}
	list := make([]web.ScalingDecision, len(records))
	for i, r := range records {
		d := web.ScalingDecision{Sequence: r.Sequence, Time: r.Time, Kind: string(r.Kind), Instances: r.Instances, Wanted: r.Wanted, Reason: r.Reason}
		for _, f := range r.Stats {
			d.Stats = append(d.Stats, web.ScalingStats(f))
		}
		list[i] = d
	}
	return list, nil
}
