package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

// openDatabase opens a database's system, for the length of a test.
func openDatabase(t *testing.T, open func(string, Options) (System, error), address, id string) *databaseSystem {
	t.Helper()
	s, err := open(address, Options{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s.(*databaseSystem)
}

func openSQLite(t *testing.T, dir string) *databaseSystem {
	t.Helper()
	return openDatabase(t, OpenSQLite, filepath.Join(dir, "flights.db"), "test")
}

// prepared makes what the checks of a system need, for the length of a test.
func prepared(t *testing.T, s *databaseSystem) *databaseSystem {
	t.Helper()
	granted(t, s)
	made := &Ledger{}
	t.Cleanup(func() {
		if err := made.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Prepare(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return s
}

// files lists a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSQLiteHolds(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "flights.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	allHold(t, openSQLite(t, dir), map[string]State{"db.lostreply": Skipped, "db.paused": Warning, "db.apart": Warning})
	if names := files(t, dir); !slices.Equal(names, []string{"flights.db"}) {
		t.Errorf("files %v", names)
	}
}

// Each interruption leaves nothing.
func TestInterruptedSQLite(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	for at := range databaseChecks {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		runner := &Runner{Systems: []System{openSQLite(t, dir)}, Progress: func(_, _ string, number, _ int) {
			if number == at+1 {
				cancel()
			}
		}}
		if at == slices.IndexFunc(databaseChecks, func(c check[*databaseSystem]) bool { return c.name == "db.paused" }) {
			continue // as the others, but it takes ten seconds to get there
		}
		report, err := runner.Run(ctx)
		cancel()
		if names := files(t, dir); err != nil || len(names) > 0 || len(left(report)) > 0 {
			t.Errorf("interrupted at check %d: error %v, files %v, left %v", at+1, err, names, left(report))
		}
		if at > 5 {
			break
		}
	}
}

func TestSQLiteRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Log("as root every file can be written; a missing directory remains")
	}
	s := openSQLite(t, filepath.Join(t.TempDir(), "missing"))
	rights := s.Rights(t.Context())
	if len(rights) != 1 || rights[0].Granted || rights[0].Next == "" {
		t.Errorf("rights %+v", rights)
	}
}

// brokenDatabase is a database that differs in one thing. Fields that are nil leave it as it is.
type brokenDatabase struct {
	database
	commits func(of *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error
	claims  func(of database, ctx context.Context, lease driver.Lease) (driver.Checkpoint, error)
	leaseIn func(driver.LeaseStore) driver.LeaseStore
	times   func(n int, now time.Time) time.Time
	problem string
	lossy   lossy

	mu    sync.Mutex
	owner driver.Lease // of the last claim
	looks int
}

func (b *brokenDatabase) claim(ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
	if b.claims != nil {
		return b.claims(b.database, ctx, lease)
	}
	c, err := b.database.claim(ctx, lease)
	if err == nil {
		b.mu.Lock()
		b.owner = lease
		b.mu.Unlock()
	}
	return c, err
}

func (b *brokenDatabase) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	if b.commits == nil {
		return b.database.commit(ctx, step, effects, end)
	}
	return b.commits(b, ctx, step, effects, end)
}

func (b *brokenDatabase) leases() driver.LeaseStore {
	if b.leaseIn == nil {
		return b.database.leases()
	}
	return b.leaseIn(b.database.leases())
}

func (b *brokenDatabase) clock(ctx context.Context) (time.Time, error) {
	now, err := b.database.clock(ctx)
	if b.times != nil {
		now = b.times(b.looks, now)
		b.looks++
	}
	return now, err
}

func (b *brokenDatabase) durable(ctx context.Context) (string, string, error) {
	found, _, err := b.database.durable(ctx)
	return found, b.problem, err
}

func (b *brokenDatabase) losing(context.Context, int) (lossy, error) { return b.lossy, nil }

// unfenced carries out every commit, for the last owner and from wherever the checkpoint is.
func unfenced(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	err := b.database.commit(ctx, step, effects, end)
	if !errors.Is(err, driver.ErrFenced) {
		return err
	}
	step.Lease = b.owner
	c, err := b.database.claim(ctx, step.Lease)
	if err != nil {
		return err
	}
	step.From = c.Position
	return b.database.commit(ctx, step, effects, end)
}

// apart commits the effects first, and the checkpoint after them.
func apart(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	own := step
	own.To = step.From
	if err := b.database.commit(ctx, own, effects, nil); err != nil {
		return err
	}
	return b.database.commit(ctx, step, nil, end)
}

// lowered is a lease of the group whose name is in lower case.
func lowered(lease driver.Lease) driver.Lease {
	lease.Group.Name = strings.ToLower(lease.Group.Name)
	return lease
}

// careless is a connection that reports every commit as successful.
type careless struct{ database }

func (c careless) close() {}

// halfDone commits the effects alone, and says that the finding is unknown.
type halfDone struct{ database }

func (h halfDone) close() {}
func (h halfDone) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	step.To = step.From
	return errors.Join(driver.ErrUnknown, h.database.commit(ctx, step, effects, end))
}

// brokenLeases is a lease store that differs in one thing.
type brokenLeases struct {
	driver.LeaseStore
	acquire func(of driver.LeaseStore, ctx context.Context, g driver.Group, partition, owner string, ttl time.Duration) (driver.Lease, error)
	renew   func(of driver.LeaseStore, ctx context.Context, lease driver.Lease, ttl time.Duration) error
}

func (b *brokenLeases) Acquire(ctx context.Context, g driver.Group, partition, owner string, ttl time.Duration, above int64) (driver.Lease, error) {
	if b.acquire != nil {
		return b.acquire(b.LeaseStore, ctx, g, partition, owner, ttl)
	}
	return b.LeaseStore.Acquire(ctx, g, partition, owner, ttl, above)
}

func (b *brokenLeases) Renew(ctx context.Context, lease driver.Lease, ttl time.Duration) error {
	if b.renew != nil {
		return b.renew(b.LeaseStore, ctx, lease, ttl)
	}
	return b.LeaseStore.Renew(ctx, lease, ttl)
}

func breakLeases(b brokenLeases) func(*databaseSystem) {
	return breakDatabase(func(d *brokenDatabase) {
		d.leaseIn = func(of driver.LeaseStore) driver.LeaseStore {
			own := b
			own.LeaseStore = of
			return &own
		}
	})
}

// leasesFor grants leases of a multiple of the time.
func leasesFor(factor float64) func(*databaseSystem) {
	return breakLeases(brokenLeases{acquire: func(of driver.LeaseStore, ctx context.Context, g driver.Group, p, owner string, ttl time.Duration) (driver.Lease, error) {
		return of.Acquire(ctx, g, p, owner, time.Duration(float64(ttl)*factor), 0)
	}})
}

// breakDatabase wraps the database once it is prepared.
func breakDatabase(with func(*brokenDatabase)) func(*databaseSystem) {
	return func(s *databaseSystem) {
		b := &brokenDatabase{database: s.database}
		with(b)
		s.database = b
	}
}

var brokenDatabases = []broken[*databaseSystem]{
	{"commits are not on disk", "db.durable", Failed, breakDatabase(func(b *brokenDatabase) { b.problem = "fsync is off" })},
	{"effects commit apart from the checkpoint", "db.atomic", Failed, breakDatabase(func(b *brokenDatabase) { b.commits = apart })},
	{"no fence", "db.fence", Failed, breakDatabase(func(b *brokenDatabase) { b.commits = unfenced })},
	{"no check of the position", "db.position", Failed, breakDatabase(func(b *brokenDatabase) { b.commits = unfenced })},
	{"all rivals commit", "db.race", Failed, breakDatabase(func(b *brokenDatabase) { b.commits = unfenced })},
	{"every claim succeeds", "db.claims", Failed, breakDatabase(func(b *brokenDatabase) {
		b.claims = func(of database, ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
			c, err := of.claim(ctx, lease)
			if errors.Is(err, driver.ErrFenced) {
				err = nil
			}
			return c, err
		}
	})},
	{"names ignore case", "db.keys", Failed, breakDatabase(func(b *brokenDatabase) {
		b.claims = func(of database, ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
			return of.claim(ctx, lowered(lease))
		}
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			step.Lease = lowered(step.Lease)
			return b.database.commit(ctx, step, effects, end)
		}
	})},
	{"a large body is refused", "db.large", Failed, breakDatabase(func(b *brokenDatabase) {
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			if len(step.DeadLetters) > 0 && len(step.DeadLetters[0].Event.Body) > 1<<19 {
				return errors.New("the packet is too large")
			}
			return b.database.commit(ctx, step, effects, end)
		}
	})},
	{"a large body is cut", "db.large", Failed, breakDatabase(func(b *brokenDatabase) {
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			for i := range step.DeadLetters {
				body := &step.DeadLetters[i].Event.Body
				*body = (*body)[:min(len(*body), 1<<19)]
			}
			return b.database.commit(ctx, step, effects, end)
		}
	})},
	{"some of many rows are lost", "db.bulk", Failed, breakDatabase(func(b *brokenDatabase) {
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			return b.database.commit(ctx, step, effects[:min(len(effects), 100)], end)
		}
	})},
	{"a duplicate among many rows is an outage", "db.bulk", Failed, breakDatabase(func(b *brokenDatabase) {
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			err := b.database.commit(ctx, step, effects, end)
			if errors.As(err, new(*driver.HandlerError)) {
				return errors.New("the copy was refused")
			}
			return err
		}
	})},
	{"partitions wait for each other", "db.apart", Failed, func(s *databaseSystem) { s.words = &words{} }}, // as SQLite, but a server
	{"a lost reply is a success", "db.lostreply", Failed, breakDatabase(func(b *brokenDatabase) { b.lossy = careless{b.database} })},
	{"a lost commit was half done", "db.lostreply", Failed, breakDatabase(func(b *brokenDatabase) { b.lossy = halfDone{b.database} })},
	{"a claim does not wait for a paused transaction", "db.paused", Failed, breakDatabase(func(b *brokenDatabase) {
		b.claims = func(of database, ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
			if lease.Epoch > 1 {
				return driver.Checkpoint{Position: positionAt(10)}, nil
			}
			return of.claim(ctx, lease)
		}
	})},
	{"every process gets the lease", "lease.one", Failed, breakLeases(brokenLeases{acquire: func(of driver.LeaseStore, ctx context.Context, g driver.Group, p, owner string, ttl time.Duration) (driver.Lease, error) {
		return of.Acquire(ctx, g, p+owner, owner, ttl, 0)
	}})},
	{"epochs do not rise", "lease.epoch", Failed, breakLeases(brokenLeases{acquire: func(of driver.LeaseStore, ctx context.Context, g driver.Group, p, owner string, ttl time.Duration) (driver.Lease, error) {
		l, err := of.Acquire(ctx, g, p, owner, ttl, 0)
		if err == nil {
			err = errors.Join(of.Release(ctx, l))
		}
		l.Epoch = 1
		return l, err
	}})},
	{"a released lease can be renewed", "lease.epoch", Failed, breakLeases(brokenLeases{renew: func(driver.LeaseStore, context.Context, driver.Lease, time.Duration) error { return nil }})},
	{"leases expire early", "lease.expiry", Failed, func(s *databaseSystem) {
		s.leaseFor = time.Hour // so that no stall makes it late
		leasesFor(1e-6)(s)
	}},
	{"leases do not expire", "lease.expiry", Failed, leasesFor(100)},
	{"a renewal does nothing", "lease.renew", Failed, breakLeases(brokenLeases{renew: func(driver.LeaseStore, context.Context, driver.Lease, time.Duration) error { return nil }})},
	{"the clock runs fast", "db.clock", Failed, breakDatabase(func(b *brokenDatabase) {
		b.times = func(n int, now time.Time) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	})},
	{"the clock is an hour ahead", "db.clock", Warning, breakDatabase(func(b *brokenDatabase) {
		b.times = func(_ int, now time.Time) time.Time { return now.Add(time.Hour) }
	})},
	{"commits are slow", "db.speed", Failed, breakDatabase(func(b *brokenDatabase) {
		b.commits = func(b *brokenDatabase, ctx context.Context, step driver.Step, effects []int64, end func() error) error {
			return errors.Join(pause(ctx, 1100*time.Millisecond), b.database.commit(ctx, step, effects, end))
		}
	})},
}

func TestBrokenDatabases(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	every(t, "database", brokenDatabases)
	eachRow(t, brokenDatabases, func(t *testing.T, c broken[*databaseSystem]) {
		s := prepared(t, openSQLite(t, t.TempDir()))
		c.damage(s)
		expect(t, s, c.check, c.want)
	})
}

// What comes late shows nothing about a lease, which may have expired meanwhile.
func TestLateRequestsForLeases(t *testing.T) {
	const leaseFor = 2 * time.Second
	for name, c := range map[string]struct {
		check    func(*leaseChecks, context.Context) Finding
		requests int64         // so many of others' requests are late
		answer   time.Duration // by which the answer to the first owner is late
	}{
		"one":    {(*leaseChecks).checkOne, 2, 0},
		"renew":  {(*leaseChecks).checkRenew, 2, 0},
		"expiry": {(*leaseChecks).checkExpiry, 0, leaseFor - 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late, partitions atomic.Int64
				late.Store(c.requests)
				store := &brokenLeases{LeaseStore: new(sluicetest.Leases), acquire: func(of driver.LeaseStore, ctx context.Context, g driver.Group, p, owner string, ttl time.Duration) (driver.Lease, error) {
					if owner != "first" && late.Add(-1) >= 0 {
						time.Sleep(leaseFor + time.Second) // in the bubble
					}
					l, err := of.Acquire(ctx, g, p, owner, ttl, 0)
					if owner == "first" {
						time.Sleep(c.answer)
					}
					return l, err
				}}
				checks := &leaseChecks{store, group(Options{ID: "test"}), leaseFor, func() string { return fmt.Sprint(partitions.Add(1)) }}
				if o := c.check(checks, t.Context()); o.State != OK {
					t.Errorf("%s: %s", o.State, o.Found)
				}
			})
		})
	}
}
