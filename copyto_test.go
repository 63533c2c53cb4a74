package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/stamp"
)

// A sink's results decide what is copied. What it rejects it gets again without body.
func TestCopyTo(t *testing.T) { synctest.Test(t, testCopyTo) }

func testCopyTo(t *testing.T) {
	type letter struct {
		text        string
		incarnation string
	}
	sink := sinkFunc[letter](func(ctx context.Context, l letter, done func(driver.WriteResult)) {
		switch {
		case l.text == "lost":
		case l.text == "down":
			done(driver.WriteResult{Err: driver.Outage(errors.New("down"))})
		case strings.HasPrefix(l.text, "large"), l.text == "hopeless without body":
			done(driver.WriteResult{Err: driver.Reject(errors.New("too large"))})
		default:
			if driver.IncarnationOf(ctx) != l.incarnation || driver.FencingTokenOf(ctx).Lease.Group != enginetest.Group {
				t.Errorf("%s: context of %q, %+v", l.text, driver.IncarnationOf(ctx), driver.FencingTokenOf(ctx))
			}
			if _, is := stamp.Of(ctx, &sluice.Event{}, 0); is || stamp.Foreign(ctx, stamp.Stamp{}) {
				t.Errorf("%s: has a stamp", l.text)
			}
			done(driver.WriteResult{})
			done(driver.WriteResult{Err: errors.New("twice")})
		}
	})
	copies := sluice.CopyTo(sink, func(_ context.Context, d *sluice.DeadLetter) (letter, error) {
		if d.Error == "unmade" {
			return letter{}, errors.New("unmade")
		}
		text := d.Error
		if !d.HasBody {
			text = strings.TrimPrefix(text, "large ") + " without body"
		}
		return letter{text, d.Incarnation}, nil
	})
	var dead []sluice.DeadLetter
	for i, text := range []string{"fine", "large one", "unmade", "down", "lost", "large hopeless", "fine"} {
		dead = append(dead, sluice.DeadLetter{ID: int64(i), Group: enginetest.Group, Incarnation: fmt.Sprint(i), Error: text, HasBody: true, Event: sluice.Event{Partition: "0", Body: []byte("x")}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := copies(ctx, dead)
	var failed []int
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		failed = append(failed, e.(*driver.EventError).Index)
	}
	if !slices.Equal(failed, []int{2, 3, 4, 5}) || !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("not copied are %v (%v), want what was not made, down, lost and hopeless", failed, err)
	}
	if string(dead[1].Event.Body) != "x" {
		t.Error("the dead letter was changed")
	}
}

type sinkFunc[R any] func(ctx context.Context, record R, done func(driver.WriteResult))

func (f sinkFunc[R]) Submit(ctx context.Context, record R, done func(driver.WriteResult)) {
	f(ctx, record, done)
}
