package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, wall := New(), time.Now()
		if err := c.Sleep(t.Context(), time.Minute); err != nil || c.Elapsed() != time.Minute || c.Wall().Sub(wall) != time.Minute {
			t.Errorf("slept %v, %v by the wall clock, %v", c.Elapsed(), c.Wall().Sub(wall), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || c.Elapsed() != time.Minute+time.Second {
			t.Errorf("the end of the context: %v, after %v", err, c.Elapsed())
		}
		if err := Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no wait after the end: %v", err)
		}
	})
}
