package pgstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
)

// running is a consumer of a hub with one partition, whose handler writes into the table rows.
type running struct {
	t     *testing.T
	store *pgstore.Store
	hub   *sluicetest.Hub
	mu    sync.Mutex
	seen  []driver.Observation
}

func (r *running) Observe(o driver.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

// run starts a consumer, which ends with the test. Its store has settings in its URL.
func run(t *testing.T, settings string, cfg *pgstore.Config, h sluice.Handler[pgx.Tx], setup string) *running {
	url := pgtest.Database(t)
	r := &running{t: t, store: open(t, url, nil), hub: sluicetest.NewHub(group, 1)}
	r.exec(`CREATE TABLE rows (n bigint UNIQUE); ` + setup)
	consumer, err := sluice.New(r.hub, &sluicetest.Leases{}, sluice.Transactional(open(t, url+settings, cfg), h),
		&sluice.Config{Owner: "a", Observer: r, AssignEvery: 10 * time.Millisecond, RetryMax: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); _ = consumer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	return r
}

func (r *running) exec(sql string) {
	r.t.Helper()
	if _, err := r.store.Pool().Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) count(sql string) (n int) {
	r.t.Helper()
	if err := r.store.Pool().QueryRow(r.t.Context(), sql).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// send appends good events.
func (r *running) send(n int) {
	r.hub.Append("0", sluicetest.Bodies(slices.Repeat([]string{"good"}, n)...)...)
}

// reported reports whether a failure was observed whose text contains all of words.
func (r *running) reported(words ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.seen, func(o driver.Observation) bool {
		return o.Kind == driver.KindFailed && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(o.Err.Error(), w) })
	})
}

// await fails the test if it takes longer until ok.
func (r *running) await(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	began := time.Now()
	eventually(r.t, what, ok)
	if took := time.Since(began); took > limit {
		r.t.Errorf("%s after %v, want within %v", what, took, limit)
	}
}

func (r *running) deadLetters() []driver.DeadLetter {
	r.t.Helper()
	list, err := r.store.List(r.t.Context(), group, driver.DeadLetterFilter{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

func insertRow(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
	_, err := tx.Exec(ctx, `INSERT INTO rows VALUES ($1)`, e.Sequence)
	return err
}

// What is wrong with the database for every event makes no dead letters. It is reported at once,
// and the partition moves soon after it was repaired.
func TestBrokenForEveryEvent(t *testing.T) {
	asWriter := sluice.Each(func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
		if _, err := tx.Exec(ctx, `SET LOCAL ROLE outage_writer`); err != nil {
			return err
		}
		if err := insertRow(ctx, tx, e); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `RESET ROLE`)
		return err
	})
	const raise = `CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the service is down'; END $$;`
	for name, c := range map[string]struct {
		handler           sluice.Handler[pgx.Tx]
		setup, hurt, mend string
		report            []string
	}{
		"missing table": {sluice.Each(insertRow), ``, `ALTER TABLE rows RENAME TO elsewhere`, `ALTER TABLE elsewhere RENAME TO rows`,
			[]string{`relation "rows" does not exist`, "a table is missing: create it", "events wait and none becomes a dead letter"}},
		"missing right": {asWriter, `DO $$ BEGIN CREATE ROLE outage_writer; EXCEPTION WHEN duplicate_object THEN END $$; GRANT INSERT ON rows TO outage_writer`,
			`REVOKE INSERT ON rows FROM outage_writer`, `GRANT INSERT ON rows TO outage_writer`,
			[]string{"permission denied", "lacks a right, or a row-level policy"}},
		"no partition": {sluice.Each(insertRow), `DROP TABLE rows; CREATE TABLE rows (n bigint) PARTITION BY RANGE (n); CREATE TABLE rows_1 PARTITION OF rows FOR VALUES FROM (0) TO (100)`,
			``, `CREATE TABLE rows_2 PARTITION OF rows DEFAULT`,
			[]string{"no partition of relation", "no partition for this row: create it"}},
		"trigger raises": {sluice.Each(insertRow), raise, `CREATE TRIGGER raise BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION raise()`, `DROP TRIGGER raise ON rows`,
			[]string{"partition is held: 20 events in a row failed", "the service is down"}},
		"trigger raises at COMMIT": {sluice.Each(insertRow), raise,
			`CREATE CONSTRAINT TRIGGER raise AFTER INSERT ON rows DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION raise()`, `DROP TRIGGER raise ON rows`,
			[]string{"partition is held: 20 events in a row failed", "the service is down"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, "", nil, c.handler, c.setup)
			r.send(100)
			eventually(t, "all good events are committed", func() bool { return r.count(`SELECT count(*) FROM rows`) == 100 })
			r.exec(c.hurt)
			r.send(200)
			r.await(10*time.Second, "it is reported", func() bool { return r.reported(c.report...) })
			r.mu.Lock()
			before := len(r.seen)
			r.mu.Unlock()
			eventually(t, "it is reported again", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.seen) > before+2 })
			if n := len(r.deadLetters()); n != 0 {
				t.Errorf("%d dead letters", n)
			}
			r.exec(c.mend)
			r.await(10*time.Second, "the partition moves", func() bool { return r.count(`SELECT count(*) FROM rows`) > 100 })
			eventually(t, "all events are committed", func() bool { return r.count(`SELECT count(*) FROM rows`) == 300 })
			if n := len(r.deadLetters()); n != 0 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

// One event is slow, or its handler is. The others pass it, and it becomes a dead letter that says
// why.
func TestSlowEvent(t *testing.T) {
	const slow = 77
	other := open(t, pgtest.Database(t), nil)
	for name, c := range map[string]struct {
		settings string
		cfg      *pgstore.Config
		handler  func(ctx context.Context, tx pgx.Tx) error
		says     string
	}{
		"statement_timeout": {"&statement_timeout=1000", nil, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(10)`)
			return err
		}, "statement timeout"},
		"longer than the lease": {"", &pgstore.Config{LeaseFor: time.Second, LockTimeout: patient.LockTimeout}, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
				return err
			}
			return idle(ctx, other, tx)
		}, "time limit passed: the handler took"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sluice.Each(func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
				if e.Sequence == slow {
					if err := c.handler(ctx, tx); err != nil {
						return fmt.Errorf("look up: %w", err)
					}
				}
				return insertRow(ctx, tx, e)
			})
			r := run(t, c.settings, c.cfg, h, "")
			r.send(150)
			eventually(t, "the others pass", func() bool { return r.count(`SELECT count(*) FROM rows`) == 149 })
			dead := r.deadLetters()
			if len(dead) != 1 || dead[0].Event.Sequence != slow || dead[0].Attempts != 3 || !strings.Contains(dead[0].Error, c.says) {
				t.Errorf("dead letters: %+v", dead)
			}
		})
	}
}
