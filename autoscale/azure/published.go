package azure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/published"
)

// publishedAlive is how long after its last write the published autoscaler counts as running: it
// writes each minute, and clocks differ by up to a minute.
const publishedAlive = 3 * time.Minute

// errPublishedRuns: two autoscalers would act on one resource.
var errPublishedRuns = errors.New("the published autoscaler still runs: stop its functions")

// publishedStopped returns an error unless the published autoscaler has stopped writing its rows of
// a resource. The first save asks it: it would take rows from a program that reads them, decides on
// them and acts.
func (s *Store) publishedStopped(ctx context.Context, resource string) error {
	return s.listPartition(ctx, resource, "RowKey lt '~'", 0, func(e *aztables.EDMEntity) error {
		age := time.Since(time.Time(e.Timestamp))
		if _, found := e.Properties["SerializedState"].(string); !found || age >= publishedAlive {
			return nil
		}
		return fmt.Errorf("row %s was written %s ago: %w, and wait until it has stood still for %s", e.RowKey, age.Round(time.Second), errPublishedRuns, publishedAlive)
	})
}

// loadPublished takes over, at the first start, the windows and the time of the last action that
// the published autoscaler has left in the table. There the row key is the metric's name, and
// SerializedState has both. Sluice's first save replaces these rows where their keys are the same.
func (s *Store) loadPublished(ctx context.Context, m *autoscale.ResourceState) error {
	return s.listPartition(ctx, m.Resource, "RowKey lt '~'", 0, func(e *aztables.EDMEntity) error {
		text, found := e.Properties["SerializedState"].(string)
		if !found {
			s.report(e, errForeign)
			return nil
		}
		state, err := published.ReadState(text)
		if err != nil {
			s.report(e, errors.Join(errors.New("SerializedState is not understood, the window begins empty"), err))
			return nil
		}
		w := &autoscale.Window{}
		for _, v := range state.History {
			w.Add(autoscale.Point{Time: v.Time.Time, Value: v.Value})
		}
		if m.Windows == nil {
			m.Windows = map[string]*autoscale.Window{}
		}
		m.Windows[e.RowKey] = w
		// Any action there began the one cooldown. A time ahead of this clock would never end it.
		if last := state.LastScalingActionTime.Time; last.After(m.LastUp) && !last.After(time.Now().Add(time.Minute)) {
			m.LastUp, m.LastDown = last, last
		}
		s.log.Info("state of the published autoscaler taken over", "table", s.name, "metric", e.RowKey, "values", len(w.Values), "last_action", state.LastScalingActionTime.Time)
		return nil
	})
}
