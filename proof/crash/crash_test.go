// Package crash runs handlers in separate processes, with the embedded hub and a
// real database, and kills them.
package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sqlstore"
)

// The test binary is also the consumer: with these variables set it consumes and
// runs no tests.
const (
	hubEnv      = "CRASH_TEST_HUB"
	databaseEnv = "CRASH_TEST_DATABASE"
	ownerEnv    = "CRASH_TEST_OWNER" // of long leases, if it is set
	seedEnv     = "CRASH_TEST_SEED"  // of the process's own choices
)

func TestMain(m *testing.M) {
	if database := os.Getenv(databaseEnv); database != "" {
		go func() { // ends with the parent
			io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		if err := consume(os.Getenv(hubEnv), database); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// consume runs a consumer of everything into a database.
func consume(hub, database string) error {
	ctx := context.Background()
	source, err := eventhub.New(hub, "events", nil)
	if err != nil {
		return err
	}
	delivery, leases, err := open(ctx, database)
	if err != nil {
		return err
	}
	cfg := sluice.Config{
		LeaseFor: 1500 * time.Millisecond, RenewEvery: 500 * time.Millisecond, AssignEvery: 20 * time.Millisecond,
		MaxBatch: 100, RetryMin: time.Millisecond, RetryMax: 100 * time.Millisecond,
	}
	if owner := os.Getenv(ownerEnv); owner != "" {
		cfg.Owner, cfg.LeaseFor = owner, 30*time.Second
	}
	if err := copying(&cfg); err != nil {
		return err
	}
	c, err := sluice.New(source, leases, delivery, &cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// databases opens a store by its URL's scheme. Those whose consumers make copies are added to it.
var databases = map[string]func(context.Context, string) (sluice.Delivery, driver.LeaseStore, error){
	"sqlite": func(_ context.Context, path string) (sluice.Delivery, driver.LeaseStore, error) {
		s, err := sqlstore.OpenSQLite(strings.TrimPrefix(path, "sqlite:"), nil)
		if err != nil {
			return nil, nil, err
		}
		return sluice.Transactional(s, handler(func(ctx context.Context, tx *sqlstore.Tx, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		})), s.Leases(), nil
	},
	"postgres": func(ctx context.Context, url string) (sluice.Delivery, driver.LeaseStore, error) {
		s, err := pgstore.Open(ctx, url, nil)
		if err != nil {
			return nil, nil, err
		}
		return sluice.Transactional(s, handler(func(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		})), s.Leases(), nil
	},
}

func open(ctx context.Context, database string) (sluice.Delivery, driver.LeaseStore, error) {
	scheme, _, _ := strings.Cut(database, ":")
	return databases[scheme](ctx, database)
}

const tables = `
CREATE TABLE first (event TEXT NOT NULL);
CREATE TABLE second (event TEXT NOT NULL, small INTEGER NOT NULL CHECK (small < 10));`

// handler writes to two tables. One event in a hundred fails by an error between
// them, one in a hundred by the constraint of the second, and an event with the body
// of a killer ends the process.
func handler[Tx any](exec func(ctx context.Context, tx Tx, query string, args ...any) error) sluice.Handler[Tx] {
	return sluice.Each(func(ctx context.Context, tx Tx, e *sluice.Event) error {
		event, small := e.Partition+"/"+fmt.Sprint(e.Sequence), 1
		if err := exec(ctx, tx, "INSERT INTO first (event) VALUES ($1)", event); err != nil {
			return err
		}
		switch string(e.Body) {
		case "error":
			return errors.New("between the tables")
		case "constraint":
			small = 10
		case "killer":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return exec(ctx, tx, "INSERT INTO second (event, small) VALUES ($1, $2)", event, small)
	})
}

const partitions = 3

// arena is the embedded hub with events in it, and consumers that read it.
type arena struct {
	t        *testing.T
	server   *emulator.Server
	database string
	env      []string // more of the consumers' environment
	running  []*exec.Cmd
	random   *rand.Rand
}

func newArena(t *testing.T, database string, bodies []string) *arena {
	need.RealTime(t)
	server, err := emulator.Start([]emulator.Hub{{Name: "events", Partitions: partitions}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	a := &arena{t: t, server: server, database: database, random: need.Rand(t)}
	t.Cleanup(a.killAll)
	a.send(bodies)
	return a
}

// send appends events to the partitions in turn.
func (a *arena) send(bodies []string) {
	t := a.t
	t.Helper()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(a.server.ConnectionString(), "events", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(t.Context())
	for p := range partitions {
		id := fmt.Sprint(p)
		batch, err := producer.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: &id})
		if err != nil {
			t.Fatal(err)
		}
		for i := p; i < len(bodies); i += partitions {
			if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(bodies[i])}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := producer.SendEventDataBatch(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a consumer process.
func (a *arena) start() *exec.Cmd {
	a.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hubEnv+"="+a.server.ConnectionString(), databaseEnv+"="+a.database, seedEnv+"="+fmt.Sprint(a.random.Uint64()))
	cmd.Env = append(cmd.Env, a.env...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		a.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.running = append(a.running, cmd)
	return cmd
}

func (a *arena) killAll() {
	for _, cmd := range a.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	a.running = nil
}

// count queries a number from the database; -1 if it does not answer.
type count func(query string) int

// await waits for a condition.
func await(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

const done = "SELECT coalesce(sum(sequence_number + 1), 0) FROM sluice_checkpoints WHERE sequence_number >= 0"

// suspects counts the partitions whose next event is suspected of ending processes. Of an event
// that is good, further kills would make a dead letter.
const suspects = "SELECT count(*) FROM sluice_checkpoints WHERE claims > 3 OR trial_unreturned > 0"

// killedHalfWay kills consumers repeatedly while they process events that fail
// half-way, and then checks that no event has half of its effects.
func killedHalfWay(t *testing.T, database string, n count) {
	bodies := make([]string, 6000)
	for i := range bodies {
		switch i % 100 {
		case 17:
			bodies[i] = "error"
		case 61:
			bodies[i] = "constraint"
		}
	}
	a := newArena(t, database, bodies)
	a.start()
	await(t, time.Minute, "first commit", func() bool { return n(done) > 0 })
	events, kills := len(bodies), 0
	for kills < 5 || n(done) < events && kills < 20 {
		if n(done) == events { // consumers may do all while this process has no CPU
			a.send(bodies)
			events += len(bodies)
		}
		a.killAll()
		if n(done) < events {
			kills++
		}
		a.start()
		before := n(done)
		// At least one step forward, and no partition left behind again and again; then a moment of
		// chance.
		await(t, time.Minute, "progress", func() bool { return n(done) > before && n(suspects) == 0 || n(done) == events })
		<-time.After(time.Duration(a.random.IntN(30)) * time.Millisecond)
	}
	await(t, time.Minute, "the end", func() bool { return n(done) == events })
	a.killAll()
	bad := events / 50
	rows, twice := n("SELECT count(*) FROM first"), n("SELECT count(*) - count(DISTINCT event) FROM first")
	half := n("SELECT count(*) FROM first WHERE event NOT IN (SELECT event FROM second)") + n("SELECT count(*) FROM second WHERE event NOT IN (SELECT event FROM first)")
	letters := n("SELECT count(*) FROM sluice_dead_letters")
	need.Verdict(t)
	t.Logf("%d kills; %d events: %d rows, %d dead letters", kills, events, rows, letters)
	if rows != events-bad || twice != 0 || half != 0 || letters != bad {
		t.Errorf("%d rows, %d of them twice, %d events done by half, %d dead letters; want %d rows, %d dead letters", rows, twice, half, letters, events-bad, bad)
	}
}

// killerIsParked sends an event that kills each process that handles it. It must
// become a dead letter.
func killerIsParked(t *testing.T, database string, n count) {
	bodies := make([]string, 300)
	bodies[0] = "killer" // with events before it, a life that gets a little further would not count
	a := newArena(t, database, bodies)
	// A process that loses its lease between the claim and the handler's call leaves the partition
	// cleanly, and deaths count from the beginning. So leases are long, and of one owner, whose
	// next process has them at once.
	a.env = []string{ownerEnv + "=restarted"}
	deaths := 0
	for lives := 0; n(done) < len(bodies) && lives < 30; lives++ {
		cmd := a.start()
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }()
		dead := func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		await(t, time.Minute, "death or the end", func() bool { return dead() || n(done) == len(bodies) })
		if !dead() {
			_ = cmd.Process.Kill()
			<-ended
		} else if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			deaths++
		}
		a.running = nil
	}
	rows, letters := n("SELECT count(*) FROM first"), n("SELECT count(*) FROM sluice_dead_letters WHERE error LIKE '%process ended 3 times%'")
	t.Logf("parked after %d deaths", deaths)
	if deaths != 5 { // one before attempts were recorded, one at the batch, three at the event alone
		t.Errorf("it took %d deaths, want two and three more", deaths)
	}
	need.Verdict(t)
	if rows != len(bodies)-1 || letters != 1 {
		t.Errorf("%d rows, %d dead letters", rows, letters)
	}
}

func sqlite(t *testing.T) (database string, n count) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := sqlstore.OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.DB().Exec(tables); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path, func(query string) int {
		n := -1
		_ = s.DB().QueryRow(query).Scan(&n)
		return n
	}
}

func TestKilledHalfWaySQLite(t *testing.T) {
	t.Parallel()
	database, n := sqlite(t)
	killedHalfWay(t, database, n)
}

func TestKillerIsParkedSQLite(t *testing.T) {
	t.Parallel()
	database, n := sqlite(t)
	killerIsParked(t, database, n)
}
