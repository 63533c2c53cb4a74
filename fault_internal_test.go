package sluice

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestFaultOf(t *testing.T) {
	plain := errors.New("no")
	for _, c := range []struct {
		err  error
		want fault
		wait time.Duration
	}{
		{plain, faultEvent, 0},
		{Reject(plain), faultRejected, 0},
		{Outage(plain), faultEnvironment, 0},
		{RetryAfter(plain, time.Minute), faultRetry, time.Minute},
		{RetryAfter(plain, -time.Minute), faultRetry, 0},
		{fmt.Errorf("call the API: %w", Outage(plain)), faultEnvironment, 0},
		{&EventError{Index: 3, Err: RetryAfter(plain, time.Second)}, faultRetry, time.Second},
		{&PanicError{Value: Outage(plain)}, faultEnvironment, 0},
		{&PanicError{Value: "no"}, faultEvent, 0},
		{errors.Join(plain, &EventError{Err: Reject(plain)}, &EventError{Index: 1, Err: Outage(plain)}), faultEnvironment, 0},
		{Reject(fmt.Errorf("decode: %w", Outage(plain))), faultEnvironment, 0},
		{RetryAfter(Outage(plain), 0), faultRetry, 0},
	} {
		if got, wait := faultOf(c.err), statedWait(c.err); got != c.want || wait != c.wait {
			t.Errorf("%#v: fault %d, wait %v; want %d, %v", c.err, got, wait, c.want, c.wait)
		}
	}
}
