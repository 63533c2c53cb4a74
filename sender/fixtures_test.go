package sender_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sender"
)

const hub = "flights"

func start(t testing.TB, partitions int, cfg *emulator.Config) *emulator.Server {
	t.Helper()
	var resolved emulator.Config
	if cfg != nil {
		resolved = *cfg
	}
	if resolved.AsAzure == nil {
		resolved.AsAzure = asazure.FreshRuntime()
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: hub, Partitions: partitions}}, &resolved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}

// withoutBusy returns the behaviours for a test that counts what is sent, or repeats nothing.
func withoutBusy() *emulator.AsAzure {
	a := asazure.FreshRuntime()
	a.EventHubs.RandomBusy, a.ServiceBus.RandomBusy = 0, 0
	return a
}

func open(t testing.TB, srv *emulator.Server, cfg *sender.EventHubConfig) *sender.EventHub {
	t.Helper()
	h, err := sender.OpenEventHub(srv.ConnectionString(), hub, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close the transport: %v", err)
		}
	})
	return h
}

// testContext ends a test that would hang.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(scale())*2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// fastRetries is the configuration for tests of failures.
func fastRetries() *sender.Config {
	return &sender.Config{RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond}
}

// traffic is messages whose content depends on their index only.
type traffic struct {
	count int64
	keys  int64 // 0: no message has a key
	size  func(r *rand.Rand) int

	inSessions bool // the keys are those of sessions
}

// mixed is a size of up to 2 KB for 99 of 100 messages, and up to 200 KB for the
// rest.
func mixed(r *rand.Rand) int {
	if r.IntN(100) == 0 {
		return r.IntN(200_000)
	}
	return r.IntN(2000)
}

func fixed(size int) func(*rand.Rand) int { return func(*rand.Rand) int { return size } }

func (f traffic) message(i int64) sender.Message {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	m := sender.Message{MessageID: strconv.FormatInt(i, 10), ContentType: "application/octet-stream"}
	if f.keys > 0 {
		m.Key = fmt.Sprintf("key-%d", r.Int64N(f.keys))
	}
	if f.inSessions {
		m.SessionID, m.Key = m.Key, ""
	}
	if i%3 == 0 {
		m.Properties = map[string]any{"airport": "FRA", "number": i}
	}
	m.Body = bytes.Repeat(binary.BigEndian.AppendUint64(nil, r.Uint64()), f.size(r)/8+1)
	return m
}

func (f traffic) all() iter.Seq[sender.Message] {
	return func(yield func(sender.Message) bool) {
		for i := range f.count {
			if !yield(f.message(i)) {
				return
			}
		}
	}
}

// notAccepted is all messages that a report doesn't have as accepted.
func (f traffic) notAccepted(report sender.Report) iter.Seq[sender.Message] {
	return func(yield func(sender.Message) bool) {
		accepted := report.Accepted
		for i := range f.count {
			if len(accepted) > 0 && i > accepted[0].Last {
				accepted = accepted[1:]
			}
			if (len(accepted) == 0 || i < accepted[0].First) && !yield(f.message(i)) {
				return
			}
		}
	}
}

// stored is the events of a partition.
func stored(t testing.TB, srv *emulator.Server, partition int) (events []*azeventhubs.ReceivedEventData) {
	t.Helper()
	eachStored(t, srv, partition, func(e *azeventhubs.ReceivedEventData) { events = append(events, e) })
	return events
}

// eachStored reads the events of a partition.
func eachStored(t testing.TB, srv *emulator.Server, partition int, do func(*azeventhubs.ReceivedEventData)) {
	t.Helper()
	ctx := testContext(t)
	c, err := azeventhubs.NewConsumerClientFromConnectionString(srv.ConnectionString(), hub, azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	properties, err := c.GetPartitionProperties(ctx, strconv.Itoa(partition), nil)
	if err != nil {
		t.Fatal(err)
	}
	if properties.IsEmpty {
		return
	}
	p, err := c.NewPartitionClient(strconv.Itoa(partition), &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: to.Ptr(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	for left := properties.LastEnqueuedSequenceNumber + 1; left > 0; {
		more, err := p.ReceiveEvents(ctx, int(min(left, 1000)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range more {
			do(e)
		}
		left -= int64(len(more))
	}
}

// inventory reads all partitions and returns how often each message is stored. It
// checks that each is as sent, and that those of a key are in one partition and in
// order, except duplicates.
func inventory(t testing.TB, srv *emulator.Server, f traffic, partitions int) map[int64]int {
	t.Helper()
	times := map[int64]int{}
	home, last := map[string]int{}, map[string]int64{}
	for p := range partitions {
		eachStored(t, srv, p, func(e *azeventhubs.ReceivedEventData) {
			i, err := strconv.ParseInt((*e.MessageID), 10, 64)
			if err != nil {
				t.Fatalf("an event of id %s", *e.MessageID)
			}
			times[i]++
			want := f.message(i)
			if !bytes.Equal(e.Body, want.Body) || *e.ContentType != want.ContentType || len(e.Properties) != len(want.Properties) {
				t.Fatalf("message %d arrived changed", i)
			}
			if want.Key == "" {
				if e.PartitionKey != nil {
					t.Fatalf("message %d got the key %q", i, *e.PartitionKey)
				}
				return
			}
			if e.PartitionKey == nil || *e.PartitionKey != want.Key {
				t.Fatalf("message %d lost its key", i)
			}
			if at, known := home[want.Key]; known && at != p {
				t.Fatalf("key %s is in partitions %d and %d", want.Key, at, p)
			}
			home[want.Key] = p
			if i < last[want.Key] && times[i] == 1 {
				t.Fatalf("message %d of key %s came after %d", i, want.Key, last[want.Key])
			}
			last[want.Key] = max(last[want.Key], i)
		})
	}
	return times
}

// outcomes returns the outcome of each index by a report. Each index has exactly
// one.
func outcomes(t testing.TB, report sender.Report) (outcome []string, duplicate map[int64]bool) {
	t.Helper()
	outcome, duplicate = make([]string, report.Taken), map[int64]bool{}
	for name, list := range map[string][]sender.IndexRange{
		"accepted": report.Accepted, "refused": report.Rejected, "unsent": report.Unsent, "unknown": report.Unknown,
	} {
		for _, r := range list {
			for i := r.First; i <= r.Last; i++ {
				if outcome[i] != "" {
					t.Fatalf("message %d is both %s and %s", i, outcome[i], name)
				}
				outcome[i] = name
			}
		}
	}
	for _, r := range report.PossibleDuplicates {
		for i := r.First; i <= r.Last; i++ {
			duplicate[i] = true
		}
	}
	return outcome, duplicate
}

// checkReport compares a report with what is stored, message by message.
func checkReport(t testing.TB, report sender.Report, times map[int64]int) {
	t.Helper()
	outcome, duplicate := outcomes(t, report)
	accepted := int64(0)
	for i, outcome := range outcome {
		n := times[int64(i)]
		ok := false
		switch outcome {
		case "accepted":
			accepted++
			ok = n == 1 || n > 1 && duplicate[int64(i)]
		case "refused", "unsent":
			ok = n == 0
		case "unknown":
			ok = n <= 1 || duplicate[int64(i)]
		}
		if !ok {
			need.Verdict(t)
			t.Fatalf("message %d is %q by the report, duplicate: %t, and is there %d times", i, outcome, duplicate[int64(i)], n)
		}
	}
	if accepted != report.Messages {
		t.Errorf("%d messages accepted, by the statistics %d", accepted, report.Messages)
	}
	for i := range times {
		if i >= report.Taken {
			need.Verdict(t)
			t.Fatalf("message %d is there, but only %d were taken", i, report.Taken)
		}
	}
}

// total is how many indices there are in ranges.
func total(list []sender.IndexRange) (n int64) {
	for _, r := range list {
		n += r.Last - r.First + 1
	}
	return n
}
