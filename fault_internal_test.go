package sluice

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
		want fault
		wait time.Duration
	}{
		{plain, faultEvent, 0},
		{driver.Reject(plain), faultRejected, 0},
		{driver.Outage(plain), faultEnvironment, 0},
		{driver.RetryAfter(plain, time.Minute), faultRetry, time.Minute},
		{driver.RetryAfter(plain, -time.Minute), faultRetry, 0},
		{fmt.Errorf("call the API: %w", driver.Outage(plain)), faultEnvironment, 0},
		{&driver.EventError{Index: 3, Err: driver.RetryAfter(plain, time.Second)}, faultRetry, time.Second},
		{&driver.PanicError{Value: driver.Outage(plain)}, faultEnvironment, 0},
		{&driver.PanicError{Value: "no"}, faultEvent, 0},
		{errors.Join(plain, &driver.EventError{Err: driver.Reject(plain)}, &driver.EventError{Index: 1, Err: driver.Outage(plain)}), faultEnvironment, 0},
		{driver.Reject(fmt.Errorf("decode: %w", driver.Outage(plain))), faultEnvironment, 0},
		{driver.RetryAfter(driver.Outage(plain), 0), faultRetry, 0},
	} {
		if got, wait := faultOf(c.err), statedWait(c.err); got != c.want || wait != c.wait {
			t.Errorf("%#v: fault %d, wait %v; want %d, %v", c.err, got, wait, c.want, c.wait)
		}
	}
}
