// Command sluice runs pipelines from event hubs into SQL databases, with exactly one effect of each
// event, or into Cosmos DB, other hubs and queues. It also sends events, serves hubs for
// development, audits pipelines and scales workers: see sluice help.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // --zone works where the system has no time zones: in the image, on Windows

	"github.com/sluice-go/sluice/internal/memory"
)

func main() {
	memory.LimitHeap() // or the heap would grow to twice what it holds, whatever the control group allows
	os.Exit(execute(context.Background(), os.Args[1:]))
}
