// Command sluice reads event hubs into SQL databases, each event's effect
// exactly once.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:]))
}
