package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	official "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// sdkStore is the checkpoint store of the official SDK over the container.
func (p place) sdkStore(t testing.TB) *official.BlobStore {
	t.Helper()
	s, err := official.NewBlobStore(p.client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copied are the checkpoints that the official SDK reads, by partition: number@offset.
func (p place) copied(t testing.TB, g driver.Group) map[string]string {
	t.Helper()
	list, err := p.sdkStore(t).ListCheckpoints(t.Context(), g.Namespace, g.Topic, g.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, c := range list {
		found[c.PartitionID] = fmt.Sprintf("%d@%s", *c.SequenceNumber, *c.Offset)
	}
	return found
}

// lower is how all SDKs but Go's name the group.
var lower = driver.Group{Namespace: group.Namespace, Topic: group.Topic, Name: strings.ToLower(group.Name)}

func (p place) mirror(t testing.TB, observer driver.Observer) *blobstore.Mirror {
	t.Helper()
	m, err := blobstore.NewMirror(t.Context(), p.client(t), group, &blobstore.MirrorConfig{Every: 20 * time.Millisecond, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func committed(partition string, epoch, sequence int64) driver.Observation {
	return driver.Observation{Kind: driver.KindCommitted, Partition: partition, Epoch: epoch, To: driver.Position{Sequence: sequence, Offset: fmt.Sprint(sequence * 100)}}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.mirror(t, nil) // creates the container
	shows := func(step string, want map[string]string) {
		t.Helper()
		suite.Eventually(t, step, func() bool {
			return fmt.Sprint(p.copied(t, group)) == fmt.Sprint(want) && fmt.Sprint(p.copied(t, lower)) == fmt.Sprint(want)
		})
	}
	first.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", Epoch: 1, To: driver.Unset})
	first.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "1", Epoch: 1, To: driver.Origin})
	first.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "2", Epoch: 1, To: driver.Position{Sequence: 41}})
	shows("no event is done; no offset is known", map[string]string{"1": "-1@-1", "2": "41@-1"})
	first.Observe(committed("0", 1, 7))
	first.Observe(committed("1", 1, 8))
	first.Observe(committed("2", 1, 42))
	shows("commits", map[string]string{"0": "7@700", "1": "8@800", "2": "42@4200"})

	// Another owner takes partition 0 over. What the former one still writes does not move it back.
	second := p.mirror(t, nil)
	second.Observe(committed("0", 2, 20))
	shows("the new owner's", map[string]string{"0": "20@2000", "1": "8@800", "2": "42@4200"})
	first.Observe(committed("0", 1, 9))
	first.Observe(driver.Observation{Kind: driver.KindReleased, Partition: "0", Epoch: 1})
	first.Observe(committed("1", 1, 10))
	if err := first.Close(t.Context()); err != nil { // which writes what is due
		t.Error(err)
	}
	shows("the former owner is behind", map[string]string{"0": "20@2000", "1": "10@1000", "2": "42@4200"})
	// A checkpoint that an operator sets back is copied.
	second.Observe(driver.Observation{Kind: driver.KindClaimed, Partition: "0", Epoch: 3, To: driver.Origin})
	shows("set back", map[string]string{"0": "-1@-1", "1": "10@1000", "2": "42@4200"})
	// At the end, what is due is written.
	last := p.mirror(t, nil)
	last.Observe(committed("2", 1, 43))
	last.Observe(driver.Observation{Kind: driver.KindReleased, Partition: "2", Epoch: 1})
	for _, m := range []*blobstore.Mirror{second, last} {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := p.copied(t, group)["2"]; got != "43@4300" {
		t.Errorf("after Close: %s", got)
	}
	// A processor that goes on from one of the two blobs: import takes its position.
	sequence, offset := int64(60), "6000"
	suite.Eventually(t, "the newest blob is read", func() bool { // the time of a blob has seconds
		if err := p.sdkStore(t).SetCheckpoint(t.Context(), azeventhubs.Checkpoint{FullyQualifiedNamespace: lower.Namespace, EventHubName: lower.Topic, ConsumerGroup: lower.Name, PartitionID: "2", SequenceNumber: &sequence, Offset: &offset}, nil); err != nil {
			t.Fatal(err)
		}
		found, err := azurecheckpoints.Read(t.Context(), p.client(t), "", group)
		return err == nil && len(found.Checkpoints) == 2 && found.Checkpoints[1].Sequence == 60 // partition 0 is at the beginning
	})
}

// Every SDK finds the checkpoints of an emulator's hub: for some, its address has no port.
func TestCheckpointsOfAnEmulator(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	g := driver.Group{Namespace: "Localhost:5672", Topic: "flights", Name: "$Default"}
	list := []driver.Checkpoint{{Partition: "0", Position: driver.Position{Sequence: 7, Offset: "700"}, Epoch: 1}}
	if err := blobstore.WriteCheckpoints(t.Context(), p.client(t), g, list); err != nil {
		t.Fatal(err)
	}
	for _, seen := range []driver.Group{g, {Namespace: "localhost:5672", Topic: "flights", Name: "$default"}, {Namespace: "localhost", Topic: "flights", Name: "$default"}} {
		if got := p.copied(t, seen)["0"]; got != "7@700" {
			t.Errorf("%v has %q", seen, got)
		}
	}
}

// failures collects what a mirror reports.
type failures struct {
	mu   sync.Mutex
	list []error
}

func (f *failures) Observe(o driver.Observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.Kind == driver.KindHookFailed {
		f.list = append(f.list, o.Err)
	}
}

func (f *failures) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

// TestMirrorLeavesOthers: the checkpoint of another program is not moved back, and an active
// processor is not disturbed.
func TestMirrorLeavesOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.open(t) // creates the container
	sequence, offset := int64(50), "5000"
	sdk := p.sdkStore(t)
	if err := sdk.SetCheckpoint(t.Context(), azeventhubs.Checkpoint{FullyQualifiedNamespace: group.Namespace, EventHubName: group.Topic, ConsumerGroup: group.Name, PartitionID: "0", SequenceNumber: &sequence, Offset: &offset}, nil); err != nil {
		t.Fatal(err)
	}
	var f failures
	m := p.mirror(t, &f)
	m.Observe(committed("0", 1, 7))
	m.Observe(committed("1", 1, 7))
	suite.Eventually(t, "the failure", func() bool { return len(f.all()) == 1 && p.copied(t, group)["1"] == "7@700" })
	if err := f.all()[0]; !errors.Is(err, blobstore.ErrOtherCheckpoint) || !strings.Contains(err.Error(), "partition 0: blob ns.servicebus.windows.net/flights/$Default/checkpoint/0 holds the checkpoint of another program, at event 50, and the partition is at 7: ") {
		t.Errorf("reported %v", err)
	}
	if got := p.copied(t, group)["0"]; got != "50@5000" {
		t.Errorf("moved back to %s", got)
	}
	m.Observe(committed("0", 1, 51))
	suite.Eventually(t, "it is passed", func() bool { return p.copied(t, group)["0"] == "51@5100" })
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}

	if _, err := sdk.ClaimOwnership(t.Context(), []azeventhubs.Ownership{{FullyQualifiedNamespace: group.Namespace, EventHubName: group.Topic, ConsumerGroup: group.Name, PartitionID: "1", OwnerID: "app-7"}}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := blobstore.NewMirror(t.Context(), p.client(t), group, nil)
	if !errors.Is(err, blobstore.ErrProcessorActive) || !strings.Contains(err.Error(), `/ownership/1 is owned by "app-7"`) {
		t.Errorf("got %v", err)
	}
}

// TestMirrorInOutage: a failure is reported once, and what is due is written when the container is
// there again.
func TestMirrorInOutage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var f failures
	m := p.mirror(t, &f)
	defer func() { _ = m.Close(context.Background()) }()
	if _, err := p.client(t).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	m.Observe(committed("0", 1, 7))
	suite.Eventually(t, "the failure", func() bool { return len(f.all()) == 1 })
	if text := f.all()[0].Error(); !strings.HasPrefix(text, "mirror checkpoints into container ") || !strings.Contains(text, "tried again every 20ms: partition 0: Azure Storage returned 404 ContainerNotFound") {
		t.Errorf("reported %s", text)
	}
	suite.Eventually(t, "the container", func() bool { _, err := p.client(t).Create(t.Context(), nil); return err == nil })
	suite.Eventually(t, "the checkpoint", func() bool { return p.copied(t, group)["0"] == "7@700" })
	if len(f.all()) != 1 {
		t.Errorf("reported %v", f.all())
	}
}

// TestMirrorAfterARestore: a store that was restored from a backup has older checkpoints and leases
// than the blob. The copy is then ahead, which is reported, and is right again after its blob was
// deleted.
func TestMirrorAfterARestore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := p.mirror(t, nil)
	before.Observe(committed("0", 9, 50))
	if err := before.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var f failures
	m := p.mirror(t, &f)
	defer func() { _ = m.Close(context.Background()) }()
	m.Observe(committed("0", 3, 20))
	suite.Eventually(t, "the failure", func() bool { return len(f.all()) == 1 })
	if err := f.all()[0]; !errors.Is(err, blobstore.ErrLaterOwner) || !strings.Contains(err.Error(), "at event 50 in epoch 9, and the partition is at 20 in epoch 3: ") {
		t.Errorf("reported %v", err)
	}
	for _, g := range []driver.Group{group, lower} {
		if _, err := p.client(t).NewBlobClient(g.String()+"/checkpoint/0").Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	m.Observe(committed("0", 3, 21))
	suite.Eventually(t, "the checkpoint", func() bool { return p.copied(t, group)["0"] == "21@2100" })
}

// holding is a sink that does not complete one text until it is released.
type holding struct {
	collector
	held    string
	release chan struct{}
}

func (h *holding) Submit(ctx context.Context, text string, done func(driver.WriteResult)) {
	if text != h.held {
		h.collector.Submit(ctx, text, done)
		return
	}
	go func() {
		<-h.release
		h.collector.Submit(ctx, text, done)
	}()
}

// TestMirrorOfAtLeastOnce: the copy is at the event before the first one that is not done.
func TestMirrorOfAtLeastOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	hub := sluicetest.NewHub(group, 1)
	for i := range 10 {
		hub.Append("0", sluicetest.Bodies(fmt.Sprint("event ", i))...)
	}
	store, m := p.open(t), p.mirror(t, nil)
	sink := &holding{held: "event 4", release: make(chan struct{})}
	records := func(_ context.Context, e *driver.Event) ([]string, error) { return []string{string(e.Body)}, nil }
	c, err := sluice.New(hub, store.Leases(), sluice.AtLeastOnce(store, records, sink, &sluice.AtLeastOnceConfig{CheckpointEvery: 50 * time.Millisecond}), &sluice.Config{
		LeaseFor: blobstore.MinLease, RenewEvery: blobstore.MinLease / 4, Observer: m, Partitions: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	at := func() string { text, _, _ := strings.Cut(p.copied(t, group)["0"], "@"); return text }
	suite.Eventually(t, "all others are written, and the checkpoint is copied", func() bool { return sink.has(9) && at() == "3" })
	close(sink.release)
	suite.Eventually(t, "all are done", func() bool { return sink.has(10) && at() == "9" })
	cancel()
	<-over
	if err := m.Close(t.Context()); err != nil || at() != "9" {
		t.Errorf("at the end: %s, %v", at(), err)
	}
}
