package lag_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

var group = sluice.Group{Namespace: "ns", Topic: "flights", Name: "$Default"}

// world is a hub of two partitions and a store of checkpoints, in memory.
type world struct {
	*testing.T
	hub   *sluicetest.Hub
	store *sluicetest.Store
}

func newWorld(t *testing.T) *world {
	return &world{t, sluicetest.NewHub(group, 2), &sluicetest.Store{}}
}

func (w *world) events(partition string, n int) {
	for range n {
		w.hub.Append(partition, &sluice.Event{Body: []byte("x")})
	}
}

// done sets a checkpoint of the hub as it is now.
func (w *world) done(partition string, last int64) {
	w.Helper()
	topic, err := w.hub.Describe(w.Context())
	if err == nil {
		_, err = w.store.Reset(w.Context(), group, partition, topic.Incarnation, sluice.Position{Sequence: last}, "set")
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(cfg *lag.Config) (float64, error) {
	r, err := lag.New(w.hub, w.store, group, cfg).Read(w.Context())
	return r.Value, err
}

func (w *world) expect(what string, want float64, cfg *lag.Config) {
	w.Helper()
	if got, err := w.read(cfg); err != nil || got != want {
		w.Errorf("%s: lag is %v, %v; want %v", what, got, err, want)
	}
}

func TestLag(t *testing.T) {
	w := newWorld(t)
	w.expect("an empty hub without checkpoints", 0, nil)
	w.events("0", 10)
	w.events("1", 5)
	w.expect("nothing done", 15, nil)
	w.done("0", 3)
	w.expect("four of ten done, and nothing of five", 11, nil)
	w.done("0", 9)
	w.done("1", 4)
	w.expect("all done", 0, nil)
	w.done("0", -1)
	w.hub.Trim("0", 7)
	w.expect("retention has taken seven of ten", 3, nil)
	w.hub.Trim("0", 10)
	w.expect("retention has taken all", 0, nil)
}

func TestWithoutCheckpoints(t *testing.T) {
	w := newWorld(t)
	w.events("0", 10)
	w.hub.Trim("0", 2)
	for _, c := range []struct {
		start sluice.Start
		want  float64
	}{
		{sluice.Earliest(), 8},
		{sluice.Latest(), 0},
		{sluice.FromSequence(7), 3},
		{sluice.FromSequence(0), 8},
		{sluice.FromSequence(99), 0},
		{sluice.At(time.Now().Add(-time.Hour)), 8},
		{sluice.At(time.Now().Add(time.Hour)), 0},
		{sluice.Ago(time.Hour), 8},
		{sluice.FromOffset("4"), 8},
	} {
		w.expect(c.start.String(), c.want, &lag.Config{Start: c.start})
	}
	// Claimed without a position: as if there were no checkpoint.
	topic, err := w.hub.Describe(t.Context())
	if err == nil {
		_, err = w.store.Claim(t.Context(), sluice.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}, topic.Incarnation)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.expect("claimed", 0, &lag.Config{Start: sluice.Latest()})
}

func TestRecreatedHub(t *testing.T) {
	w := newWorld(t)
	w.events("0", 1000)
	w.done("0", 10)
	w.hub.Recreate()
	w.events("0", 5000)
	_, err := w.read(nil)
	var recreated *lag.RecreatedError
	if !errors.As(err, &recreated) || recreated.Partition != "0" || !strings.Contains(err.Error(), "flights was recreated") {
		t.Errorf("got %v", err)
	}
}

// A hub reports late, or never, what it holds: a partition whose checkpoint is ahead of that
// counts as 0, and the others count.
func TestCheckpointAheadOfTheReport(t *testing.T) {
	w := newWorld(t)
	w.events("0", 3)
	w.events("1", 10)
	w.done("0", 7)
	w.done("1", 3)
	w.expect("the checkpoint of one partition is ahead", 6, nil)
}

// listed is a store that knows one group's checkpoints.
type listed []sluice.Checkpoint

func (l listed) Read(context.Context, sluice.Group) ([]sluice.Checkpoint, error) { return l, nil }

func TestDoneBehindTheCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.events("0", 100)
	topic, err := w.hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := listed{{Partition: "0", Incarnation: topic.Incarnation, Position: sluice.Position{Sequence: 9}, Done: []driver.SequenceRange{{First: 20, Last: 29}, {First: 50, Last: 50}}}}
	r, err := lag.New(w.hub, at, group, nil).Read(t.Context())
	if err != nil || r.Value != 79 {
		t.Errorf("lag is %v, %v; want 79", r.Value, err)
	}
	w.hub.Trim("0", 25) // 75 are left, six of which are done
	if r, err = lag.New(w.hub, at, group, nil).Read(t.Context()); err != nil || r.Value != 69 {
		t.Errorf("lag is %v, %v; want 69: events that retention has removed do not count", r.Value, err)
	}
}

// slow is a hub that counts concurrent calls, and fails for one partition.
type slow struct {
	driver.Source
	ids          []string
	asking, most atomic.Int32
	fail         string
}

func (s *slow) Describe(context.Context) (sluice.Topic, error) {
	return sluice.Topic{Group: group, Incarnation: "1", Partitions: s.ids}, nil
}

func (s *slow) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	n := s.asking.Add(1)
	defer s.asking.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	if partition == s.fail {
		return driver.Bounds{}, errors.New("no answer")
	}
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return driver.Bounds{First: 0, Last: sluice.Position{Sequence: 9}}, nil
	case <-ctx.Done():
		return driver.Bounds{}, ctx.Err()
	}
}

func TestManyPartitions(t *testing.T) {
	hub := &slow{}
	for i := range 100 {
		hub.ids = append(hub.ids, strconv.Itoa(i))
	}
	r, err := lag.New(hub, listed{}, group, &lag.Config{Parallel: 5}).Read(t.Context())
	if most := hub.most.Load(); err != nil || r.Value != 1000 || most > 5 || most < 2 {
		t.Errorf("lag is %v, %v, with up to %d partitions asked for at once; want 1000 and 5", r.Value, err, most)
	}
	hub.fail = "50"
	source := lag.New(hub, listed{}, group, nil)
	const silent = "lag of flights: bounds of partition 50: no answer"
	if r, err = source.Read(t.Context()); err == nil || r.Value != 0 || err.Error() != silent {
		t.Errorf("one partition never answered: %v, %v", r.Value, err)
	}
	hub.fail = ""
	if r, err = source.Read(t.Context()); err != nil || r.Value != 1000 {
		t.Errorf("all answer: %v, %v", r.Value, err)
	}
	if m, err := source.Measure(t.Context()); err != nil || m != (lag.Measurement{Events: 1000, Partitions: 100}) {
		t.Errorf("all answer: %v, %v", m, err)
	}
	hub.fail = "50"
	if r, err = source.Read(t.Context()); err != nil || r.Value != 1000 {
		t.Errorf("one partition does not answer any more: %v, %v; want its lag of before", r.Value, err)
	}
	if m, err := source.Measure(t.Context()); err == nil || m.Events != 0 || err.Error() != silent {
		t.Errorf("one partition does not answer any more, and the measurement is %v, %v", m, err)
	}
	hub.ids = []string{"50"}
	if r, err = source.Read(t.Context()); err == nil || r.Value != 0 || err.Error() != silent {
		t.Errorf("no partition answers: %v, %v", r.Value, err)
	}
}

// TestEmulatorAndSQLite: over the wire, with the checkpoints of a real store.
func TestEmulatorAndSQLite(t *testing.T) {
	ctx := t.Context()
	server, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	hub, err := eventhub.New(server.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close(context.Background())
	store, err := sqlstore.OpenSQLite(t.TempDir()+"/flights.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	source := lag.New(hub, store, hub.Group(), nil)
	if r, err := source.Read(ctx); err != nil || r.Value != 0 {
		t.Fatalf("an empty hub: %v, %v", r, err)
	}

	client, err := azeventhubs.NewProducerClientFromConnectionString(server.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	batch, err := client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("2")})
	for i := 0; err == nil && i < 40; i++ {
		err = batch.AddEventData(&azeventhubs.EventData{Body: []byte("x")}, nil)
	}
	if err == nil {
		err = client.SendEventDataBatch(ctx, batch, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	topic, err := hub.Describe(ctx)
	if err == nil {
		_, err = store.Reset(ctx, hub.Group(), "2", topic.Incarnation, sluice.Position{Sequence: 29}, "set")
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := source.Read(ctx); err != nil || r.Value != 10 {
		t.Errorf("30 of 40 done: %v, %v", r, err)
	}
	server.Close()
	bound, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if r, err := source.Read(bound); err == nil {
		t.Errorf("the hub is gone, and its lag is %v", r)
	}
}
