package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// load is what writers and consumers do to an outbox.
type load struct {
	writers, each int // transactions of each writer
	keys          int // of the messages
	partitions    int
	delay         time.Duration // in a transaction, at most
	open          time.Duration // for how long one transaction stays open at least; 0: there is none
	kills         int           // one in so many reads ends its reader
	lost          int           // one in so many COMMITs is lost, and one in so many its reply; 0: none
}

// small is for make test and make proof. SLUICE_OUTBOX=large is for make soak: 1,000 writers with
// delays up to a minute, and a transaction that is open for ten.
func (l load) sized() load {
	if os.Getenv("SLUICE_OUTBOX") == "large" {
		l.writers, l.each, l.keys, l.partitions, l.delay, l.open = 1000, 10, 200, 4, time.Minute, 10*time.Minute
	}
	return l
}

// key has a version in the table of accounts, which each of its messages raises: so the messages of
// a key must arrive as 1, 2, 3 and so on, up to the version that is committed in the end.
type scene struct {
	load
	*world
	accounts string
	writer   *Source // over the connections of all writers

	mu        sync.Mutex
	positions []driver.Position // of each partition: what is done
	versions  map[int]int       // of each key: the last effect
	failures  []string
	effects   int
}

func newScene(t *testing.T, w *world, l load) *scene {
	ctx := suite.Context(t)
	s := &scene{load: l, world: w, accounts: w.table + "_accounts", versions: map[int]int{}}
	s.writer = w.source(t, Config{Partitions: l.partitions})
	s.writer.db.SetMaxOpenConns(60) // servers allow about 100; the other writers wait
	_, err := s.writer.Describe(ctx)
	suite.NoError(t, "describe", err)
	suite.NoError(t, "create", w.exec(ctx, "CREATE TABLE "+s.accounts+" (id int NOT NULL PRIMARY KEY, version int NOT NULL)"))
	for key := range l.keys + 1 {
		suite.NoError(t, "create", w.exec(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d, 0)", s.accounts, key)))
	}
	for range l.partitions {
		s.positions = append(s.positions, driver.Origin)
	}
	return s
}

// write raises the version of a key and writes its message, or rolls back. Its error may mean that
// the COMMIT is unknown.
func (s *scene) write(ctx context.Context, key int, pause time.Duration, undo bool) error {
	tx, err := s.writer.db.BeginTx(ctx, s.dialect.txOptions())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET version = version + 1 WHERE id = %d", s.accounts, key)); err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT version FROM %s WHERE id = %d", s.accounts, key)).Scan(&version); err != nil {
		return err
	}
	wait(ctx, pause/2)
	if err := s.writer.Add(ctx, tx, Message{Key: strconv.Itoa(key), Body: []byte(fmt.Sprintf("%d %d", key, version))}); err != nil {
		return err
	}
	wait(ctx, pause/2)
	if undo {
		return tx.Rollback()
	}
	return tx.Commit()
}

// wait waits for a time, if there is any.
func wait(ctx context.Context, d time.Duration) {
	if d > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

// consume reads a partition in a process that is killed again and again, until the context ends.
func (s *scene) consume(ctx context.Context, source *Source, partition int, chance *rand.Rand) {
	for ctx.Err() == nil {
		s.mu.Lock()
		at := s.positions[partition]
		s.mu.Unlock()
		r, err := source.Open(ctx, strconv.Itoa(partition), at, 1)
		for err == nil && (s.kills == 0 || chance.IntN(s.kills) > 0) {
			var events []*driver.Event
			if events, err = r.Read(ctx, 1+chance.IntN(20)); err == nil && !s.apply(partition, at, events) {
				break
			} else if err == nil {
				at = events[len(events)-1].Position()
			}
		}
		if err != nil && s.lost == 0 && ctx.Err() == nil {
			s.fail("partition %d: %v", partition, err)
			return
		}
		if r != nil {
			r.Close(ctx)
		}
	}
}

func (s *scene) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

// apply has the effects of events in one transaction with the position, if that has not moved.
func (s *scene) apply(partition int, from driver.Position, events []*driver.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.positions[partition] != from {
		return false
	}
	for i, e := range events {
		var key, version int
		if _, err := fmt.Sscan(string(e.Body), &key, &version); err != nil || e.Sequence != from.Sequence+1+int64(i) || version != s.versions[key]+1 {
			s.failures = append(s.failures, fmt.Sprintf("partition %d after %v, key %d at %d: event %d says %q", partition, from, key, s.versions[key], e.Sequence, e.Body))
		}
		s.versions[key] = version
		s.effects++
	}
	s.positions[partition] = events[len(events)-1].Position()
	return true
}

// committed returns the versions that are committed.
func (s *scene) committed(ctx context.Context) (versions map[int]int, sum int, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, version FROM "+s.accounts)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	versions = map[int]int{}
	for rows.Next() {
		var key, version int
		if err := rows.Scan(&key, &version); err != nil {
			return nil, 0, err
		}
		versions[key] = version
		sum += version
	}
	return versions, sum, rows.Err()
}

func (s *scene) run(t *testing.T) {
	need.Verdict(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing, consuming sync.WaitGroup
	seed := need.Seed(t)
	began := time.Now()
	for i := range s.writers {
		writing.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(i)))
			for range s.each {
				err := s.write(ctx, chance.IntN(s.keys), time.Duration(chance.Float64()*chance.Float64()*chance.Float64()*float64(s.delay)), chance.IntN(5) == 0)
				if err != nil && s.lost == 0 {
					s.fail("write: %v", err)
				}
			}
		})
	}
	if s.open > 0 {
		writing.Go(func() {
			if err := s.write(ctx, s.keys, s.open, false); err != nil && s.lost == 0 {
				s.fail("write: %v", err)
			}
		})
	}
	for i := range 2 * s.partitions { // two processes
		source := s.source(t, Config{Partitions: s.partitions, Batch: 1 + 50*i, PollMax: 20 * time.Millisecond})
		consuming.Go(func() {
			s.consume(ctx, source, i%s.partitions, rand.New(rand.NewPCG(seed, uint64(1000+i))))
		})
	}
	writing.Wait()
	var want map[int]int
	suite.Eventually(t, "every committed row has its effect", func() bool {
		versions, sum, err := s.committed(ctx)
		want = versions
		s.mu.Lock()
		defer s.mu.Unlock()
		return err == nil && sum == s.effects || len(s.failures) > 0
	})
	cancel()
	consuming.Wait()
	for key, version := range want {
		if s.versions[key] != version {
			t.Errorf("key %d: %d effects, %d committed", key, s.versions[key], version)
		}
	}
	for _, failure := range s.failures {
		t.Error(failure)
	}
	t.Logf("%d rows in %v", s.effects, time.Since(began).Round(time.Millisecond))
}

// Every committed row has its effect once, in the order of its key.
func TestSQLiteWriters(t *testing.T) {
	w := worlds[SQLite](t)
	w.db.SetMaxOpenConns(1)
	newScene(t, w, load{writers: 4, each: 25, keys: 5, partitions: 2, kills: 5}).run(t)
}

func TestWriters(t *testing.T) {
	need.RealTime(t)
	servers(t, func(t *testing.T, w *world) {
		newScene(t, w, load{writers: 30, each: eachOf(w), keys: 10, partitions: 2, delay: 60 * time.Millisecond, open: time.Second, kills: 10}.sized()).run(t)
	})
}

// The same behind a network that loses COMMITs and their replies, of writers and of readers.
func TestLostCommits(t *testing.T) {
	need.RealTime(t)
	proxies := map[Dialect]func(t testing.TB, address string) (*commitproxy.Proxy, string){
		PostgreSQL: pgtest.NewTestProxy, MySQL: mariadbtest.NewTestProxy, SQLServer: sqlservertest.NewTestProxy,
	}
	servers(t, func(t *testing.T, w *world) {
		proxy, through := proxies[w.dialect](t, w.address)
		direct := w.connect
		w.connect = func(t testing.TB, _ string) *sql.DB { return direct(t, through) }
		scene := newScene(t, w, load{writers: 10, each: eachOf(w), keys: 5, partitions: 2, delay: 20 * time.Millisecond, kills: 10, lost: 5}.sized())
		proxy.OnCommit(func(n int) commitproxy.Fault {
			switch n % scene.lost {
			case 1:
				return commitproxy.LoseReply
			case 3:
				return commitproxy.CutBefore
			}
			return commitproxy.None
		})
		scene.run(t)
		if n := proxy.Commits(); n < 4*scene.lost {
			t.Errorf("%d COMMITs: this shows nothing", n)
		}
	})
}

// eachOf is how many transactions a writer has: Babelfish takes 20 ms and more for each statement.
func eachOf(w *world) int {
	if w.dialect == SQLServer {
		return 3
	}
	return 10
}
