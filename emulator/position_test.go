package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

func TestStartPositions(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	p := producer(t, srv, "h")
	send(t, p, to0(), numbered(0, 5)...)
	first := receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 5)
	// The next events get a later enqueued time, for it has a precision of a millisecond.
	for time.Now().UnixMilli() <= first[4].EnqueuedTime.UnixMilli() {
	}
	between := time.Now().Truncate(time.Millisecond)
	send(t, p, to0(), numbered(5, 10)...)
	all := receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 10)

	for name, v := range map[string]struct {
		start azeventhubs.StartPosition
		want  int // the first event's number
	}{
		"earliest":                       {earliest, 0},
		"after the first offset":         {azeventhubs.StartPosition{Offset: &all[0].Offset}, 1},
		"at the first offset":            {azeventhubs.StartPosition{Offset: &all[0].Offset, Inclusive: true}, 0},
		"after the eighth offset":        {azeventhubs.StartPosition{Offset: &all[7].Offset}, 8},
		"at the eighth offset":           {azeventhubs.StartPosition{Offset: &all[7].Offset, Inclusive: true}, 7},
		"after offset -1":                {azeventhubs.StartPosition{Offset: to.Ptr("-1")}, 0},
		"after sequence number 3":        {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(3))}, 4},
		"at sequence number 3":           {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(3)), Inclusive: true}, 3},
		"after sequence number -1":       {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(-1))}, 0},
		"at sequence number -5":          {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(-5)), Inclusive: true}, 0},
		"after a time between":           {azeventhubs.StartPosition{EnqueuedTime: to.Ptr(between.Add(-time.Millisecond))}, 5},
		"at the time of the sixth":       {azeventhubs.StartPosition{EnqueuedTime: all[5].EnqueuedTime, Inclusive: true}, 5},
		"after the time of the fifth":    {azeventhubs.StartPosition{EnqueuedTime: all[4].EnqueuedTime}, 5},
		"at a time before all":           {azeventhubs.StartPosition{EnqueuedTime: to.Ptr(time.Unix(0, 0)), Inclusive: true}, 0},
		"after the last but one's":       {azeventhubs.StartPosition{Offset: &all[8].Offset}, 9},
		"after the second to last by no": {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(8))}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			got := receive(t, partition(t, consumer(t, srv, "h", "other", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: v.start}), 10-v.want)
			for i, e := range got {
				if want := fmt.Sprintf("event %d", v.want+i); string(e.Body) != want {
					t.Fatalf("event %d is %q, want %q", i, e.Body, want)
				}
			}
		})
	}
}

// A reader at the end gets what arrives afterwards, as it arrives.
func TestNewEvents(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	p := producer(t, srv, "h")
	for name, at := range map[string]azeventhubs.StartPosition{
		"latest":               {Latest: to.Ptr(true)},
		"after offset @latest": {Offset: to.Ptr("@latest")},
		"by default":           {},
	} {
		t.Run(name, func(t *testing.T) {
			send(t, p, to0(), "old")
			// A reader's link is made by its first call. That it is there is known once a reader
			// with a lower epoch is refused.
			pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: at, OwnerLevel: to.Ptr(int64(5))})
			got := make(chan []*azeventhubs.ReceivedEventData)
			go func() {
				events, err := pc.ReceiveEvents(testContext(t), 3, nil)
				if err != nil {
					t.Error(err)
				}
				got <- events
			}()
			awaitReader(t, srv, "h", "0")
			for _, body := range numbered(0, 3) {
				send(t, p, to0(), body)
			}
			for i, e := range <-got {
				if want := fmt.Sprintf("event %d", i); string(e.Body) != want {
					t.Errorf("got %q, want %q", e.Body, want)
				}
			}
		})
	}
}

// awaitReader waits until a reader with an epoch is attached to a partition.
func awaitReader(t *testing.T, srv *emulator.Server, hub, id string) {
	t.Helper()
	all := testContext(t)
	for patience := 50 * time.Millisecond; all.Err() == nil; patience *= 2 {
		pc := partition(t, consumer(t, srv, hub, "$Default", ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest})
		ctx, cancel := context.WithTimeout(all, patience) // where there is no reader yet, this one isn't refused, but waits
		_, err := pc.ReceiveEvents(ctx, 1, nil)
		cancel()
		pc.Close(context.Background())
		if err != nil && strings.Contains(err.Error(), "non-epoch receiver is not allowed") {
			return
		}
	}
	t.Fatal("no reader was attached")
}

func TestImpossibleStartPositions(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	send(t, producer(t, srv, "h"), to0(), numbered(0, 3)...)
	for name, v := range map[string]struct {
		start azeventhubs.StartPosition
		want  string
	}{
		"sequence number beyond the end": {azeventhubs.StartPosition{SequenceNumber: to.Ptr(int64(50))},
			"The supplied sequence number '50' is invalid. The last sequence number in the system is '2'"},
		"offset beyond the end":    {azeventhubs.StartPosition{Offset: to.Ptr("999999")}, "The supplied offset '999999' is invalid. The last offset in the system is '"},
		"offset that isn't one":    {azeventhubs.StartPosition{Offset: to.Ptr("here")}, "The supplied offset 'here' is invalid."},
		"offset with a quote":      {azeventhubs.StartPosition{Offset: to.Ptr("1' or 'a' > '")}, "amqp:invalid-field"},
		"offset that is an option": {azeventhubs.StartPosition{Offset: to.Ptr("")}, "amqp:invalid-field"},
	} {
		t.Run(name, func(t *testing.T) {
			pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: v.start})
			_, err := pc.ReceiveEvents(testContext(t), 1, nil)
			if err == nil || !strings.Contains(err.Error(), v.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %q", err, v.want)
			}
		})
	}
}
