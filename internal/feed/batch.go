package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/internal/records"
)

// sendGroup sends a group's records in as few batches as they fit in. It
// begins no batch once reading has ended.
func (f *Feed) sendGroup(reading, sending context.Context, g *group) error {
	opts := &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(g.partition)}
	if g.key != "" {
		opts = &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr(g.key)}
	}
	for rest := g.records; len(rest) > 0 && reading.Err() == nil; {
		batch, err := f.client.NewEventDataBatch(sending, opts)
		if err != nil {
			return fmt.Errorf("open a link to %s: %w", g, err)
		}
		n, err := f.fill(batch, rest)
		if err != nil {
			return err
		}
		if batch.NumEvents() > 0 {
			if err := f.client.SendEventDataBatch(sending, batch, nil); err != nil {
				return fmt.Errorf("send %d records to %s, %s and on: %w", batch.NumEvents(), g, rest[0].Place, err)
			}
			f.acked.Add(int64(batch.NumEvents()))
		}
		rest = rest[n:]
	}
	return nil
}

// fill adds records to an empty batch until it is full and returns how many it
// has dealt with; those that fit in no batch are refused.
func (f *Feed) fill(batch *azeventhubs.EventDataBatch, rest []records.Record) (int, error) {
	for i, r := range rest {
		err := batch.AddEventData(&azeventhubs.EventData{Body: r.Body, ContentType: to.Ptr("application/json")}, nil)
		switch {
		case err == nil:
		case !errors.Is(err, azeventhubs.ErrEventDataTooLarge):
			return i, fmt.Errorf("%s: %w", r.Place, err)
		case batch.NumEvents() > 0:
			return i, nil
		default:
			f.refuse(&records.TooLargeError{Place: r.Place, Size: len(r.Body)})
		}
	}
	return len(rest), nil
}
