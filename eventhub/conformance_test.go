package eventhub

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/storetest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

func TestConformance(t *testing.T) {
	receivers(t, func(t *testing.T) {
		t.Run("plain", func(t *testing.T) {
			storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
				b := newBroker(t, &emulator.Config{AsAzure: asazure.Kind()}) // its bounds are exact
				link := tcplink.NewTest(t, b.Addr())
				through := strings.Replace(b.ConnectionString(), b.Addr(), link.Addr(), 1)
				h := harness(b, func() *Source { return b.sourceOf(through, nil) })
				h.Silence = link.Silence
				return h
			})
		})
		t.Run("as Azure", func(t *testing.T) {
			need.RealTime(t) // runtime information gets old
			storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
				azure := emulator.AllAsAzure(1)
				azure.EventHubs.RandomBusy = 0 // the suite repeats nothing
				azure.EventHubs.StaleRuntime = time.Second
				b := newBroker(t, &emulator.Config{AsAzure: azure})
				link := tcplink.NewTest(t, b.Addr())
				through := strings.Replace(b.ConnectionString(), b.Addr(), link.Addr(), 1)
				h := harness(b, func() *Source { return b.sourceOf(through, nil) })
				h.Silence = link.Silence
				h.Features.StaleBounds = true
				return h
			})
		})
		t.Run("tls", func(t *testing.T) {
			storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
				b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0", AsAzure: asazure.Kind()})
				return harness(b, func() *Source { return b.sourceOf(b.TLSConnectionString(), &Config{TLSConfig: b.tls()}) })
			})
		})
	})
}

func harness(b *broker, connect func() *Source) storetest.SourceHarness {
	return storetest.SourceHarness{
		Connect: func(testing.TB) driver.Source { return connect() },
		Append: func(ctx context.Context, partition string, events ...*driver.Event) error {
			return b.append(ctx, partition, events)
		},
		Trim: func(_ context.Context, partition string, before int64) error {
			return b.Trim(hubName, partition, before)
		},
		Recreate: func(context.Context) error { return b.Recreate(hubName) },
	}
}

// append sends over a client of its own, so that it may run beside others and
// after the hub was recreated.
func (b *broker) append(ctx context.Context, partition string, events []*driver.Event) error {
	producer, err := azeventhubs.NewProducerClientFromConnectionString(b.ConnectionString(), hubName, nil)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)})
	if err != nil {
		return err
	}
	optional := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	for _, e := range events {
		out := &azeventhubs.EventData{Body: e.Body, Properties: e.Properties, MessageID: optional(e.MessageID), ContentType: optional(e.ContentType)}
		if e.CorrelationID != "" {
			out.CorrelationID = e.CorrelationID
		}
		if err := batch.AddEventData(out, nil); err != nil {
			return err
		}
	}
	return producer.SendEventDataBatch(ctx, batch, nil)
}
