package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// emptied returns a source whose broker empties so many fetch responses, and negative: all.
func (c *cluster) emptied(t testing.TB, responses int) (*Source, *emptier) {
	t.Helper()
	e := &emptier{left: responses}
	s, err := c.open(t, &Config{Dial: e.dial}).Source(c.topic, "test", nil)
	suite.NoError(t, "source", err)
	s.voidFor = 300 * time.Millisecond
	if responses > 0 { // then the records come
		s.voidFor = time.Hour
	}
	return s, e
}

// compactedTopic returns a topic of one partition that is compacted, of the kind that a cluster is.
func compactedTopic(t testing.TB, kind string) *cluster {
	if kind == "Kafka" {
		return newReal(t, "cleanup.policy=compact")
	}
	c, _ := newFake(t)
	c.compact(t)
	return c
}

// compact has the topic compacted.
func (c *cluster) compact(t testing.TB) {
	t.Helper()
	policy := "compact"
	_, err := c.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, c.topic)
	suite.NoError(t, "alter the topic", err)
}

// A broker returns nothing, though its log ends later. If it returns the records after all, each
// event is read, however often it did so before.
func TestEmptyAnswers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *cluster) {
		for _, compacted := range []bool{false, true} {
			for _, responses := range []int{1, 3} {
				t.Run(fmt.Sprintf("compacted %v, %d times", compacted, responses), func(t *testing.T) {
					var c *cluster
					if compacted {
						c = compactedTopic(t, kindOf(t))
					} else {
						c = kinds[kindOf(t)](t)
					}
					c.keyed(t, 20)
					s, e := c.emptied(t, responses)
					got, at := readTo(t, openAt(t, s, driver.Origin), 19)
					if want := strings.Join(numbered("event", 20), ""); got != want || at.Sequence != 19 || e.count() != responses {
						t.Errorf("%d empty answers: read %q up to %v, want %q", e.count(), got, at, want)
					}
				})
			}
		}
	})
}

// Where it cannot be found out why a broker returns nothing, the numbers are not passed, and the
// reader ends with the reason; likewise if the log has grown, and the broker still returns nothing.
func TestUnprovedVoid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code   int16
		newest int64
		want   string
	}{
		"refused": {kerr.UnknownServerError.Code, -1, "find out why the broker returned nothing at offset 0"},
		"grown":   {0, 20, "the broker names a record behind the end of its log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, fake := newFake(t)
			c.compact(t)
			c.keyed(t, 20)
			fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				list := req.(*kmsg.ListOffsetsRequest)
				if list.Topics[0].Partitions[0].Timestamp != newestTime {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				topic := kmsg.NewListOffsetsResponseTopic()
				topic.Topic = list.Topics[0].Topic
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.ErrorCode, p.Offset = test.code, test.newest
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			s, _ := c.emptied(t, -1)
			events, err := openAt(t, s, driver.Origin).Read(suite.Context(t), 100)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("read %v, %v; want %q", events, err, test.want)
			}
		})
	}
}

// A consumer of a broker that returns nothing for a while handles each event once, and its
// checkpoint passes none. If that lasts, the partition is halted until the broker returns records.
func TestConsumerOfEmptyAnswers(t *testing.T) {
	need.Kafka(t)
	t.Parallel()
	for _, compacted := range []bool{false, true} {
		for _, responses := range []int{1, 10, -1} {
			t.Run(fmt.Sprintf("compacted %v, %d times", compacted, responses), func(t *testing.T) {
				t.Parallel()
				c := newReal(t)
				if compacted {
					c = compactedTopic(t, "Kafka")
				}
				c.keyed(t, 20)
				s, e := c.emptied(t, responses)
				s.voidFor = time.Second // half of ten answers take longer
				began := time.Now()
				run := consumeFrom(t, s, &sluicetest.Store{})
				if responses != 1 {
					err := run.halted(t, "0")
					t.Logf("halted after %v and %d empty answers: %v", time.Since(began).Round(100*time.Millisecond), e.count(), err)
					if missing, is := errors.AsType[*driver.RetentionError](err); !is || !missing.Held || len(run.rows()) > 0 {
						t.Errorf("halted by %v, after %d effects", err, len(run.rows()))
					}
				}
				if responses < 0 {
					e.mu.Lock()
					e.left = 0
					e.mu.Unlock()
				}
				run.wants(t, 20)
				run.awaitCheckpoint(t, "0", 19)
				t.Logf("20 events after %v and %d empty answers", time.Since(began).Round(100*time.Millisecond), e.count())
			})
		}
	}
}

// In a topic that is not compacted every number is a record's. One that is missing, wherever it is,
// is reported, and nothing after it is read; but a broker may take numbers for the beginning of a
// transaction.
func TestMissingRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 2000 {
		after := int64(rng.IntN(4)) - 1 // 0 to 3 records of the first batches were read before
		missing := after + 1 + int64(rng.IntN(30))
		var data []byte
		number := int64(0)
		later, explained := false, false // a batch after the missing number; of a transaction
		for range 1 + rng.IntN(8) {
			b := testBatch{first: number, attributes: int16(rng.IntN(2)) << 4, producer: 1}
			n := int64(1 + rng.IntN(6))
			b.delta = int32(n - 1)
			for i := range n {
				if number+i != missing {
					b.records = append(b.records, kgo.Record{Offset: i, Value: []byte("x")})
				}
			}
			whole := len(b.records) == 0 // the batch, as a broker may leave it out
			if number += n; whole && rng.IntN(2) == 0 {
				continue
			}
			data = append(data, b.encode()...)
			if first := number - n; first > missing && !later {
				later, explained = true, b.attributes != 0
			}
		}
		events, d, err := decodeAs(false, &kmsg.FetchResponseTopicPartition{RecordBatches: data}, after, 1<<20)
		gap, is := errors.AsType[*gapError](err)
		switch {
		case is && (gap.first > missing || gap.last < missing || d.decoded >= missing):
			t.Fatalf("round %d: %v after %d, want %d to be missing", round, err, d.decoded, missing)
		case is, err == nil && (d.decoded < missing || explained):
		default:
			t.Fatalf("round %d: read %d events up to %d, passed %+v: %v; want an error about %d", round, len(events), d.decoded, d.passed, err, missing)
		}
	}
}

// kindOf returns the kind of cluster of a test of onEach.
func kindOf(t *testing.T) string { return strings.Split(t.Name(), "/")[1] }

// keyed sends events with a key each.
func (c *cluster) keyed(t testing.TB, n int) {
	t.Helper()
	var events []*driver.Event
	for i, body := range numbered("event", n) {
		events = append(events, &driver.Event{Key: fmt.Sprint(i), Body: []byte(body)})
	}
	suite.NoError(t, "append", c.append(suite.Context(t), "0", events...))
}

// A process that is paused after an empty answer has waited for long when it goes on. One answer
// or two prove nothing even then.
func TestPausedAfterEmptyAnswers(t *testing.T) {
	t.Parallel()
	for responses := 1; responses < voidLeast; responses++ {
		c, _ := newFake(t)
		c.keyed(t, 20)
		s, e := c.emptied(t, responses)
		s.voidFor = 1 // it has passed at any answer
		if got, _ := readTo(t, openAt(t, s, driver.Origin), 19); got != strings.Join(numbered("event", 20), "") {
			t.Errorf("read %q after %d empty answers", got, e.count())
		}
	}
}

// A broker returns nothing for ever, though its log ends later. The events are reported as missing,
// the topic compacted or not: the broker names a later record. Once it returns them, they are read.
func TestEmptyAnswersForEver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *cluster) {
		for _, compacted := range []bool{false, true} {
			t.Run(fmt.Sprintf("compacted %v", compacted), func(t *testing.T) {
				c, hint := kinds[kindOf(t)](t), "the topic is not compacted"
				if compacted {
					c, hint = compactedTopic(t, kindOf(t)), "it names a record at "
				}
				c.keyed(t, 20)
				s, e := c.emptied(t, -1)
				_, err := openAt(t, s, driver.Origin).Read(suite.Context(t), 100)
				missing, is := errors.AsType[*driver.RetentionError](err)
				if !is || !missing.Held || missing.After != -1 || missing.First != 20 || !strings.Contains(missing.Hint, hint) {
					t.Fatalf("after %d empty answers: %v, want that events 0 to 19 are missing, and %q", e.count(), err, hint)
				}
				if e.count() < voidLeast {
					t.Errorf("asked %d times, want at least %d", e.count(), voidLeast)
				}
				e.mu.Lock()
				e.left = 0
				e.mu.Unlock()
				if got, _ := readTo(t, openAt(t, s, driver.Origin), 19); got != strings.Join(numbered("event", 20), "") {
					t.Errorf("read %q once the broker returns records again", got)
				}
			})
		}
	})
}
