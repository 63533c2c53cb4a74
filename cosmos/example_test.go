package cosmos_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
)

// With a Source, documents record the position of their event: a late retry of an
// older event does not replace the document of a newer one.
func Example() {
	ctx := context.Background()
	account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "readings", KeyPaths: []string{"/sensor"}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer account.Close()

	sink, err := cosmos.New(account.Endpoint(), account.Key(), "db", "readings", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func(celsius int, sequence int64) {
		var done sync.WaitGroup
		done.Add(1)
		sink.Submit(ctx, cosmos.Document{
			ID:           "newest",
			PartitionKey: []any{"s1"},
			Body:         fmt.Appendf(nil, `{"sensor":"s1","celsius":%d}`, celsius),
			Source:       &cosmos.Source{Partition: "0", Epoch: 1, Sequence: sequence},
		}, func(r driver.WriteResult) {
			fmt.Printf("event %d: %v, written: %v\n", sequence, r.Err, r.Cost > 0)
			done.Done()
		})
		done.Wait()
	}
	write(20, 7)
	write(21, 8)
	write(20, 7) // late
	if err := sink.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// event 7: <nil>, written: true
	// event 8: <nil>, written: true
	// event 7: <nil>, written: false
}
