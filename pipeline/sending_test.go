package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sender"
)

// service is a destination with 32 partitions that takes a second for each batch, or never answers.
type service struct {
	mute bool

	mu             sync.Mutex
	sent           []time.Time
	inFlight, most int
}

func (s *service) kind() string                  { return "servicebus" }
func (s *service) address() address              { return address{"servicebus", []string{"ns"}, "next"} }
func (s *service) check(context.Context) error   { return nil }
func (s *service) transport() (transport, error) { return s, nil }
func (s *service) Close(context.Context) error   { return nil }
func (s *service) MixesPartitions() bool         { return false }

func (s *service) Partitions(context.Context) ([]string, error) {
	return strings.Fields(strings.Repeat("p ", 32)), nil
}

func (s *service) NewBatch(context.Context, string) (sender.Batch, error) { return &counted{}, nil }

func (s *service) Send(ctx context.Context, _ sender.Batch) (sender.Outcome, error) {
	s.mu.Lock()
	s.sent = append(s.sent, time.Now())
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}()
	if s.mute {
		<-ctx.Done()
		return sender.OutcomeUnknown, ctx.Err()
	}
	time.Sleep(time.Second)
	return sender.OutcomeAccepted, nil
}

// counted is a batch that knows only how many messages it has.
type counted struct{ n int }

func (b *counted) Add(*sender.Message) error { b.n++; return nil }
func (b *counted) Len() int                  { return b.n }
func (b *counted) Bytes() int                { return b.n }

func TestSendSettings(t *testing.T) {
	for _, c := range []struct {
		keys  string
		mute  bool
		check func(s *service, first, last time.Duration, err error) bool
	}{
		{"", false, func(s *service, first, _ time.Duration, err error) bool {
			return first < 100*time.Millisecond && s.most > 3 && err == nil
		}},
		{"batch: {wait: 2s}", false, func(_ *service, first, _ time.Duration, err error) bool { return first >= 2*time.Second && err == nil }},
		{"concurrency: 3", false, func(s *service, _, _ time.Duration, err error) bool { return s.most == 3 && err == nil }},
		{"", true, func(_ *service, _, last time.Duration, err error) bool { return last >= time.Minute && err != nil }},
		{"send_timeout: 5s\n    concurrency: 100", true, func(_ *service, _, last time.Duration, err error) bool {
			return last >= 5*time.Second && last < 10*time.Second && err != nil
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := Parse("p.yaml", []byte(sendFile("kafka:\n    brokers: localhost\n    topic: next\n    "+c.keys)), environment())
			if err != nil {
				t.Fatal(err)
			}
			s := &service{mute: c.mute}
			targetOf[*messageTarget](p).destination = s
			parts := &Parts{pipeline: p}
			sink, err := targetOf[*messageTarget](p).open(t.Context(), parts, telemetry{})
			if err != nil {
				t.Fatal(err)
			}
			const n = 40
			results := make(chan error, n)
			began := time.Now()
			for i := range n {
				sink.Submit(t.Context(), &sender.Message{Key: fmt.Sprint("k", i)}, func(r driver.WriteResult) { results <- r.Err })
			}
			var failed error
			for range n {
				failed = errors.Join(failed, <-results)
			}
			last := time.Since(began)
			if !c.check(s, s.sent[0].Sub(began), last, failed) {
				t.Errorf("%q: the first batch after %v, all after %v, %d at once, %v", c.keys, s.sent[0].Sub(began), last, s.most, failed)
			}
			if err := parts.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func sendFile(target string) string { return sendTo("\n  " + target) }

// sendTo is plainSink with another target.
func sendTo(target string) string {
	return strings.Replace(plainSink, "{http: {url: http://localhost/}}", target, 1)
}

// TestSendLimits fills a batch for each service.
func TestSendLimits(t *testing.T) {
	hubs, err := emulator.Start([]emulator.Hub{{Name: "next", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hubs.Close()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "next"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	for _, target := range []string{"eventhub:\n    connection: ${HUBS}\n    hub: next\n    ", "servicebus:\n    connection: ${BUS}\n    queue: next\n    "} {
		for keys, fits := range map[string]func(n int) bool{
			"batch: {messages: 5}": func(n int) bool { return n == 5 },
			"batch: {bytes: 4KiB}": func(n int) bool { return n >= 1 && n < 4 },
			"batch: {wait: 1s}":    func(n int) bool { return n == 20 },
			"partitioned: true":    func(n int) bool { return n == 7 },
		} {
			if strings.HasPrefix(keys, "partitioned") && !strings.HasPrefix(target, "servicebus") {
				continue
			}
			p, err := Parse("p.yaml", []byte(sendFile(target+keys)), environment("HUBS="+hubs.ConnectionString(), "BUS="+bus.ConnectionString()))
			if err != nil {
				t.Fatal(err)
			}
			out, err := targetOf[*messageTarget](p).transport()
			if err != nil {
				t.Fatal(err)
			}
			partitions, err := out.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			batch, err := out.NewBatch(t.Context(), partitions[0])
			if err != nil {
				t.Fatal(err)
			}
			for batch.Len() < 20 {
				if err = batch.Add(&sender.Message{Key: fmt.Sprint("k", batch.Len()/7), Body: make([]byte, 1<<10)}); err != nil {
					break
				}
			}
			if !fits(batch.Len()) || err != nil && !errors.Is(err, sender.ErrTooLarge) {
				t.Errorf("%s%s: a batch of %d messages, %v", target, keys, batch.Len(), err)
			}
			if err := out.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// held is a destination that sends no batch before it is released.
type held struct {
	destination
	inFlight chan struct{} // reports each batch
	released chan struct{}
}

func (h *held) transport() (transport, error) {
	out, err := h.destination.transport()
	return heldTransport{out, h}, err
}

type heldTransport struct {
	transport
	*held
}

func (t heldTransport) Close(ctx context.Context) error { return t.transport.Close(ctx) }

func (t heldTransport) Send(ctx context.Context, batch sender.Batch) (sender.Outcome, error) {
	select {
	case t.inFlight <- struct{}{}:
		<-t.released
	case <-t.released:
	}
	return t.transport.Send(ctx, batch)
}

// countTo counts what begins, until there is one too many. No event shows that no more will begin:
// of a number that is right it waits a moment for the next.
func countTo(begins <-chan struct{}, tooMany int) (n int) {
	for wait := time.Minute; n < tooMany; n++ {
		if n == tooMany-1 {
			wait = 50 * time.Millisecond
		}
		select {
		case <-begins:
		case <-time.After(wait):
			return n
		}
	}
	return n
}

// TestConcurrency counts the batches that are in flight to each service, of which none is answered.
func TestConcurrency(t *testing.T) {
	const n = 400
	logs := startLogs(t, 32)
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "flights"}}, nil, nil)
	suite.NoError(t, "emulator", err)
	defer bus.Close()
	for _, target := range []struct {
		text  string
		usual int
	}{
		{aHub, 16}, {aTopic, 16}, {`{servicebus: {queue: flights, connection: "${SERVICEBUS_CONNECTION_STRING}"`, 4},
	} {
		for keys, want := range map[string]int{"": target.usual, ", concurrency: 3": 3, ", concurrency: 20": 20} {
			p, err := Parse("p.yaml", []byte(sendTo(target.text+keys+"}}")), logs.environment("SERVICEBUS_CONNECTION_STRING="+bus.ConnectionString()))
			suite.NoError(t, "parse", err)
			h := &held{targetOf[*messageTarget](p).destination, make(chan struct{}), make(chan struct{})}
			targetOf[*messageTarget](p).destination = h
			parts := &Parts{pipeline: p}
			sink, err := targetOf[*messageTarget](p).open(suite.Context(t), parts, telemetry{})
			suite.NoError(t, "open", err)
			results := make(chan error, n)
			for i := range n {
				sink.Submit(t.Context(), &sender.Message{Key: fmt.Sprint("k", i)}, func(r driver.WriteResult) { results <- r.Err })
			}
			if got := countTo(h.inFlight, want+1); got != want {
				t.Errorf("%s%s: %d batches are in flight, want %d", target.text, keys, got, want)
			}
			close(h.released)
			for range n {
				suite.NoError(t, "send", <-results)
			}
			suite.NoError(t, "close", parts.Close(suite.Context(t)))
		}
	}
}

func TestSendErrors(t *testing.T) {
	const hub, topic = "eventhub: {hub: next, ", "kafka: {brokers: localhost, topic: next, "
	for target, want := range map[string]string{
		hub + "batch: {messages: 0}}":                     `p.yaml:6:33: target.eventhub.batch.messages: "0": write a whole number from 1 to 100000`,
		hub + "batch: {bytes: 10}}":                       `p.yaml:6:33: target.eventhub.batch.bytes: "10": write a number of bytes from 1024 to 268435456`,
		hub + "batch: {wait: 1h}}":                        `p.yaml:6:33: target.eventhub.batch.wait: "1h": write a duration from 1ms to 10m0s`,
		hub + "concurrency: 0}":                           `p.yaml:6:25: target.eventhub.concurrency: "0": write a whole number from 1 to 1024`,
		hub + "send_timeout: 1ms}":                        `p.yaml:6:25: target.eventhub.send_timeout: "1ms": write a duration from 1s to 10m0s`,
		topic + "batch: {messages: 5}}":                   `p.yaml:6:52: target.kafka.batch.messages: unknown key: known keys are wait`,
		"servicebus: {queue: next, partitioned: perhaps}": `p.yaml:6:29: target.servicebus.partitioned: "perhaps": write one of true, false`,
	} {
		if _, err := Parse("p.yaml", []byte(sendFile(target)), environment()); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	p, err := Parse("p.yaml", []byte(sendFile("servicebus:\n    connection: ${EVENTHUB_CONNECTION_STRING}\n    queue: next\n    partitioned: true\n    concurrency: 7\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	if e := targetOf[*messageTarget](p).destination.(*serviceBusEntity); !e.partitioned || e.writers != 7 {
		t.Errorf("%+v", e)
	}
}
