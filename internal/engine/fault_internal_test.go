package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

func TestFaultOf(t *testing.T) {
	plain := errors.New("no")
	for _, c := range []struct {
		err  error
		want Fault
		wait time.Duration
	}{
		{plain, FaultEvent, 0},
		{driver.Reject(plain), FaultRejected, 0},
		{driver.Outage(plain), FaultEnvironment, 0},
		{driver.RetryAfter(plain, time.Minute), FaultRetry, time.Minute},
		{driver.RetryAfter(plain, -time.Minute), FaultRetry, 0},
		{fmt.Errorf("call the API: %w", driver.Outage(plain)), FaultEnvironment, 0},
		{&driver.EventError{Index: 3, Err: driver.RetryAfter(plain, time.Second)}, FaultRetry, time.Second},
		{&driver.PanicError{Value: driver.Outage(plain)}, FaultEnvironment, 0},
		{&driver.PanicError{Value: "no"}, FaultEvent, 0},
		{errors.Join(plain, &driver.EventError{Err: driver.Reject(plain)}, &driver.EventError{Index: 1, Err: driver.Outage(plain)}), FaultEnvironment, 0},
		{driver.Reject(fmt.Errorf("decode: %w", driver.Outage(plain))), FaultEnvironment, 0},
		{driver.RetryAfter(driver.Outage(plain), 0), FaultRetry, 0},
	} {
		if got, wait := FaultOf(c.err), StatedWait(c.err); got != c.want || wait != c.wait {
			t.Errorf("%#v: fault %d, wait %v; want %d, %v", c.err, got, wait, c.want, c.wait)
		}
	}
}
