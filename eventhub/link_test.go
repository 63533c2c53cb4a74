package eventhub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"
)

// pausedReceiver is that of a process which does not run from the first wait on until long after
// the broker has refused the link.
type pausedReceiver struct {
	receiver
	refusal error // nil: it has not come
}

func (r *pausedReceiver) wait(ctx context.Context) ([]*driver.Event, error) {
	if r.refusal != nil {
		return nil, r.refusal
	}
	time.Sleep(time.Minute)
	r.refusal = amqp.Errorf("com.microsoft:argument-out-of-range", "The supplied sequence number '99' is invalid. The last sequence number in the system is '9'")
	return nil, ctx.Err() // both are there: the end of the time is seen first
}

func (r *pausedReceiver) failure() failure { return failure{refusal: r.refusal, attached: true} }

// silentReceiver is that of a link on which nothing comes.
type silentReceiver struct{ receiver }

func (silentReceiver) wait(ctx context.Context) ([]*driver.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// What comes while the process is paused is not taken for missing.
func TestWaitForOverPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(good, hubName, nil)
		if err != nil {
			t.Fatal(err)
		}
		waitFor := func(r receiver) error {
			l := &link{source: s, partition: "0", receiver: r, life: t.Context()}
			return second(l.waitFor(t.Context(), eventWait))
		}
		if err := waitFor(new(pausedReceiver)); !errors.Is(err, driver.ErrPastEnd) {
			t.Errorf("a refusal during a pause: %v", err)
		}
		began := time.Now()
		if err, took := waitFor(silentReceiver{}), time.Since(began); err != nil || took != eventWait {
			t.Errorf("nothing came: %v after %v", err, took)
		}
	})
}
