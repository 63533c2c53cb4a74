package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kinds are the Kafkas that the tests of behaviour run against: the fake and a broker. Each makes
// a topic of two partitions.
var kinds = map[string]func(t testing.TB, configs ...string) *cluster{
	"fake": func(t testing.TB, _ ...string) *cluster {
		c, _ := newFake(t)
		return c
	},
	"Kafka": newReal,
}

// onEach runs a test against each kind of Kafka.
func onEach(t *testing.T, test func(t *testing.T, c *cluster)) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(kind, func(t *testing.T) { test(t, kinds[kind](t)) })
	}
}

// transaction is an open transaction in a partition.
type transaction struct {
	t  testing.TB
	cl *kgo.Client
}

// begin begins a transaction with records in partition 0, which the broker has.
func (c *cluster) begin(t testing.TB, id string, bodies ...string) transaction {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.TransactionalID(c.topic+id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	suite.NoError(t, "client", err)
	t.Cleanup(cl.Close)
	suite.NoError(t, "begin", cl.BeginTransaction())
	for _, body := range bodies {
		suite.NoError(t, "produce", cl.ProduceSync(suite.Context(t), &kgo.Record{Topic: c.topic, Value: []byte(body)}).FirstErr())
	}
	return transaction{t, cl}
}

func (tx transaction) end(commit kgo.TransactionEndTry) {
	tx.t.Helper()
	suite.NoError(tx.t, "end", tx.cl.EndTransaction(suite.Context(tx.t), commit))
}

// send appends events to partition 0.
func (c *cluster) send(t testing.TB, bodies ...string) {
	t.Helper()
	var events []*driver.Event
	for _, body := range bodies {
		events = append(events, &driver.Event{Body: []byte(body)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a leader may have to be elected
	defer cancel()
	suite.NoError(t, "append", c.append(ctx, "0", events...))
}

// openAt opens a reader of partition 0.
func openAt(t testing.TB, s driver.Source, after driver.Position) driver.Reader {
	t.Helper()
	r, err := s.Open(suite.Context(t), "0", after, 1)
	suite.NoError(t, "open", err)
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	return r
}

// readTo reads up to a number, and returns the bodies and the position of what came last.
func readTo(t testing.TB, r driver.Reader, number int64) (bodies string, at driver.Position) {
	t.Helper()
	for at.Sequence = -1; at.Sequence < number; {
		events, err := r.Read(suite.Context(t), 100)
		suite.NoError(t, fmt.Sprintf("read after %v", at), err)
		for i, e := range events {
			if e.Sequence <= at.Sequence || e.Partition != "0" {
				t.Fatalf("event %d of partition %s came after %d", e.Sequence, e.Partition, at.Sequence)
			}
			if e.Control && (i != len(events)-1 || e.Body != nil || e.Key != "" || e.Headers != nil || !e.Enqueued.IsZero()) {
				t.Errorf("a marker is not the last, or holds something: %+v", e)
			}
			at = e.Position()
			bodies += string(e.Body)
		}
	}
	return bodies, at
}

func last(t testing.TB, s driver.Source) int64 {
	t.Helper()
	b, err := s.Bounds(suite.Context(t), "0")
	suite.NoError(t, "bounds", err)
	return b.Last.Sequence
}

// Only what is committed is read, in order, and the numbers of the rest are passed, also where they
// are at the end.
func TestTransactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *cluster) {
		s := c.source(t, nil)
		r := openAt(t, s, driver.Origin)
		c.send(t, "a")
		one := c.begin(t, "one", "b", "c")
		one.end(kgo.TryCommit)
		suite.NoError(t, "begin again", one.cl.BeginTransaction())
		suite.NoError(t, "produce", one.cl.ProduceSync(suite.Context(t), &kgo.Record{Topic: c.topic, Value: []byte("x")}).FirstErr())
		one.end(kgo.TryAbort)
		suite.NoError(t, "begin again", one.cl.BeginTransaction())
		suite.NoError(t, "produce", one.cl.ProduceSync(suite.Context(t), &kgo.Record{Topic: c.topic, Value: []byte("d")}).FirstErr())
		one.end(kgo.TryCommit)
		c.send(t, "e")
		two := c.begin(t, "two", "y", "z")
		two.end(kgo.TryAbort)

		// 8 records and 4 markers. A broker writes a marker a moment after the transaction's end.
		const end = 11
		suite.Eventually(t, "the partition ends at 11", func() bool { return last(t, s) == end })
		for name, r := range map[string]driver.Reader{"during": r, "later": openAt(t, s, driver.Origin)} {
			if got, at := readTo(t, r, end); got != "abcde" || at.Sequence != end {
				t.Errorf("%s: read %q up to %v, want abcde up to %d", name, got, at, end)
			}
		}
		latest, err := s.Seek(suite.Context(t), "0", sluice.Latest(), 1)
		if err != nil || latest.Sequence != end {
			t.Errorf("latest is %v, %v; want %d", latest, err, end)
		}
		// From each number on, whether it is an event or not.
		for after, want := range map[int64]string{0: "bcde", 1: "cde", 2: "de", 3: "de", 4: "de", 5: "de", 6: "e", 7: "e", 8: "", 10: ""} {
			if got, _ := readTo(t, openAt(t, s, driver.Position{Sequence: after}), end); got != want {
				t.Errorf("after %d: read %q, want %q", after, got, want)
			}
		}
		uncommitted := c.source(t, &SourceConfig{ReadUncommitted: true})
		if got, at := readTo(t, openAt(t, uncommitted, driver.Origin), end); got != "abcxdeyz" || at.Sequence != end {
			t.Errorf("uncommitted: read %q up to %v, want abcxdeyz up to %d", got, at, end)
		}
	})
}

// The log says what an open transaction holds back, whose it is, and how to end it.
func TestHeldBack(t *testing.T) {
	onEach(t, func(t *testing.T, c *cluster) {
		s := c.source(t, nil)
		c.send(t, "a")
		bounds := func(s driver.Source) driver.Bounds {
			t.Helper()
			b, err := s.Bounds(suite.Context(t), "0")
			suite.NoError(t, "bounds", err)
			return b
		}
		if b := bounds(s); b.Held != nil || b.Lag(driver.Origin) != 1 {
			t.Errorf("nothing is open: %+v, %+v", b, b.Held)
		}
		tx := c.begin(t, "", "b", "c")
		first, b := bounds(s), bounds(s)
		if b.Held == nil || first.Held == nil || b.Held.Last != 2 || b.Last.Sequence != 0 || b.Lag(driver.Origin) != 3 {
			t.Fatalf("with an open transaction: %+v, %+v", b, b.Held)
		}
		for _, want := range []string{"from offset 1 on", "last stable offset 1, high watermark 3"} {
			if !strings.Contains(first.Held.What, want) {
				t.Errorf("%q does not have %q", first.Held.What, want)
			}
		}
		if want := " of producer id "; !strings.Contains(b.Held.What, want) && t.Name() != "TestHeldBack/fake" {
			t.Errorf("%q does not have %q", b.Held.What, want)
		}
		if want := fmt.Sprintf(" abort --topic %s --partition 0 --start-offset 1`", s.topic); !strings.Contains(b.Held.Check, want) {
			t.Errorf("%q does not have %q", b.Held.Check, want)
		}
		if b := bounds(c.source(t, &SourceConfig{ReadUncommitted: true})); b.Held != nil || b.Last.Sequence != 2 {
			t.Errorf("read uncommitted: %+v, %+v", b, b.Held)
		}
		tx.end(kgo.TryAbort)
		suite.Eventually(t, "the end is that of the log", func() bool { b := bounds(s); return b.Held == nil && b.Last.Sequence == 3 })
	})
}

// What comes after the beginning of an open transaction waits for its end.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *cluster) {
		s := c.source(t, nil)
		r := openAt(t, s, driver.Origin)
		c.send(t, "a")
		tx := c.begin(t, "", "b")
		c.send(t, "c")
		if got, at := readTo(t, r, 0); got != "a" || at.Sequence != 0 || last(t, s) != 0 {
			t.Errorf("read %q up to %v, and the partition ends at %d; want a, 0, 0", got, at, last(t, s))
		}
		latest, err := s.Seek(suite.Context(t), "0", sluice.Latest(), 1)
		if err != nil || latest.Sequence != 0 {
			t.Errorf("latest is %v, %v; want 0: what is open may be committed", latest, err)
		}
		more := suite.Spawn(t, func() string {
			events, err := r.Read(suite.Context(t), 10)
			return fmt.Sprint(len(events), err)
		})
		if got, came := suite.Settled(more); came {
			t.Errorf("read %s of an open transaction", got)
		}
		uncommitted := c.source(t, &SourceConfig{ReadUncommitted: true})
		if got, _ := readTo(t, openAt(t, uncommitted, driver.Origin), 2); got != "abc" || last(t, uncommitted) != 2 {
			t.Errorf("uncommitted: read %q, want abc", got)
		}
		tx.end(kgo.TryCommit)
		if got := <-more; got[len(got)-5:] != "<nil>" {
			t.Errorf("after the commit: %s", got)
		}
		suite.Eventually(t, "the partition ends with the marker", func() bool { return last(t, s) == 3 })
		if got, _ := readTo(t, openAt(t, s, latest), 3); got != "bc" {
			t.Errorf("read %q after the commit, want bc", got)
		}
	})
}
