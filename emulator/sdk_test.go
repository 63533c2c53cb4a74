package emulator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

// start runs an emulator for the length of a test.
func start(t testing.TB, hubs []emulator.Hub, cfg *emulator.Config) *emulator.Server {
	t.Helper()
	srv, err := emulator.Start(hubs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}

func one(name string, partitions int) []emulator.Hub {
	return []emulator.Hub{{Name: name, Partitions: partitions}}
}

// testContext is a context that ends the test rather than let it hang.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// retryIfSlow repeats an attempt that fails after more than the limit that the server sets it: the
// machine was too slow. An attempt that fails within the limit fails the test, as does the last
// within two minutes.
func retryIfSlow(t testing.TB, limit time.Duration, attempt func(context.Context) error) {
	t.Helper()
	for ctx := testContext(t); ; {
		began := time.Now()
		err := attempt(ctx)
		if err == nil {
			return
		}
		if took := time.Since(began); took < limit || ctx.Err() != nil {
			t.Fatalf("after %s: %v", took, err)
		}
	}
}

// noRetry makes a client report the first error.
var noRetry = azeventhubs.RetryOptions{MaxRetries: -1}

func producer(t testing.TB, srv *emulator.Server, hub string) *azeventhubs.ProducerClient {
	t.Helper()
	c, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), hub, &azeventhubs.ProducerClientOptions{RetryOptions: noRetry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func consumer(t testing.TB, srv *emulator.Server, hub, group, name string) *azeventhubs.ConsumerClient {
	t.Helper()
	c, err := azeventhubs.NewConsumerClientFromConnectionString(srv.ConnectionString(), hub, group,
		&azeventhubs.ConsumerClientOptions{RetryOptions: noRetry, InstanceID: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func partition(t testing.TB, c *azeventhubs.ConsumerClient, id string, opts *azeventhubs.PartitionClientOptions) *azeventhubs.PartitionClient {
	t.Helper()
	p, err := c.NewPartitionClient(id, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

var earliest = azeventhubs.StartPosition{Earliest: to.Ptr(true)}

// send sends events with the given bodies as one batch.
func send(t testing.TB, c *azeventhubs.ProducerClient, opts *azeventhubs.EventDataBatchOptions, bodies ...string) {
	t.Helper()
	if err := trySend(testContext(t), c, opts, bodies...); err != nil {
		t.Fatal(err)
	}
}

func trySend(ctx context.Context, c *azeventhubs.ProducerClient, opts *azeventhubs.EventDataBatchOptions, bodies ...string) error {
	batch, err := c.NewEventDataBatch(ctx, opts)
	if err != nil {
		return err
	}
	for _, b := range bodies {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(b)}, nil); err != nil {
			return err
		}
	}
	return c.SendEventDataBatch(ctx, batch, nil)
}

func to0() *azeventhubs.EventDataBatchOptions {
	return &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("0")}
}

func numbered(from, to int) []string {
	var s []string
	for i := from; i < to; i++ {
		s = append(s, fmt.Sprintf("event %d", i))
	}
	return s
}

// receive reads exactly n events.
func receive(t testing.TB, p *azeventhubs.PartitionClient, n int) []*azeventhubs.ReceivedEventData {
	t.Helper()
	events, err := p.ReceiveEvents(testContext(t), n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != n {
		t.Fatalf("got %d events, want %d", len(events), n)
	}
	return events
}

func TestSendAndReceive(t *testing.T) {
	srv := start(t, one("flights", 4), nil)
	began := time.Now().Truncate(time.Millisecond)
	p := producer(t, srv, "flights")
	ctx := testContext(t)

	props, err := p.GetEventHubProperties(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if props.Name != "flights" || len(props.PartitionIDs) != 4 || props.PartitionIDs[3] != "3" || props.GeoReplicationEnabled ||
		props.CreatedOn.Before(began.Add(-time.Second)) {
		t.Errorf("hub properties %+v", props)
	}
	empty, err := p.GetPartitionProperties(ctx, "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !empty.IsEmpty || empty.LastEnqueuedSequenceNumber != -1 || empty.LastEnqueuedOffset != "-1" {
		t.Errorf("properties of an empty partition %+v", empty)
	}

	send(t, p, to0(), numbered(0, 100)...)
	got := receive(t, partition(t, consumer(t, srv, "flights", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest}), 100)
	for i, e := range got {
		if string(e.Body) != fmt.Sprintf("event %d", i) || e.SequenceNumber != int64(i) || e.Offset == "" || e.EnqueuedTime.Before(began) ||
			e.PartitionKey != nil || e.MessageID == nil || len(e.SystemProperties) != 0 {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	full, err := p.GetPartitionProperties(ctx, "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	last := got[99]
	if full.IsEmpty || full.BeginningSequenceNumber != 0 || full.LastEnqueuedSequenceNumber != 99 || full.LastEnqueuedOffset != last.Offset ||
		!full.LastEnqueuedOn.Equal(*last.EnqueuedTime) {
		t.Errorf("properties %+v after event %+v", full, last)
	}
}
