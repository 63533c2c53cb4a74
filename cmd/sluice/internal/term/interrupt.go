package term

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilInterrupted returns a ctx that ends with SIGINT or SIGTERM. A second signal ends the process
// at once.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
