package autoscale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Lease says which process works on a resource: of several with the same state one is
// active, and the others stand by. See [Holder].
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

// Holder takes the lease of a resource for this process, and renews it. It is safe for
// concurrent use.
type Holder struct {
	store    Store
	resource string
	lease    Lease
	log      *slog.Logger

	mu  sync.Mutex
	end leaseEnd // until then the target may be scaled
}

// NewHolder returns a holder that takes the lease l of a resource. A nil log means that
// nothing is logged.
func NewHolder(store Store, resource string, l Lease, log *slog.Logger) *Holder {
	return &Holder{store: boundedStore{store}, resource: resource, lease: l, log: logOr(log).With("resource", resource)}
}

// Hold takes the lease, and renews it until release is called, which ends it. If another
// process holds the lease, the error is a [*LeasedError]. The context that Hold returns
// ends with ctx, and, with such an error as its cause, when another process has taken the
// lease after it had expired. Once it is released, Hold can be called again.
func (h *Holder) Hold(ctx context.Context) (held context.Context, release func(), err error) {
	other, err := h.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	if other != nil {
		return nil, nil, &LeasedError{h.resource, *other}
	}
	held, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if err := h.renew(held); err != nil {
			h.log.Error("lease lost", "error", err)
			cancel(err)
		}
	})
	release = func() {
		cancel(context.Canceled)
		renewing.Wait()
		h.setUntil(leaseEnd{})
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lease.Duration)
		defer cancel()
		if err := h.store.ReleaseLease(ending, h.resource, h.lease.Owner); err != nil {
			h.log.Warn("releasing the lease failed, it will expire", "after", h.lease.Duration, "error", err)
		}
	}
	return held, release, nil
}

// take takes or renews the lease. The store counts its duration from a later moment than
// this process does, so that it ends here first: by a fifth, in which a request to the
// target that is under way can end.
func (h *Holder) take(ctx context.Context) (other *Lease, err error) {
	began := time.Now()
	other, err = h.store.TakeLease(ctx, h.resource, h.lease)
	switch {
	case err != nil:
	case other != nil:
		h.setUntil(leaseEnd{})
	default:
		h.setUntil(endAt(began.Add(h.lease.Duration - h.lease.Duration/5)))
	}
	return other, err
}

func (h *Holder) setUntil(end leaseEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
}

// leaseEnd is the end of a lease by two clocks, of which the first to reach it counts. The
// monotonic one does not follow a clock that is set, but stands still while the machine is
// suspended. The zero value: the lease is not held.
type leaseEnd struct{ monotonic, wall time.Time }

func endAt(t time.Time) leaseEnd { return leaseEnd{t, t.Round(0)} }

func (e leaseEnd) left(now time.Time) time.Duration {
	if e.wall.IsZero() {
		return 0
	}
	return min(e.monotonic.Sub(now), e.wall.Sub(now))
}

// left is how long the target may be scaled; it is not positive if it may not.
func (h *Holder) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end.left(time.Now())
}

// renew renews the lease until ctx ends; then it returns nil. If another process has it,
// it returns an error. A store that cannot be reached ends nothing: the parts wait for it
// too, and the target is not scaled once the lease may have expired.
func (h *Holder) renew(ctx context.Context) error {
	tick := time.NewTicker(h.lease.Duration / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, h.lease.Duration/3)
		other, err := h.take(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case other != nil:
			return &LeasedError{h.resource, *other}
		case err != nil:
			h.log.Warn("renewing the lease failed, will be retried", "error", err)
		}
	}
}

// ErrNotHeld: the target was not scaled, or a request to it was cancelled, because the
// lease could not be renewed in time, so that another process may have it.
var ErrNotHeld = errors.New("the lease was not renewed in time: another process may work on the resource")

// Guard returns a target that is scaled only while the lease is held: [Target.Scale]
// fails with [ErrNotHeld] otherwise, and the context of a call that is under way ends
// before the lease can be another process's. So of two processes with the same state, one
// acts at a time, even if the other was suspended or cut off from the state.
func (h *Holder) Guard(t Target) Target { return &guardedTarget{t, h} }

type guardedTarget struct {
	Target
	holder *Holder
}

// Scale implements [Target].
func (g *guardedTarget) Scale(ctx context.Context, to int) error {
	if g.holder.left() <= 0 {
		return ErrNotHeld
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go g.holder.watch(ctx, cancel)
	err := g.Target.Scale(ctx, to)
	if err != nil && context.Cause(ctx) == ErrNotHeld {
		return ErrNotHeld
	}
	return err
}

// watch cancels ctx when the lease is not held any more.
func (h *Holder) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		left := h.left()
		if left <= 0 {
			cancel(ErrNotHeld)
			return
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return
		}
	}
}
