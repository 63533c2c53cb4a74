package sender

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
)

// Where the time is over while the service is busy, the error has both.
func TestRepeatBusyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := 0
		err := repeatBusy(ctx, func() error { asked++; return &amqp.Error{Condition: condServerBusy} })
		if asked != 3 || !errors.Is(err, context.DeadlineExceeded) || !isBusy(err) {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}
