package blobstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// Leases, checkpoints and dead letters in a container, which is created if it
// is missing.
func ExampleOpen() {
	ctx := context.Background()
	store, err := blobstore.Open(ctx, "sluice", &blobstore.Config{
		ConnectionString: os.Getenv("AZURE_STORAGE_CONNECTION_STRING"),
	})
	if err != nil {
		log.Fatal(err)
	}
	var (
		leases      driver.LeaseStore      = store.Leases()
		checkpoints driver.CheckpointStore = store
		deadLetters driver.DeadLetterQueue = store
	)
	fmt.Println(leases, checkpoints, deadLetters)
}
