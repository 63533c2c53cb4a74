package emulator

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// sections takes an encoded message apart; it must be whole, and its sections in order.
func sections(t *testing.T, b []byte) (all []amqp.Section) {
	t.Helper()
	last := byte(0)
	for len(b) > 0 {
		s, rest, err := amqp.NextSection(b)
		if err != nil || s.Code < last {
			t.Fatalf("section %#02x after %#02x: %v", s.Code, last, err)
		}
		all, b, last = append(all, s), rest, s.Code
	}
	return all
}

// Whatever message the broker takes, receivers get whole, with the body as it was sent.
func FuzzBusMessage(f *testing.F) {
	body := amqp.AppendBinary(amqp.AppendSection(nil, amqp.SectionData), []byte("body"))
	annotated := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionMessageAnnotations), amqp.Map{{Key: amqp.Symbol("x-opt-sequence-number"), Value: int64(7)}, {Key: amqp.Symbol("own"), Value: "o"}})
	properties := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionApplicationProperties), amqp.Map{{Key: "why", Value: "old"}, {Key: "kept", Value: true}})
	header := amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionHeader), amqp.List{true, nil, uint32(1000)})
	f.Add(body, uint32(0))
	f.Add(bytes.Join([][]byte{header, annotated, properties, body}, nil), uint32(0))
	batch := amqp.AppendBinary(amqp.AppendSection(nil, amqp.SectionData), bytes.Join([][]byte{annotated, body}, nil))
	f.Add(append(batch, batch...), uint32(formatBatch))
	f.Fuzz(func(t *testing.T, payload []byte, format uint32) {
		ms, err := splitBus(amqp.Delivery{Format: format, Payload: payload})
		if err != nil {
			return
		}
		for i := range ms {
			m := &ms[i]
			if m.TTL < 0 || m.TTL > 1<<32*time.Millisecond {
				t.Fatalf("lives %s", m.TTL)
			}
			var sent []byte
			for _, s := range sections(t, m.Payload) {
				if s.Code > amqp.SectionApplicationProperties {
					sent = append(sent, s.Raw...)
				}
			}
			if m.Payload, err = editProperties(amqp.Map{{Key: amqp.Symbol("why"), Value: "new"}}, 1<<30)(m.Payload); err != nil {
				t.Fatal(err)
			}
			m.Sequence, m.Reason = 3, "reason"
			var got []byte
			var why, sequences int
			for _, s := range sections(t, appendBusMessage(nil, m, &servicebus.Locked{LockedUntil: time.Now()})) {
				switch {
				case s.Code > amqp.SectionApplicationProperties:
					got = append(got, s.Raw...)
				case s.Code == amqp.SectionApplicationProperties:
					s.Pairs(func(p amqp.RawPair) bool {
						text, _ := amqp.DecodeText(p.Value)
						if p.Key == "why" && text == "new" || p.Key == propReason && text == "reason" {
							why++
						}
						return true
					})
				case s.Code == amqp.SectionMessageAnnotations:
					s.Pairs(func(p amqp.RawPair) bool {
						if p.Key == annSequence {
							sequences++
						}
						return true
					})
				}
			}
			if !bytes.Equal(got, sent) || why != 2 || sequences != 1 {
				t.Fatalf("sent % x, received % x, %d properties changed, %d sequence numbers", sent, got, why, sequences)
			}
		}
	})
}

func FuzzBusAddress(f *testing.F) {
	for _, a := range []string{"q", "a/b/$DeadLetterQueue", "sb://host/t/Subscriptions/s/$deadletterqueue/$management", "$cbs", "$management", "t/subscriptions/", "/", ""} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, address string) {
		n, err := parseBusAddress(address)
		if err != nil || n.special == cbsNode {
			return
		}
		if n.name == "" || strings.Contains(n.name, "$") {
			t.Fatalf("%q is %+v", address, n)
		}
	})
}

func FuzzBusDescription(f *testing.F) {
	f.Add(`<entry><content type="application/xml"><QueueDescription><LockDuration>PT30S</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription></content></entry>`)
	f.Add(`<entry><content><SubscriptionDescription><DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive></SubscriptionDescription></content></entry>`)
	f.Fuzz(func(t *testing.T, text string) {
		var e requestEntry
		if xml.Unmarshal([]byte(text), &e) != nil || e.Queue == nil {
			return
		}
		cfg, err := e.Queue.config()
		if err != nil {
			return
		}
		broker, err := servicebus.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := broker.CreateQueue("q", cfg)
		if err != nil {
			return
		}
		b, err := xml.Marshal(describeQueue(q))
		if err != nil {
			t.Fatal(err)
		}
		var again requestEntry
		if err := xml.Unmarshal(b, &again); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		back, err := again.Queue.config()
		if err != nil || back.Lock != q.Config().Lock || back.TTL != q.Config().TTL || back.MaxDeliveries != q.Config().MaxDeliveries {
			t.Fatalf("%+v became %+v: %v", q.Config(), back, err)
		}
	})
}

func TestBatchCount(t *testing.T) {
	message := amqp.AppendBinary(amqp.AppendSection(nil, amqp.SectionData), amqp.AppendBinary(amqp.AppendSection(nil, amqp.SectionData), nil))
	for n, want := range map[int]int{maxBatch: maxBatch, maxBatch + 1: 0, 0: 0} {
		ms, err := splitBus(amqp.Delivery{Format: formatBatch, Payload: bytes.Repeat(message, n)})
		if len(ms) != want || (err == nil) != (want > 0) {
			t.Errorf("a batch of %d has %d messages: %v", n, len(ms), err)
		}
	}
}

func TestISODurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"PT1M": time.Minute, "PT90S": 90 * time.Second, "P1D": 24 * time.Hour, "P1DT1S": 24*time.Hour + time.Second, "PT0.25S": 250 * time.Millisecond, forever: 0, "": 0,
	} {
		got, err := parseISO(text)
		if err != nil || got != want {
			t.Errorf("%s is %s: %v", text, got, err)
		}
		if back, err := parseISO(formatISO(got)); err != nil || back != got {
			t.Errorf("%s became %s and then %s: %v", got, formatISO(got), back, err)
		}
	}
	for _, text := range []string{"P", "PT", "P1DT", "1M", "PT1", "-PT1S", "PT1.S", "P1Y"} {
		if d, err := parseISO(text); err == nil {
			t.Errorf("%s is %s", text, d)
		}
	}
}
