package autoscale_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// downStore is a store that cannot be reached.
type downStore struct{ autoscale.Store }

var errDown = errors.New("connection refused")

func (downStore) Load(context.Context, string) (*autoscale.ResourceState, error) { return nil, errDown }
func (downStore) Outcome(context.Context, string) (*autoscale.Outcome, error)    { return nil, errDown }
func (downStore) DeleteRecords(context.Context, string, time.Time) error         { return errDown }

// TestRoundsWhileNothingWorks: logic and scaler have their rounds, by which a probe sees that they
// live, also while no points arrive and the store is down.
func TestRoundsWhileNothingWorks(t *testing.T) {
	for _, part := range []string{"logic", "scaler"} {
		t.Run(part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rounds := 0
				resource := &autoscale.Resource{Name: "orders", Metrics: []string{"backlog"}, Rule: autoscale.ThresholdRule{},
					Limits: autoscale.Limits{Interval: 10 * time.Second, Max: 5}}
				queues := autoscale.Queues{Metrics: autoscale.NewMemoryQueue(0), Actions: autoscale.NewMemoryQueue(0), Reports: autoscale.NewMemoryQueue(0)}
				var run autoscale.Part
				var err error
				if part == "logic" {
					run, err = autoscale.NewLogic(resource, downStore{}, queues, &autoscale.LogicConfig{OnRound: func() { rounds++ }})
				} else {
					run, err = autoscale.NewScaler(resource, nil, downStore{}, queues, &autoscale.ScalerConfig{Interval: 10 * time.Second, OnRound: func() { rounds++ }})
				}
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				if err := run.Run(ctx); err != nil {
					t.Error(err)
				}
				if rounds < 180 { // each second one, if a pause follows each failure
					t.Errorf("%d rounds in an hour", rounds)
				}
			})
		})
	}
}
