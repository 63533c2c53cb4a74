package config_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	official "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// TestAzureBlobs: the lag of consumers whose checkpoints the SDK's own store has written.
func TestAzureBlobs(t *testing.T) {
	ctx, server := t.Context(), azurite.New(t, nil)
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 3}}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(hub.ConnectionString(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(context.Background())
	for partition, n := range map[string]int{"0": 40, "1": 25} {
		batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)})
		for i := 0; err == nil && i < n; i++ {
			err = batch.AddEventData(&azeventhubs.EventData{Body: []byte("x")}, nil)
		}
		if err == nil {
			err = producer.SendEventDataBatch(ctx, batch, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := container.NewClientFromConnectionString(server.ConnectionString(), "checkpoints", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	store, err := official.NewBlobStore(blobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := azeventhubs.ParseConnectionString(hub.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	set := func(group, partition string, sequence *int64, offset *string) {
		t.Helper()
		err := store.SetCheckpoint(ctx, azeventhubs.Checkpoint{
			FullyQualifiedNamespace: namespace.FullyQualifiedNamespace, EventHubName: "flights", ConsumerGroup: group, PartitionID: partition, SequenceNumber: sequence, Offset: offset,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"HUB": hub.ConnectionString(), "STORAGE": server.ConnectionString()}
	read := lagMetric(t, "source: {eventhub: {connection: '${HUB}', hub: flights}}, checkpoints: {azure_blob: {container: checkpoints, connection: '${STORAGE}'}}", env)
	set("other", "0", to.Ptr[int64](39), nil)
	expectCause(t, "another group's alone", read(), "the container has no checkpoints of ")
	expectCause(t, "another group's alone", read(), "/flights/other: check the hub, the consumer group and the prefix")
	set("$Default", "0", to.Ptr[int64](9), to.Ptr("4000"))
	expectLag(t, "10 of 40 done, nothing of 25", read(), 55)
	set("$Default", "1", to.Ptr[int64](24), nil)
	expectLag(t, "10 of 40 and all of 25 done", read(), 30)

	older := lagMetric(t, "source: {eventhub: {connection: '${HUB}', hub: flights, consumer_group: billing}}, checkpoints: {azure_blob: {container: checkpoints, connection: '${STORAGE}', prefix: eh/}}", env)
	for name, content := range map[string]string{
		"eh/billing/0": `{"Offset":"4000","SequenceNumber":7,"PartitionId":"0","Owner":"","Token":"","Epoch":3}`,
		"eh/billing/1": `{"partitionId":"1","owner":"","token":"","epoch":15,"sequenceNumber":23,"offset":"4100"}`,
		"billing/1":    `{"partitionId":"1","owner":"","token":"","epoch":15,"sequenceNumber":1,"offset":"1"}`,
	} {
		if _, err := blobs.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader([]byte(content))), nil); err != nil {
			t.Fatal(err)
		}
	}
	expectLag(t, "the older processors', below a prefix", older(), 33)
	set("$Default", "1", nil, to.Ptr("4100"))
	expectCause(t, "an offset alone", read(), "has an offset without a sequence number")
	if _, err := blobs.Delete(ctx, nil); err != nil {
		t.Fatal(err)
	}
	expectCause(t, "no container", read(), "read checkpoints: ")
}
