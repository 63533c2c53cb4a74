// Command sluice reads event hubs into SQL databases, each event's effect
// exactly once, or into Cosmos DB, other hubs and queues. It also sends to them,
// serves embedded ones, audits what was done and scales what does it: see sluice
// help.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:]))
}
