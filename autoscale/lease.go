package autoscale

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Lease says which process works on a resource, so that rounds of a timer do not overlap.
// Nothing but time is lost without it: actions are numbered, and a state is saved only by
// who has read it.
type Lease struct {
	Owner    string        `json:"owner"` // identifies the process: no two have the same
	File     string        `json:"file"`  // the file that names the resource, for people
	Host     string        `json:"host"`
	Duration time.Duration `json:"duration"` // how long it lasts if it is not renewed
}

// LeasedError is returned if another process holds the lease of a resource.
type LeasedError struct {
	Resource string
	Lease    Lease // the other's
}

func (e *LeasedError) Error() string {
	return fmt.Sprintf("another process works on the resource %s: %s of %s on the host %s; its lease ends when it stops, or %v after it was killed",
		e.Resource, e.Lease.Owner, e.Lease.File, e.Lease.Host, e.Lease.Duration)
}

// HoldLease takes the lease of a resource, and renews it until release is called, which
// ends it. If another process holds the lease, the error is a [*LeasedError]. The context
// that HoldLease returns ends with ctx, and, with such an error as its cause, when another
// process has taken the lease after it had expired.
func HoldLease(ctx context.Context, store Store, resource string, l Lease, log *slog.Logger) (held context.Context, release func(), err error) {
	store, log = boundedStore{store}, logOr(log).With("resource", resource)
	other, err := store.TakeLease(ctx, resource, l)
	if err != nil {
		return nil, nil, err
	}
	if other != nil {
		return nil, nil, &LeasedError{resource, *other}
	}
	held, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if err := renewLease(held, store, resource, l, log); err != nil {
			log.Error("lease lost", "error", err)
			cancel(err)
		}
	})
	release = func() {
		cancel(context.Canceled)
		renewing.Wait()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Duration)
		defer cancel()
		if err := store.ReleaseLease(ending, resource, l.Owner); err != nil {
			log.Warn("releasing the lease failed, it will expire", "after", l.Duration, "error", err)
		}
	}
	return held, release, nil
}

// renewLease renews a lease until ctx ends; then it returns nil. If another process has it,
// it returns an error. A store that cannot be reached ends nothing: the parts wait for it
// too, and another process cannot take the lease there either.
func renewLease(ctx context.Context, store Store, resource string, l Lease, log *slog.Logger) error {
	tick := time.NewTicker(l.Duration / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		other, err := store.TakeLease(ctx, resource, l)
		switch {
		case ctx.Err() != nil:
			return nil
		case other != nil:
			return &LeasedError{resource, *other}
		case err != nil:
			log.Warn("renewing the lease failed, will be retried", "error", err)
		}
	}
}
