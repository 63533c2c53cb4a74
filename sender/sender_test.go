package sender_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

func TestSendAllWithoutKeys(t *testing.T) {
	const partitions = 3
	srv := start(t, partitions, nil)
	keyless := traffic{count: 20_000, size: fixed(1000)}
	report, err := sender.New(open(t, srv, nil), nil).SendAll(testContext(t), keyless.all())
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, report, inventory(t, srv, keyless, partitions))
	if fewest := report.Bytes/(1<<20) + 1; report.Batches > fewest {
		t.Errorf("%d batches for %d bytes", report.Batches, report.Bytes)
	}
	for p := range partitions {
		if len(stored(t, srv, p)) == 0 {
			t.Errorf("partition %d got nothing", p)
		}
	}
}

// TestSpread gives each partition an equal share of few messages, in a batch
// each, and keeps messages with keys in batches of their own.
func TestSpread(t *testing.T) {
	const partitions = 4
	srv := start(t, partitions, nil)
	keyless := traffic{count: 100, size: fixed(10)}
	all := func(yield func(sender.Message) bool) {
		for i := range keyless.count {
			m := keyless.message(i)
			if i%5 == 0 {
				m.Key = "one"
			}
			if !yield(m) {
				return
			}
		}
	}
	report, err := sender.New(open(t, srv, nil), &sender.Config{Spread: true}).SendAll(testContext(t), all)
	if err != nil || report.Messages != keyless.count || report.Batches != partitions+1 {
		t.Fatalf("%+v: %v", report, err)
	}
	keyed := 0
	for p := range partitions {
		share := 0
		for _, e := range stored(t, srv, p) {
			if e.PartitionKey == nil {
				share++
			} else {
				keyed++
			}
		}
		if share != 80/partitions {
			t.Errorf("partition %d has %d messages without a key", p, share)
		}
	}
	if keyed != 20 {
		t.Errorf("%d messages with the key", keyed)
	}
}

// TestOrdered sends messages with and without keys to one partition, where their
// order can be checked.
func TestOrdered(t *testing.T) {
	srv := start(t, 1, nil)
	mix := traffic{count: 3000, keys: 50, size: fixed(2000)}
	some := func(yield func(sender.Message) bool) {
		for i := range mix.count {
			m := mix.message(i)
			if i%40 < 20 {
				m.Key = ""
			}
			if !yield(m) {
				return
			}
		}
	}
	report, err := sender.New(open(t, srv, nil), &sender.Config{Ordered: true}).SendAll(testContext(t), some)
	if err != nil {
		t.Fatal(err)
	}
	events := stored(t, srv, 0)
	if int64(len(events)) != mix.count || report.Messages != mix.count {
		t.Fatalf("%d events, %d reported", len(events), report.Messages)
	}
	for i, e := range events {
		if *e.MessageID != strconv.Itoa(i) {
			t.Fatalf("message %s in place %d", *e.MessageID, i)
		}
		if keyless := i%40 < 20; keyless != (e.PartitionKey == nil) {
			t.Fatalf("message %d: key %v", i, e.PartitionKey)
		}
	}
}

// TestRejected has some messages that can't be sent: all others are stored.
func TestRejected(t *testing.T) {
	const partitions = 2
	srv := start(t, partitions, &emulator.Config{MaxMessageBytes: 100_000})
	hub := open(t, srv, nil)
	mix := traffic{count: 1000, keys: 40, size: func(r *rand.Rand) int { return r.IntN(3000) }}
	messages := func(yield func(sender.Message) bool) {
		for i := range mix.count {
			m := mix.message(i)
			switch i {
			case 0, 500, 501:
				m.Body = make([]byte, 100_000)
			case 700:
				m.Properties = map[string]any{"what": struct{}{}}
			case 900:
				m.Key = string(make([]byte, 129))
			}
			if !yield(m) {
				return
			}
		}
	}
	report, err := sender.New(hub, nil).SendAll(testContext(t), messages)
	want := []sender.IndexRange{{First: 0, Last: 0}, {First: 500, Last: 501}, {First: 700, Last: 700}, {First: 900, Last: 900}}
	if len(report.Rejected) != len(want) {
		t.Fatalf("refused: %v, want %v", report.Rejected, want)
	}
	for i := range want {
		if report.Rejected[i] != want[i] {
			t.Fatalf("refused: %v, want %v", report.Rejected, want)
		}
	}
	var refused *sender.RejectedError
	if !errors.As(err, &refused) || refused.Index != 0 || refused.Size < 100_000 || refused.Size > 100_500 || !errors.Is(refused, sender.ErrTooLarge) {
		t.Errorf("error: %v", err)
	}
	if report.Messages != mix.count-5 || len(report.Unsent)+len(report.Unknown) > 0 {
		t.Errorf("%+v", report)
	}
	checkReport(t, report, inventory(t, srv, mix, partitions))
}

// TestExactFit sends messages that just fit, and messages that are one byte too
// large: the size in the error is the size on the wire.
func TestExactFit(t *testing.T) {
	const limit = 50_000
	srv, bus := start(t, 1, &emulator.Config{MaxMessageBytes: limit, AsAzure: withoutBusy()}), startBus(t, &emulator.ServiceBusConfig{AsAzure: withoutBusy()})
	all := []sender.Message{
		{}, {MessageID: "7"}, {Key: "k", CorrelationID: "c", ContentType: "text/plain", Properties: map[string]any{"a": int32(1), "b": "x"}},
	}
	for name, c := range map[string]struct {
		transport sender.Transport
		arrived   func() emulator.IncomingStats
		messages  []sender.Message
	}{
		"hub": {open(t, srv, nil), func() emulator.IncomingStats { return srv.IncomingStats(hub) }, all},
		"queue": {
			openBus(t, bus.ConnectionString(), queue, &sender.ServiceBusConfig{MaxBytes: limit}),
			func() emulator.IncomingStats { return bus.IncomingStats(queue) }, append(all, sender.Message{SessionID: "s"}),
		},
	} {
		s := sender.New(c.transport, nil)
		for i, m := range c.messages {
			send := func(size int) (sender.Report, error) {
				m.Body = make([]byte, size)
				return s.SendAll(testContext(t), func(yield func(sender.Message) bool) { yield(m) })
			}
			_, err := send(limit)
			var refused *sender.RejectedError
			if !errors.As(err, &refused) {
				t.Fatalf("%s: error: %v", name, err)
			}
			fits, before := limit-(refused.Size-limit), c.arrived().Bytes
			report, err := send(fits)
			if wire := c.arrived().Bytes - before; err != nil || report.Bytes != limit || wire != limit {
				t.Errorf("%s, message %d: body of %d bytes, batch of %d, %d on the wire: %v", name, i, fits, report.Bytes, wire, err)
			}
			if _, err := send(fits + 1); !errors.As(err, &refused) || refused.Size != limit+1 {
				t.Errorf("%s, message %d: body of %d bytes: %v", name, i, fits+1, err)
			}
		}
	}
}

func TestEmpty(t *testing.T) {
	srv := start(t, 1, nil)
	report, err := sender.New(open(t, srv, nil), nil).SendAll(testContext(t), traffic{}.all())
	if err != nil || report.Taken != 0 || report.Accepted != nil || report.Batches != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestUnknownHub(t *testing.T) {
	srv := start(t, 1, nil)
	h, err := sender.OpenEventHub(srv.ConnectionString(), "nowhere", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if _, err := sender.New(h, nil).SendAll(testContext(t), traffic{count: 1, size: fixed(1)}.all()); !errors.Is(err, sender.ErrPermanent) {
		t.Errorf("error: %v", err)
	}
}
