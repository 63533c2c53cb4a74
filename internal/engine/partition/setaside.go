package partition

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice/driver"
)

// A log that loses events gives their numbers to others. Dead letters of lost events stay, because
// nothing else has these events. They must neither make the events that have their numbers now
// count as done nor be replaced by them, so before such an event is handled the store sets the dead
// letter of the lost one aside: it gives it an incarnation that names the history of the lost
// event.

// asideStore is what the stores of both deliveries have in common.
type asideStore interface {
	SetAside(ctx context.Context, group driver.Group, partition, incarnation string, lost []driver.ParkedEvent) error
}

// LostAmong returns the dead letters whose events the log has lost, as events with their numbers
// show. Both lists ascend.
func LostAmong(parked []driver.ParkedEvent, events []*driver.Event) (lost []driver.ParkedEvent) {
	for _, e := range events {
		for len(parked) > 0 && parked[0].Position.Sequence < e.Sequence {
			parked = parked[1:]
		}
		if len(parked) == 0 {
			break
		}
		if parked[0].Position.Sequence == e.Sequence && AnotherHistory(parked[0].Position, e.Position()) {
			lost = append(lost, parked[0])
		}
	}
	return lost
}

// Difference returns a list without what is lost.
func Difference(parked, lost []driver.ParkedEvent) []driver.ParkedEvent {
	return slices.DeleteFunc(parked, func(p driver.ParkedEvent) bool { return slices.Contains(lost, p) })
}

// SetAside sets dead letters of lost events aside, and reports them.
func (a *Assignment) SetAside(store asideStore, lost []driver.ParkedEvent) error {
	for len(lost) > 0 {
		history, n := lost[0].Position.History(), 1
		for n < len(lost) && lost[n].Position.History() == history {
			n++
		}
		same := lost[:n]
		err := a.Request(a.Work, "set dead letters of lost events aside", func(ctx context.Context) error {
			return store.SetAside(ctx, a.Topic.Group, a.Lease.Partition, driver.LostIncarnation(a.Incarnation, history), same)
		})
		if err != nil {
			return err
		}
		a.Failed(&driver.LostDeadLettersError{Partition: a.Lease.Partition, Events: same})
		lost = lost[n:]
	}
	return nil
}
