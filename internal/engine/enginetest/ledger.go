package enginetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Ledger is a lease store that writes down who took what when, and whose
// users can be cut off.
type Ledger struct {
	*sluicetest.Leases
	mu    sync.Mutex
	taken []Taking
	cut   map[string]bool // by owner
}

// Taking is one acquisition of a lease.
type Taking struct {
	Time             time.Time
	Owner, Partition string
}

// ErrCut is the error of a request that is cut off.
var ErrCut = errors.New("cut off")

// NewLedger returns a store without leases.
func NewLedger() *Ledger { return &Ledger{Leases: &sluicetest.Leases{}, cut: map[string]bool{}} }

// IsCut reports whether an owner is cut off.
func (l *Ledger) IsCut(owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[owner]
}

// CutOff makes all requests of an owner fail.
func (l *Ledger) CutOff(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[owner] = true
}

// Reconnect ends what CutOff began.
func (l *Ledger) Reconnect(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cut, owner)
}

// current is the store of the leases.
func (l *Ledger) current() *sluicetest.Leases {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Leases
}

// Lose replaces the store by an empty one.
func (l *Ledger) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Leases = &sluicetest.Leases{}
}

// List lists the leases.
func (l *Ledger) List(ctx context.Context, g sluice.Group) ([]driver.LeaseInfo, error) {
	return l.current().List(ctx, g)
}

// MarkBegan marks the lease of a partition that has a checkpoint.
func (l *Ledger) MarkBegan(ctx context.Context, lease sluice.Lease, incarnation string) error {
	return l.current().MarkBegan(ctx, lease, incarnation)
}

// RenewAll renews one lease after the other.
func (l *Ledger) RenewAll(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
	var errs []error
	for _, lease := range leases {
		errs = append(errs, l.Renew(ctx, lease, ttl))
	}
	return errors.Join(errs...)
}

// Acquire notes who took the lease.
func (l *Ledger) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	if l.IsCut(owner) {
		return sluice.Lease{}, ErrCut
	}
	lease, err := l.current().Acquire(ctx, g, partition, owner, ttl, above)
	if err == nil {
		l.mu.Lock()
		l.taken = append(l.taken, Taking{time.Now(), owner, partition})
		l.mu.Unlock()
	}
	return lease, err
}

// Renew fails for an owner that is cut off.
func (l *Ledger) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	if l.IsCut(lease.Owner) {
		return ErrCut
	}
	return l.current().Renew(ctx, lease, ttl)
}

// Release fails for an owner that is cut off.
func (l *Ledger) Release(ctx context.Context, lease sluice.Lease) error {
	if l.IsCut(lease.Owner) {
		return ErrCut
	}
	return l.current().Release(ctx, lease)
}

// Takings returns the acquisitions so far.
func (l *Ledger) Takings() []Taking {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Taking(nil), l.taken...)
}

// Acquired returns how long after began each partition was first acquired.
func (l *Ledger) Acquired(began time.Time) map[string]time.Duration {
	after := map[string]time.Duration{}
	for _, take := range l.Takings() {
		if _, known := after[take.Partition]; !known && !strings.HasPrefix(take.Partition, driver.MemberPrefix) {
			after[take.Partition] = take.Time.Sub(began)
		}
	}
	return after
}

// Holders counts the live leases by owner.
func (l *Ledger) Holders(t *testing.T) map[string]int {
	list, err := l.List(t.Context(), Group)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, info := range list {
		if info.Live() {
			n[info.Owner]++
		}
	}
	return n
}
