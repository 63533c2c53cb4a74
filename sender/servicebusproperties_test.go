package sender_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/sender"
)

// What a message of Service Bus has beside key and body arrives, and counts in its size.
func TestServiceBusProperties(t *testing.T) {
	srv := startBus(t, nil)
	bus := openBus(t, srv.ConnectionString(), queue, nil)
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	full := sender.Message{Key: "k", MessageID: "1", CorrelationID: "c", ContentType: "text/plain", Subject: "red", ReplyTo: "answers", TTL: 90 * time.Minute, Body: []byte("full")}
	scheduled := sender.Message{Key: "k", MessageID: "2", ScheduledFor: later, Body: []byte("later")}
	plain := sender.Message{Key: "k", MessageID: "3", Body: []byte("plain")}
	for _, m := range []sender.Message{full, scheduled, plain} {
		batch, err := bus.NewBatch(t.Context(), "0")
		if err != nil {
			t.Fatal(err)
		}
		size, err := batch.(sender.Sizer).Size(&m)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Add(&m); err != nil || batch.Bytes() != size {
			t.Errorf("message %s has %d bytes, and not %d: %v", m.MessageID, batch.Bytes(), size, err)
		}
	}
	report, err := sender.New(bus, nil).SendAll(t.Context(), slices.Values([]sender.Message{full, scheduled, plain}))
	if err != nil || report.Messages != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	if counts, err := srv.Counts(queue); err != nil || counts.Active != 2 || counts.Scheduled != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
	for _, m := range received(t, srv.ConnectionString(), queue, 2) {
		switch m.MessageID {
		case "1":
			if *m.Subject != "red" || *m.ReplyTo != "answers" || *m.TimeToLive != 90*time.Minute || *m.CorrelationID != "c" || *m.ContentType != "text/plain" || m.ScheduledEnqueueTime != nil {
				t.Errorf("full: %+v", m)
			}
		case "3":
			if m.Subject != nil || m.ReplyTo != nil || m.ScheduledEnqueueTime != nil || *m.PartitionKey != "k" {
				t.Errorf("plain: %+v", m)
			}
		default:
			t.Errorf("message %s is not due", m.MessageID)
		}
	}
	eachPeeked(t, srv, func(m *azservicebus.ReceivedMessage) {
		if m.MessageID != "2" || m.ScheduledEnqueueTime == nil || !m.ScheduledEnqueueTime.Equal(later) {
			t.Errorf("message %s is scheduled for %v, and not %v", m.MessageID, m.ScheduledEnqueueTime, later)
		}
	})
}

func TestImpossibleTTL(t *testing.T) {
	bus := openBus(t, startBus(t, nil).ConnectionString(), queue, nil)
	for _, ttl := range []time.Duration{-1, time.Microsecond, sender.MaxTTL + 1} {
		_, err := sender.New(bus, nil).SendAll(t.Context(), slices.Values([]sender.Message{{TTL: ttl}}))
		if err == nil || !strings.Contains(err.Error(), "must be from 1ms to 1193h2m47.295s") {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}

// OnAccepted is called for all messages that the report says were accepted.
func TestOnAccepted(t *testing.T) {
	bus := openBus(t, startBus(t, nil).ConnectionString(), queue, &sender.ServiceBusConfig{MaxMessages: 7})
	var mu sync.Mutex
	var all []int64
	cfg := &sender.Config{OnAccepted: func(list []sender.IndexRange) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range list {
			for i := r.First; i <= r.Last; i++ {
				all = append(all, i)
			}
		}
	}}
	report, err := sender.New(bus, cfg).SendAll(t.Context(), func(yield func(sender.Message) bool) {
		for i := range 1000 {
			m := sender.Message{Key: string(rune('a' + i%11)), Body: []byte("x")}
			if i == 500 {
				m.TTL = -1
			}
			if !yield(m) {
				return
			}
		}
	})
	slices.Sort(all)
	if len(all) != 999 || report.Messages != 999 || slices.Contains(all, 500) || len(slices.Compact(all)) != 999 {
		t.Errorf("called for %d messages, %d were accepted: %v", len(all), report.Messages, err)
	}
}
