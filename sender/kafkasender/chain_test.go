package kafkasender_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

func sourceOf(t testing.TB, client *kafka.Client, topic, group string) *kafka.Source {
	t.Helper()
	source, err := client.Source(topic, group, &kafka.SourceConfig{Namespace: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := source.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return source
}

// stage is a stage of a chain, which sends what it makes of the events of one topic to another.
type stage struct {
	from, to string
	key      []byte
	split    func(context.Context, *sluice.Event) ([]*sender.Message, error)
	store    sluicetest.Store
	leases   sluicetest.Leases
}

// start starts a process of the stage, which runs until kill is called.
func (s *stage) start(t *testing.T, client *kafka.Client, cfg sluice.Config) (kill func()) {
	t.Helper()
	sink := sender.NewSink(newTransport(t, client, s.to, nil), &sender.SinkConfig{StampKey: s.key, Timeout: 3 * time.Second})
	delivery := sluice.AtLeastOnce(&s.store, sender.Stamped(s.split), sink, nil)
	consumer, err := sluice.New(sourceOf(t, client, s.from, s.to), &s.leases, delivery, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); consumer.Run(ctx) }()
	return func() {
		cancel()
		<-ran
		sink.Close(context.Background())
	}
}

// TestChain runs two stages in a row over topics. The first is killed again and again, answers are
// lost, brokers are away and leaders move. Each event has its effects at the end of the chain
// exactly once, although its messages were sent more often.
func TestChain(t *testing.T) {
	const events, seeds = 300, 3
	key := []byte("a key of the stages in this test")
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 3))
			c := start(t, 2, kfake.SeedTopics(2, "raw"), kfake.SeedTopics(3, "clean"))
			client := c.client(t)
			c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if chance.IntN(8) == 0 {
					c.loseAnswers()
				}
				return nil, nil, false
			})

			split := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
				keyless := &sender.Message{Body: e.Body, Headers: e.Headers}
				keyed := &sender.Message{Key: e.Key, Body: append([]byte("again "), e.Body...), Headers: e.Headers}
				return []*sender.Message{keyless, keyed}, nil
			}
			first := stage{from: "raw", to: "clean", key: key, split: split}
			start := func(owner string) (kill func()) { return first.start(t, c.client(t), sluice.Config{Owner: owner}) }

			last := &sluicetest.Store{}
			insert := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				if len(e.Headers) == 0 || e.Headers[0].Name != "city" || string(e.Headers[0].Value) != "Lyon" {
					t.Errorf("headers %q", e.Headers)
				}
				return tx.Insert("effects", string(e.Body))
			})
			consumer, err := sluice.New(sourceOf(t, client, "clean", "store"), &sluicetest.Leases{}, sluice.Transactional(last, insert),
				&sluice.Config{StampsFrom: []stamp.Source{{Topic: "raw", Key: key}}})
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- consumer.Run(t.Context()) }()

			kill := start("0")
			raw := newSink(t, newTransport(t, client, "raw", nil), &sender.SinkConfig{Timeout: time.Hour})
			var submit func(*sender.Message)
			submit = func(m *sender.Message) {
				raw.Submit(t.Context(), m, func(r driver.WriteResult) {
					if r.Err != nil { // it was not sent because the brokers are away
						time.AfterFunc(time.Second, func() { submit(m) })
					}
				})
			}
			for i := range events {
				submit(&sender.Message{Key: fmt.Sprint("key-", i%31), Body: []byte(strconv.Itoa(i)), Properties: map[string]any{"city": "Lyon"}})
				time.Sleep(time.Duration(chance.IntN(400)) * time.Millisecond)
				switch chance.IntN(40) {
				case 0:
					kill()
					kill = start(strconv.Itoa(i))
				case 1:
					if err := c.MoveTopicPartition("clean", chance.Int32N(3), chance.Int32N(3)); err != nil {
						t.Error(err)
					}
				case 2:
					comeBack := c.goAway()
					time.Sleep(time.Duration(chance.IntN(20)) * time.Second)
					comeBack()
				}
			}
			time.Sleep(10 * time.Minute)
			kill()
			if err := consumer.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil {
				t.Error(err)
			}
			times := map[string]int{}
			for _, row := range last.Rows("effects") {
				times[row.(string)]++
			}
			for i := range events {
				for _, body := range []string{fmt.Sprint(i), fmt.Sprint("again ", i)} {
					if n := times[body]; n != 1 {
						t.Errorf("seed %d: %q has its effect %d times", seed, body, n)
					}
				}
			}
			sent := int64(0)
			for _, p := range c.PartitionInfos("clean") {
				sent += p.HighWatermark
			}
			if sent <= 2*events {
				t.Errorf("seed %d: %d messages stored: this shows nothing", seed, sent)
			}
			t.Logf("%d messages stored for %d", sent, 2*events)
		})
	}
}
