package group

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Without a lease store a process reads every partition by itself, beside others that do the same:
// for a replay, whose effects stay in the process.

// Alone returns a source without owner levels and leases that only this process knows.
func Alone(source driver.Source) (driver.Source, driver.LeaseStore) {
	return withoutEpochs{source}, &ownLeases{infos: map[string]*driver.LeaseInfo{}}
}

// withoutEpochs is a source whose readers disconnect no other reader.
type withoutEpochs struct{ driver.Source }

// Seek implements [driver.Source].
func (s withoutEpochs) Seek(ctx context.Context, partition string, start driver.Start, _ int64) (driver.Position, error) {
	return s.Source.Seek(ctx, partition, start, driver.NoEpoch)
}

// Open implements [driver.Source].
func (s withoutEpochs) Open(ctx context.Context, partition string, after driver.Position, _ int64) (driver.Reader, error) {
	return s.Source.Open(ctx, partition, after, driver.NoEpoch)
}

// BoundsPerSecond implements [driver.BoundsBudget].
func (s withoutEpochs) BoundsPerSecond() float64 { return driver.BudgetOf(s.Source) }

// Group implements [driver.GroupNamer].
func (s withoutEpochs) Group() driver.Group { return driver.GroupOf(s.Source) }

// ownLeases are leases that nobody else can take.
type ownLeases struct {
	mu    sync.Mutex
	infos map[string]*driver.LeaseInfo // by partition
}

// Acquire implements [driver.LeaseStore].
func (l *ownLeases) Acquire(_ context.Context, group driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := l.infos[partition]
	if info == nil {
		info = &driver.LeaseInfo{}
		l.infos[partition] = info
	}
	info.Lease = driver.Lease{Group: group, Partition: partition, Owner: owner, Epoch: max(info.Epoch, above) + 1, Began: info.Began}
	info.Remaining = ttl
	return info.Lease, nil
}

// Renew implements [driver.LeaseStore].
func (l *ownLeases) Renew(_ context.Context, lease driver.Lease, ttl time.Duration) error {
	return l.change(lease, func(info *driver.LeaseInfo) { info.Remaining = ttl })
}

// MarkBegan implements [driver.LeaseStore].
func (l *ownLeases) MarkBegan(_ context.Context, lease driver.Lease, incarnation string) error {
	return l.change(lease, func(info *driver.LeaseInfo) { info.Began = incarnation })
}

// Release implements [driver.LeaseStore].
func (l *ownLeases) Release(_ context.Context, lease driver.Lease) error {
	_ = l.change(lease, func(info *driver.LeaseInfo) { info.Remaining = 0 })
	return nil
}

// List implements [driver.LeaseStore].
func (l *ownLeases) List(context.Context, driver.Group) ([]driver.LeaseInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]driver.LeaseInfo, 0, len(l.infos))
	for _, info := range l.infos {
		list = append(list, *info)
	}
	slices.SortFunc(list, func(a, b driver.LeaseInfo) int { return strings.Compare(a.Partition, b.Partition) })
	return list, nil
}

// change changes a lease, unless it is not the newest of its partition.
func (l *ownLeases) change(lease driver.Lease, change func(*driver.LeaseInfo)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := l.infos[lease.Partition]
	if info == nil || info.Epoch != lease.Epoch {
		return driver.ErrFenced
	}
	change(info)
	return nil
}
