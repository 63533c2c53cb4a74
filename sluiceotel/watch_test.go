package sluiceotel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluiceotel"
)

// seen is a partition as a check saw it.
func seen(id, owner string, last, lag int64, waiting time.Time) health.PartitionReport {
	return health.PartitionReport{Partition: id, Owner: owner, Bounds: driver.Bounds{Last: sluice.Position{Sequence: last}}, Lag: lag, WaitingSince: waiting}
}

// TestCountersBeginAtZero: increase() sees only what a series gained after its first value.
func TestCountersBeginAtZero(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	o.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0"})
	got := figures(t, reader)
	for _, name := range []string{"sluice.dead_letters{0,parked}", "sluice.dead_letters{0,copy_failed}", "sluice.commits{0,unknown}", "sluice.lease.lost{0}"} {
		if v, ok := got[name]; !ok || v != 0 {
			t.Errorf("%s is %v (%v) of a partition that was acquired, want 0", name, v, ok)
		}
	}
}

// TestLagOfEveryPartition: a partition that nobody owns, one whose owner cannot read, an idle one
// and a halted one have a lag, and one that another process owns has none here.
func TestLagOfEveryPartition(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	at := func(n int64) sluice.Position { return sluice.Position{Sequence: n} }
	for _, x := range []driver.Observation{
		{Kind: driver.KindAcquired, Partition: "stuck"}, // and not even claimed
		{Kind: driver.KindAcquired, Partition: "idle"},
		{Kind: driver.KindClaimed, Partition: "idle", To: at(99)},
		{Kind: driver.KindAcquired, Partition: "hangs"},
		{Kind: driver.KindClaimed, Partition: "hangs", To: at(9)},
		{Kind: driver.KindFetched, Partition: "hangs", To: at(19), Events: 10, Lag: 10, Enqueued: now.Add(-time.Hour)},
		{Kind: driver.KindAcquired, Partition: "halted"},
		{Kind: driver.KindClaimed, Partition: "halted", To: at(500)},
		{Kind: driver.KindHalted, Partition: "halted", Err: sluice.ErrRecreated},
	} {
		o.Observe(x)
	}
	check := health.Report{At: now.Add(time.Second), Partitions: []health.PartitionReport{
		seen("stuck", "me", 70, 40, now.Add(-10*time.Minute)),
		seen("idle", "me", 99, 0, time.Time{}),
		seen("hangs", "me", 1009, 1000, now.Add(-time.Minute)),
		seen("halted", "me", 30, 31, now.Add(-time.Minute)),
		seen("unowned", "", 300, 200, now.Add(-2*time.Hour)),
		seen("another's", "another", 300, 5, now.Add(-time.Minute)),
	}}
	o.Watch(check)
	o.Watch(health.Report{At: now, Err: errors.New("no answer")}) // which changes nothing
	got := figures(t, reader)
	for id, want := range map[string][2]float64{"stuck": {40, 600}, "idle": {0, 0}, "hangs": {1000, 3600}, "halted": {31, 60}, "unowned": {200, 7200}} {
		if lag, age := got["sluice.lag.messages{"+id+"}"], got["sluice.lag.time{"+id+"}"]; lag != want[0] || age != want[1] {
			t.Errorf("%s is %v events and %v s behind, want %v", id, lag, age, want)
		}
		if _, ok := got["sluice.lag.messages{"+id+"}"]; !ok {
			t.Errorf("%s has no lag", id)
		}
	}
	if lag, ok := got["sluice.lag.messages{another's}"]; ok {
		t.Errorf("the partition of another process has the lag %v here", lag)
	}

	// An observation after the check began is newer than the check.
	o.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "hangs", To: at(1009), Events: 1000, Lag: 3})
	check.At = now.Add(-time.Second)
	o.Watch(check)
	if lag := figures(t, reader)["sluice.lag.messages{hangs}"]; lag != 3 {
		t.Errorf("a check from before the commit makes the lag %v", lag)
	}
	check.At = now.Add(-6 * time.Minute)
	o.Watch(check)
	if lag, ok := figures(t, reader)["sluice.lag.messages{unowned}"]; ok {
		t.Errorf("a check of six minutes ago still says that %v wait", lag)
	}
}

func TestWarningsAndDeadLetters(t *testing.T) {
	o, reader := observer(t, &sluiceotel.Config{})
	o.Watch(health.Report{
		At:         now,
		Partitions: []health.PartitionReport{seen("0", "", 9, 0, time.Time{}), seen("1", "", 9, 0, time.Time{})},
		Warnings:   []health.Warning{{Kind: health.WarningUnowned, Partitions: []string{"0", "1"}}},
		DeadLetters: []driver.DeadLetterCount{
			{Partition: "0", Status: sluice.StatusDead, Count: 7}, {Partition: "0", Status: sluice.StatusDiscarded, Count: 2}, {Partition: "gone", Status: sluice.StatusRetry, Count: 1},
		},
	})
	want := map[string]float64{
		"sluice.lag.messages{0}": 0, "sluice.lag.time{0}": 0, "sluice.lag.messages{1}": 0, "sluice.lag.time{1}": 0,
		"sluice.warnings{unowned}": 2, "sluice.warnings{under_capacity}": 0, "sluice.warnings{stalled}": 0,
		"sluice.warnings{partitions_added}": 0, "sluice.warnings{expiring}": 0, "sluice.warnings{expired}": 0,
		"sluice.dead_letters.stored{0,dead}": 7, "sluice.dead_letters.stored{0,retry}": 0, "sluice.dead_letters.stored{0,discarded}": 2,
		"sluice.dead_letters.stored{1,dead}": 0, "sluice.dead_letters.stored{1,retry}": 0, "sluice.dead_letters.stored{1,discarded}": 0,
		"sluice.dead_letters.stored{gone,dead}": 0, "sluice.dead_letters.stored{gone,retry}": 1, "sluice.dead_letters.stored{gone,discarded}": 0,
	}
	compare(t, figures(t, reader), want)
	// The store did not answer this time: the last count stays, but not for ever.
	o, reader = observer(t, &sluiceotel.Config{})
	silent := health.Report{At: now, Partitions: []health.PartitionReport{seen("0", "", 9, 0, time.Time{})}, DeadLetterErr: errors.New("no answer")}
	for ago, want := range map[time.Duration]bool{4 * time.Minute: true, 6 * time.Minute: false} {
		o.Watch(health.Report{At: now.Add(-ago), Partitions: silent.Partitions, DeadLetters: []driver.DeadLetterCount{{Partition: "0", Status: sluice.StatusDead, Count: 7}}})
		o.Watch(silent)
		if n, ok := figures(t, reader)["sluice.dead_letters.stored{0,dead}"]; ok != want || want && n != 7 {
			t.Errorf("counted %v ago: %v dead letters (%v), want them: %v", ago, n, ok, want)
		}
	}
	if n := figures(t, reader)["sluice.failures{_OTHER}"]; n != 2 {
		t.Errorf("%v failures, want those of the two counts", n)
	}
}

func TestErrorTypes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "_OTHER"},
		{errors.New("password authentication failed for user 17"), "_OTHER"},
		{fmt.Errorf("commit: %w", context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("claim: %w", driver.ErrTimeLimit), "timeout"},
		{fmt.Errorf("open: %w", sluice.ErrRefused), "refused"},
		{driver.Reject(errors.New("no such column")), "rejected"},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), "connection"},
		{&net.OpError{Op: "dial", Err: errors.New("no route to host")}, "connection"},
	} {
		o, reader := observer(t, &sluiceotel.Config{})
		o.Observe(driver.Observation{Kind: driver.KindFailed, Err: c.err})
		compare(t, figures(t, reader), map[string]float64{"sluice.failures{" + c.want + "}": 1})
	}
}
