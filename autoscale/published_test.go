package autoscale_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// TestPublishedMetrics: messages of the published collector fill the window and are decided on.
func TestPublishedMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := queues(), autoscale.NewMemoryStore()
		r := resource(autoscale.Limits{})
		l, err := autoscale.NewLogic(r, store, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			send(t, q.Metrics, fmt.Sprintf(`{"ResourceName":"r","Name":"backlog","Value":{"Time":%q,"Value":%d}}`, time.Now().Add(time.Duration(i)*time.Second).Format("2006-01-02T15:04:05.0000000-07:00"), 7+i))
		}
		send(t, q.Metrics, `{"ResourceName":"r","Name":"backlog"}`, `{"ResourceName":"r","Name":"backlog","Value":{"Time":"soon","Value":1}}`, `{"ResourceName":"other","Name":"backlog","Value":{"Time":"2017-07-17T10:00:00","Value":1}}`)
		runUntilIdle(t, l)
		m, err := store.Load(t.Context(), "r")
		if err != nil || m.Windows["backlog"] == nil || len(m.Windows["backlog"].Values) != 5 || m.Windows["backlog"].All().Newest() != 11 {
			t.Errorf("state %+v, %v", m, err)
		}
		if n := len(q.Metrics.(*autoscale.MemoryQueue).DeadLetters()); n != 3 {
			t.Errorf("%d dead letters, want 3", n)
		}
	})
}

// TestPublishedActions: messages of the published logic add and remove one instance, within the
// limits; a message that is delivered again does nothing.
func TestPublishedActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const up, down = `{"ResourceName":"r","Type":0}`, `{"ResourceName":"r","Type":"Down"}`
		q, store, target := queues(), autoscale.NewMemoryStore(), &fleet{instances: 1}
		q.Actions = &again{Queue: q.Actions}
		send(t, q.Actions, up, up, down, `{"ResourceName":"r","Type":7}`)
		s := scaler(t, target, store, q)
		runUntilIdle(t, s)
		var got []int
		for _, c := range target.scalings() {
			got = append(got, c.instances)
		}
		if fmt.Sprint(got) != "[2 3 2]" {
			t.Errorf("scaled to %v", got)
		}
		o, err := store.Outcome(t.Context(), "r")
		if err != nil || o == nil || o.Number != 3 || o.Message == "" {
			t.Errorf("outcome %+v, %v", o, err)
		}
		send(t, q.Actions, down, down)
		runUntilIdle(t, s)
		if n, _ := target.Instances(t.Context()); n != 1 {
			t.Errorf("%d instances: the limit is 1", n)
		}
	})
}

// again delivers each message twice.
type again struct {
	autoscale.Queue
	last []autoscale.Message
}

func (a *again) Receive(ctx context.Context, most int) ([]autoscale.Message, error) {
	if list := a.last; list != nil {
		a.last = nil
		return list, nil
	}
	list, err := a.Queue.Receive(ctx, 1)
	a.last = append(a.last[:0:0], list...)
	return list, err
}
