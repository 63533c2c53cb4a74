package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/sluicetest"
)

var groupName = sluice.Group{Namespace: "scale.example", Topic: "events", Name: "$Default"}

// counts are the requests of all processes of a group since they were last taken.
type counts struct {
	list, listed, renew, renewed, acquire, release atomic.Int64 // of the lease store; listed and renewed: rows
	claim, commit, due, read, otherStore           atomic.Int64 // of the store of checkpoints and dead letters
	bounds, describe, open                         atomic.Int64 // of the log
}

// rates are requests a second of the whole group.
type rates struct {
	Processes, Partitions                         int
	List, ListedRows, Renew, RenewedRows, Acquire float64
	Claim, Commit, Due, Read, OtherStore          float64
	Bounds, Describe, Open                        float64
	RuntimeInfo, MostRuntimeInfo                  float64 // bounds and describe; in the busiest ten seconds
	StorePerProcess, StorePerPartition            float64
	Readers                                       int // that are open
}

// take returns the counts since the last take, by the second.
func (c *counts) take(over time.Duration) rates {
	per := func(n *atomic.Int64) float64 { return float64(n.Swap(0)) / over.Seconds() }
	r := rates{
		List: per(&c.list), ListedRows: per(&c.listed), Renew: per(&c.renew), RenewedRows: per(&c.renewed), Acquire: per(&c.acquire) + per(&c.release),
		Claim: per(&c.claim), Commit: per(&c.commit), Due: per(&c.due), Read: per(&c.read), OtherStore: per(&c.otherStore),
		Bounds: per(&c.bounds), Describe: per(&c.describe), Open: per(&c.open),
	}
	r.RuntimeInfo = r.Bounds + r.Describe
	return r
}

// store is the requests a second to both stores.
func (r *rates) store() float64 {
	return r.List + r.Renew + r.Acquire + r.Claim + r.Commit + r.Due + r.Read + r.OtherStore
}

// group is the processes of one consumer group over a hub and stores in memory.
type group struct {
	t      *testing.T
	hub    *sluicetest.Hub
	leases *sluicetest.Leases
	store  *sluicetest.Store
	counts counts
	opened atomic.Int64 // readers that are open

	partitions, started int
	alive               []*process
	late                func(time.Duration) // is called with the age of each event when it is handled
	taken               func(partition string)
	wanted              sluice.Partitions
	burst               int
}

// process is one consumer with the watcher for warnings that `sluice run` has beside it.
type process struct {
	*sluice.Consumer
	g     *group
	name  string
	end   context.CancelFunc
	ended chan struct{}
	dead  atomic.Bool
}

var errDead = errors.New("the process is dead")

// do counts a request, unless the process is dead.
func (p *process) do(n *atomic.Int64) error {
	if p.dead.Load() {
		return errDead
	}
	n.Add(1)
	return nil
}

func newGroup(t *testing.T, partitions int) *group {
	return &group{
		t: t, hub: sluicetest.NewHub(groupName, partitions), leases: &sluicetest.Leases{}, store: &sluicetest.Store{},
		partitions: partitions, wanted: sluice.Balanced,
	}
}

// start starts a process.
func (g *group) start() *process {
	g.t.Helper()
	g.started++
	p := &process{g: g, name: fmt.Sprintf("process-%04d", g.started), ended: make(chan struct{})}
	handle := func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		for _, e := range b.Events {
			if g.late != nil {
				g.late(time.Since(e.Enqueued))
			}
			if err := tx.Insert("rows", fmt.Sprint(e.Partition, "/", e.Sequence)); err != nil {
				return err
			}
		}
		return nil
	}
	source := health.NewSharedSource(source{g.hub, p})
	c, err := sluice.New(source, leases{g.leases, p}, sluice.Transactional(store{g.store, p}, handle), &sluice.Config{
		Partitions: g.wanted, Owner: p.name, AssignBurst: g.burst, Seed: uint64(g.started),
		Logger: slog.New(slog.DiscardHandler),
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindAcquired && g.taken != nil {
				g.taken(o.Partition)
			}
		}),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	p.Consumer = c
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	watcher := health.NewWatcher(source, leases{g.leases, p}, store{g.store, p}, &health.WatcherConfig{DeadLetters: store{g.store, p}})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watcher.Run(ctx, 30*time.Second, func(health.Report) {})
	}()
	go func() {
		defer close(p.ended)
		_ = c.Run(ctx)
		cancel()
		<-watched
	}()
	g.alive = append(g.alive, p)
	return p
}

// kill ends a process that can't release anything.
func (p *process) kill() {
	p.dead.Store(true)
	p.end()
	<-p.ended
}

// stopAll stops all processes.
func (g *group) stopAll() {
	for _, p := range g.alive {
		p.end()
	}
	for _, p := range g.alive {
		<-p.ended
	}
}

// holders returns the owners of the live leases, by partition.
func (g *group) holders() map[string]string {
	list, err := g.leases.List(context.Background(), groupName)
	if err != nil {
		g.t.Fatal(err)
	}
	held := map[string]string{}
	for _, l := range list {
		if l.Live() && !l.Member() {
			held[l.Partition] = l.Owner
		}
	}
	return held
}

// settle waits until n processes hold all partitions, evenly.
func (g *group) settle(n int) {
	g.t.Helper()
	for range 3000 {
		share := map[string]int{}
		held := g.holders()
		for _, owner := range held {
			share[owner]++
		}
		least, most := g.partitions, 0
		for _, k := range share {
			least, most = min(least, k), max(most, k)
		}
		if len(held) == g.partitions && len(share) == min(n, g.partitions) && most-least <= 1 {
			return
		}
		time.Sleep(time.Second)
	}
	g.t.Fatalf("%d of %d partitions are held after 3,000 s", len(g.holders()), g.partitions)
}

// source counts the requests to the log. Its budget is that of an Event Hubs source.
type source struct {
	*sluicetest.Hub
	p *process
}

func (s source) BoundsPerSecond() float64 { return 7 }

func (s source) Describe(ctx context.Context) (driver.Topic, error) {
	s.p.g.counts.describe.Add(1)
	return s.Hub.Describe(ctx)
}

func (s source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	s.p.g.counts.bounds.Add(1)
	return s.Hub.Bounds(ctx, partition)
}

func (s source) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	s.p.g.counts.open.Add(1)
	r, err := s.Hub.Open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	s.p.g.opened.Add(1)
	return &reader{Reader: r, g: s.p.g}, nil
}

type reader struct {
	driver.Reader
	g      *group
	closed atomic.Bool
}

func (r *reader) Close(ctx context.Context) error {
	if !r.closed.Swap(true) {
		r.g.opened.Add(-1)
	}
	return r.Reader.Close(ctx)
}

// leases counts the requests to the lease store.
type leases struct {
	store *sluicetest.Leases
	p     *process
}

func (l leases) Acquire(ctx context.Context, group driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	if err := l.p.do(&l.p.g.counts.acquire); err != nil {
		return driver.Lease{}, err
	}
	return l.store.Acquire(ctx, group, partition, owner, ttl, above)
}

func (l leases) Renew(ctx context.Context, lease driver.Lease, ttl time.Duration) error {
	if err := l.p.do(&l.p.g.counts.renew); err != nil {
		return err
	}
	l.p.g.counts.renewed.Add(1)
	return l.store.Renew(ctx, lease, ttl)
}

func (l leases) RenewAll(ctx context.Context, list []driver.Lease, ttl time.Duration) error {
	if err := l.p.do(&l.p.g.counts.renew); err != nil {
		return err
	}
	l.p.g.counts.renewed.Add(int64(len(list)))
	return l.store.RenewAll(ctx, list, ttl)
}

func (l leases) MarkBegan(ctx context.Context, lease driver.Lease, incarnation string) error {
	return l.store.MarkBegan(ctx, lease, incarnation)
}

func (l leases) Release(ctx context.Context, lease driver.Lease) error {
	if err := l.p.do(&l.p.g.counts.release); err != nil {
		return err
	}
	return l.store.Release(ctx, lease)
}

func (l leases) List(ctx context.Context, group driver.Group) ([]driver.LeaseInfo, error) {
	if err := l.p.do(&l.p.g.counts.list); err != nil {
		return nil, err
	}
	list, err := l.store.List(ctx, group)
	l.p.g.counts.listed.Add(int64(len(list)))
	return list, err
}

// store counts the requests to the store of checkpoints and dead letters.
type store struct {
	*sluicetest.Store
	p *process
}

func (s store) Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	if err := s.p.do(&s.p.g.counts.claim); err != nil {
		return driver.Checkpoint{}, err
	}
	return s.Store.Claim(ctx, lease, incarnation)
}

func (s store) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	if err := s.p.do(&s.p.g.counts.commit); err != nil {
		return err
	}
	return s.Store.Commit(ctx, step, fn)
}

func (s store) Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error) {
	if err := s.p.do(&s.p.g.counts.due); err != nil {
		return nil, err
	}
	return s.Store.Due(ctx, group, partition, limit)
}

func (s store) DuePartitions(ctx context.Context, group driver.Group, partitions []string) ([]string, error) {
	if err := s.p.do(&s.p.g.counts.due); err != nil {
		return nil, err
	}
	return s.Store.DuePartitions(ctx, group, partitions)
}

func (s store) Read(ctx context.Context, group driver.Group) ([]driver.Checkpoint, error) {
	if err := s.p.do(&s.p.g.counts.read); err != nil {
		return nil, err
	}
	return s.Store.Read(ctx, group)
}

func (s store) Count(ctx context.Context, group driver.Group, filter driver.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	if err := s.p.do(&s.p.g.counts.read); err != nil {
		return nil, err
	}
	return s.Store.Count(ctx, group, filter)
}

func (s store) Leave(ctx context.Context, lease driver.Lease) error {
	if err := s.p.do(&s.p.g.counts.otherStore); err != nil {
		return err
	}
	return s.Store.Leave(ctx, lease)
}

func (s store) ReadDedup(ctx context.Context, group driver.Group, partition string) ([]driver.DedupState, error) {
	if err := s.p.do(&s.p.g.counts.otherStore); err != nil {
		return nil, err
	}
	return s.Store.ReadDedup(ctx, group, partition)
}

func (s store) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	if err := s.p.do(&s.p.g.counts.otherStore); err != nil {
		return err
	}
	return s.Store.RecordAttempt(ctx, lease, at, attempt)
}
