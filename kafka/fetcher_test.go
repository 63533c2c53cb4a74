package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A partition is only taken for empty if no partition before it in the request had data, whatever
// the order of the readers is: the answer may have had no room for its batch. One that the answer
// leaves out is asked for again, unless the broker throttles.
func TestGive(t *testing.T) {
	c, _ := newFake(t)
	client := c.open(t, nil)
	f := &fetcher{client: client}
	open := func(topic string, partition int32) *reader {
		s, err := client.Source(topic, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(s, partition, driver.Origin)
		r.fetcher = f
		t.Cleanup(r.close)
		return r
	}
	a0, b0, a1, b1 := open("a", 0), open("b", 0), open("a", 1), open("b", 1)
	readers := []*reader{a0, b0, a1, b1}
	req, ids := f.request(readers, true)
	resp := &kmsg.FetchResponse{}
	add := func(topic string, partition int32, data []byte) {
		of := kmsg.NewFetchResponseTopicPartition()
		of.Partition, of.LastStableOffset, of.RecordBatches = partition, 10, data
		part := kmsg.NewFetchResponseTopic()
		part.Topic, part.Partitions = topic, append(part.Partitions, of)
		resp.Topics = append(resp.Topics, part)
	}
	add("a", 0, nil)
	add("a", 1, []byte("data"))
	add("b", 0, nil)
	f.give(readers, req, resp, ids)
	empty := func(r *reader) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.atVoid
	}
	if !empty(a0) || empty(a1) || empty(b0) {
		t.Errorf("taken for empty: %v, %v, %v; want only the first", empty(a0), empty(a1), empty(b0))
	}
	failing := func(r *reader) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.failing.IsZero()
	}
	if failing(b0) || !failing(b1) {
		t.Errorf("failing: %v, %v; want only the one that was left out", failing(b0), failing(b1))
	}
	resp.Topics, resp.ThrottleMillis = nil, 1
	f.give(readers, req, resp, ids)
	if failing(b0) {
		t.Error("failing while the broker throttles")
	}
}

// Records end what was counted against a leader: neither earlier failures nor earlier empty answers
// count on.
func TestRecordsEndTroubles(t *testing.T) {
	c, _ := newFake(t)
	r := newReader(c.source(t, nil), 0, driver.Origin)
	t.Cleanup(r.close)
	earlier := time.Now().Add(-time.Hour)
	r.failing, r.wait, r.void = earlier, retryMost, void{began: earlier, pause: voidPauseMost, empty: 9}
	data := testBatch{records: []kgo.Record{{Value: []byte("a")}}}.encode()
	r.answer(&kmsg.FetchResponseTopicPartition{RecordBatches: data, HighWatermark: 9, LastStableOffset: 9}, len(data), true)
	if r.Paused() || r.wait != retryFirst || r.overdue(kerr.NotLeaderForPartition) {
		t.Errorf("void since %v, wait %v, failing since %v, after records came", r.void.began, r.wait, r.failing)
	}
}

// A leader that answers everything but fetches is reported after the timeout.
func TestNotServed(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	c, fake := newFake(t)
	s, err := c.open(t, &Config{Timeout: 3 * time.Second}).Source(c.topic, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), "0", driver.Origin, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := r.Read(ctx, 1); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "was not served for") {
		t.Errorf("got %v, want that the partition was not served", err)
	}
}

// Brokers may know the requests with topic ids, and have none.
func TestNoTopicIDs(t *testing.T) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Metadata), 9)
	c, _ := newFake(t, kfake.MaxVersions(versions))
	if err := c.append(t.Context(), "0", &driver.Event{Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	s := c.source(t, nil)
	if d, err := s.Describe(t.Context()); err != nil || d.Incarnation != NoTopicID {
		t.Fatalf("described %+v, %v", d, err)
	}
	r, err := s.Open(t.Context(), "0", driver.Origin, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if events, err := r.Read(ctx, 1); err != nil || string(events[0].Body) != "body" {
		t.Errorf("read %v, %v", events, err)
	}
}

// Checkpoints of two clusters must not be stored under one name.
func TestNoClusterID(t *testing.T) {
	c, fake := newFake(t)
	fake.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr(topicName)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if d, err := c.source(t, nil).Describe(t.Context()); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("described %+v, %v; want ErrRefused", d, err)
	}
	if d, err := c.source(t, &SourceConfig{Namespace: "ours"}).Describe(t.Context()); err != nil || d.Namespace != "ours" {
		t.Errorf("described %+v, %v", d, err)
	}
}

// Brokers before 3.0 take the question for the newest time for a timestamp.
func TestBoundsOfOldBrokers(t *testing.T) {
	c, fake := newFake(t, kfake.MaxVersions(kversion.V2_7_0()))
	fake.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp != newestTime {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		oldest := kmsg.NewListOffsetsResponseTopicPartition()
		oldest.Offset, oldest.Timestamp = 0, 1
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic, topic.Partitions = topicName, append(topic.Partitions, oldest)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if err := c.append(t.Context(), "0", &driver.Event{}); err != nil {
		t.Fatal(err)
	}
	if b, err := c.source(t, nil).Bounds(t.Context(), "0"); err != nil || !b.LastEnqueued.IsZero() || b.Last.Sequence != 0 {
		t.Errorf("bounds %+v, %v; want no time", b, err)
	}
}

// A position of a leader epoch that the leader has not reached is one of another log.
func TestEarlierEpochs(t *testing.T) {
	c, _ := newFake(t)
	if err := c.append(t.Context(), "0", &driver.Event{}, &driver.Event{}, &driver.Event{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.source(t, nil).Open(t.Context(), "0", driver.Position{Sequence: 1, Offset: "leader-epoch 1000 from 1"}, 1)
	if cut := new(driver.TruncatedError); !errors.As(err, &cut) || cut.End != 1 {
		t.Errorf("got %v, want that event 1 was lost", err)
	}
}
