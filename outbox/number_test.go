package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// everywhere runs a test in each database.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	for _, d := range []Dialect{SQLite, PostgreSQL, MySQL, SQLServer} {
		t.Run(string(d), func(t *testing.T) { test(t, worlds[d](t).another()) })
	}
}

// servers runs a test in each database that has several writers at a time.
func servers(t *testing.T, test func(t *testing.T, w *world)) {
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLServer} {
		t.Run(string(d), func(t *testing.T) { test(t, worlds[d](t).another()) })
	}
}

// add writes messages in a transaction of their own.
func add(t testing.TB, s *Source, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		suite.NoError(t, "put", put(suite.Context(t), s, 0, Message{Body: []byte(body)}))
	}
}

// readAll numbers what is committed, and returns the bodies after a position, of which it has
// checked the numbers.
func readAll(t testing.TB, s *Source, after driver.Position) (bodies string, last driver.Position) {
	t.Helper()
	ctx := suite.Context(t)
	end, err := s.Seek(ctx, "0", sluice.Latest(), 1)
	suite.NoError(t, "seek", err)
	r, err := s.Open(ctx, "0", after, 1)
	suite.NoError(t, "open", err)
	defer r.Close(ctx)
	var list []string
	for after.Sequence < end.Sequence {
		events, err := r.Read(ctx, 100)
		suite.NoError(t, "read", err)
		for _, e := range events {
			if e.Sequence != after.Sequence+1 {
				t.Fatalf("event %d after %v", e.Sequence, after)
			}
			after = e.Position()
			list = append(list, string(e.Body))
		}
	}
	return strings.Join(list, " "), after
}

// A writer that was given an id earlier and commits later is not passed.
func TestLateCommit(t *testing.T) {
	servers(t, func(t *testing.T, w *world) {
		ctx, s := suite.Context(t), w.source(t, Config{})
		add(t, s, "first")
		late, err := s.db.BeginTx(ctx, nil)
		suite.NoError(t, "begin", err)
		defer late.Rollback()
		suite.NoError(t, "add", s.Add(ctx, late, Message{Body: []byte("late")}))
		undone, err := s.db.BeginTx(ctx, nil)
		suite.NoError(t, "begin", err)
		suite.NoError(t, "add", s.Add(ctx, undone, Message{Body: []byte("undone")}))
		add(t, s, "early")
		suite.NoError(t, "roll back", undone.Rollback())
		bodies, at := readAll(t, s, driver.Origin)
		if bodies != "first early" {
			t.Errorf("read %q while a writer is open", bodies)
		}
		suite.NoError(t, "commit", late.Commit())
		add(t, s, "last")
		if bodies, at = readAll(t, s, at); bodies != "late last" || at.Sequence != 3 {
			t.Errorf("read %q up to %v after the late commit, want late and last up to 3", bodies, at)
		}
	})
}

// A transaction that began earlier, and writes a row of the same key later, comes later.
func TestOlderTransactionWritesLater(t *testing.T) {
	servers(t, func(t *testing.T, w *world) {
		ctx, s := suite.Context(t), w.source(t, Config{})
		add(t, s, "first")
		accounts := w.table + "_accounts"
		suite.NoError(t, "create", w.exec(ctx, "CREATE TABLE "+accounts+" (id int NOT NULL PRIMARY KEY, version int NOT NULL)",
			"INSERT INTO "+accounts+" VALUES (1, 0)", "INSERT INTO "+accounts+" VALUES (2, 0)"))
		older, err := s.db.BeginTx(ctx, nil)
		suite.NoError(t, "begin", err)
		defer older.Rollback()
		_, err = older.ExecContext(ctx, "UPDATE "+accounts+" SET version = 1 WHERE id = 2") // it has a transaction id now
		suite.NoError(t, "update", err)
		younger, err := s.db.BeginTx(ctx, nil)
		suite.NoError(t, "begin", err)
		defer younger.Rollback()
		_, err = younger.ExecContext(ctx, "UPDATE "+accounts+" SET version = 1 WHERE id = 1")
		suite.NoError(t, "update", err)
		suite.NoError(t, "add", s.Add(ctx, younger, Message{Key: "1", Body: []byte("younger")}))
		suite.NoError(t, "commit", younger.Commit())
		_, err = older.ExecContext(ctx, "UPDATE "+accounts+" SET version = 2 WHERE id = 1")
		suite.NoError(t, "update", err)
		suite.NoError(t, "add", s.Add(ctx, older, Message{Key: "1", Body: []byte("older")}))
		suite.NoError(t, "commit", older.Commit())
		if bodies, _ := readAll(t, s, driver.Origin); bodies != "first younger older" {
			t.Errorf("read %q", bodies)
		}
	})
}

// Of two processes that number rows at the same time one waits, also if the other is paused between
// reading and COMMIT, or dies there.
func TestPausedNumbering(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx, paused, other := suite.Context(t), w.source(t, Config{Batch: 3}), w.source(t, Config{Batch: 4})
		add(t, other, "a", "b", "c", "d", "e")
		reached, on := make(chan struct{}), make(chan struct{})
		paused.beforeCommit = func() {
			paused.beforeCommit = nil
			close(reached)
			<-on
		}
		first := suite.Spawn(t, func() error { _, _, err := paused.number(ctx, 0); return err })
		<-reached
		second := suite.Spawn(t, func() error { _, _, err := other.number(ctx, 0); return err })
		if err, came := suite.Settled(second); came {
			t.Fatalf("numbered beside a process that is paused: %v", err)
		}
		close(on)
		suite.NoError(t, "number after a pause", <-first)
		suite.NoError(t, "number after the other", <-second)
		if bodies, at := readAll(t, other, driver.Origin); bodies != "a b c d e" || at.Sequence != 4 {
			t.Errorf("read %q up to %v", bodies, at)
		}

		add(t, other, "f", "g")
		ctx, kill := context.WithCancel(ctx)
		paused.beforeCommit = func() { kill() }
		if _, _, err := paused.number(ctx, 0); err == nil {
			t.Error("numbered by a process that died")
		}
		if bodies, at := readAll(t, other, driver.Origin); bodies != "a b c d e f g" || at.Sequence != 6 {
			t.Errorf("read %q up to %v after a process died", bodies, at)
		}
	})
}

// A row that something else deletes or changes is an alarm.
func TestMissingRow(t *testing.T) {
	for change, missing := range map[string][2]int64{
		"DELETE FROM @t WHERE n = 2":                 {1, 3},
		"DELETE FROM @t WHERE n >= 3":                {2, 5},
		"UPDATE @t SET n = NULL WHERE n = 4":         {3, 5},
		"DELETE FROM @t WHERE n = 0":                 {-1, 1},
		"UPDATE @t SET n = n + 10 WHERE n = 1":       {0, 2},
		"UPDATE @t SET partition_id = 1 WHERE n = 3": {2, 4},
	} {
		t.Run(change, func(t *testing.T) {
			w := worlds[SQLite](t)
			ctx, s := suite.Context(t), w.source(t, Config{Partitions: 2})
			add(t, s, "a", "b", "c", "d", "e")
			readAll(t, s, driver.Origin)
			suite.NoError(t, "change", w.exec(ctx, strings.ReplaceAll(change, "@t", w.table)))
			r, err := s.Open(ctx, "0", driver.Origin, 1)
			suite.NoError(t, "open", err)
			for err == nil {
				_, err = r.Read(ctx, 100)
			}
			lost, is := errors.AsType[*driver.RetentionError](err)
			if !is || lost.After != missing[0] || lost.First != missing[1] || !lost.Held {
				t.Errorf("got %v, want the events after %d and before %d missing", err, missing[0], missing[1])
			}
		})
	}
}

// An event that was read and is gone ends its live reader.
func TestLastRowGone(t *testing.T) {
	w := worlds[SQLite](t)
	ctx, s := suite.Context(t), w.source(t, Config{})
	add(t, s, "a", "b")
	r, err := s.Open(ctx, "0", driver.Origin, 1)
	suite.NoError(t, "open", err)
	for range 2 {
		_, err = r.Read(ctx, 1)
		suite.NoError(t, "read", err)
	}
	suite.NoError(t, "delete", w.exec(ctx, "DELETE FROM sluice_outbox WHERE n = 1"))
	add(t, s, "c")
	if events, err := r.Read(ctx, 1); !errors.Is(err, driver.ErrRetention) {
		t.Errorf("read %v, %v after the last event was deleted", events, err)
	}
}

// A table that was set back has other events under numbers that were read, also once they are
// numbered.
func TestSetBack(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx, s := suite.Context(t), w.source(t, Config{})
		s.clock = &stepping{}
		var at []driver.Position
		last := driver.Origin
		for _, body := range []string{"a", "b", "c", "d"} {
			add(t, s, body)
			_, last = readAll(t, s, last)
			at = append(at, last)
		}
		live, err := s.Open(ctx, "0", last, 1)
		suite.NoError(t, "open", err)
		suite.NoError(t, "set back", w.setBack(ctx, "0", 2))
		add(t, s, "x", "y", "z")
		readAll(t, s, driver.Origin)
		if events, err := live.Read(ctx, 10); !errors.Is(err, driver.ErrTruncated) {
			t.Errorf("a live reader read %v, %v", events, err)
		}
		for i, position := range at {
			_, err := s.Open(ctx, "0", position, 1)
			lost, is := errors.AsType[*driver.TruncatedError](err)
			if is != (i >= 2) || is && (lost.End != 2 || lost.Position != position) {
				t.Errorf("opened at %v: %v", position, err)
			}
		}
		// Where the row of a position was deleted, the partition still knows its tag.
		_, err = s.deleteBatch(ctx, 0, 4, 0)
		suite.NoError(t, "delete", err)
		if _, err := s.Open(ctx, "0", at[3], 1); !errors.Is(err, driver.ErrTruncated) {
			t.Errorf("opened at %v, whose row was deleted: %v", at[3], err)
		}
	})
}

// stepping is a clock that is a millisecond later each time.
type stepping struct {
	clock.System
	asked atomic.Int64
}

func (c *stepping) Wall() time.Time { return time.Unix(1_800_000_000, c.asked.Add(1)*1e6) }

// checkpoints are those of one group.
type checkpoints struct {
	list []driver.Checkpoint
	err  error
}

func (c *checkpoints) Read(_ context.Context, g driver.Group) ([]driver.Checkpoint, error) {
	for i := range c.list {
		c.list[i].Group = g
	}
	return c.list, c.err
}

// lateClock is a clock that can be set forward.
type lateClock struct {
	driver.Clock
	late time.Duration
}

func (c *lateClock) Elapsed() time.Duration { return c.Clock.Elapsed() + c.late }

// slowCheckpoints do not answer in time.
type slowCheckpoints struct{ clock *lateClock }

func (c slowCheckpoints) Read(context.Context, driver.Group) ([]driver.Checkpoint, error) {
	c.clock.late += time.Minute
	return nil, context.DeadlineExceeded
}

// Events are read between two looks at checkpoints, however long a look takes.
func TestDeleteWithSlowCheckpoints(t *testing.T) {
	w := worlds[SQLite](t)
	s := w.source(t, Config{})
	clock := &lateClock{Clock: s.clock}
	s.clock = clock
	add(t, s, "a")
	s.DeleteAfter(0, Reader{Checkpoints: slowCheckpoints{clock}})
	read := func() (int, error) {
		r, err := s.Open(t.Context(), "0", driver.Origin, 1)
		suite.NoError(t, "open", err)
		defer r.Close(t.Context())
		events, err := r.Read(t.Context(), 1)
		return len(events), err
	}
	if _, err := read(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("read without checkpoints: %v", err)
	}
	if n, err := read(); n != 1 || err != nil {
		t.Errorf("read %d events of 1 after a look: %v", n, err)
	}
}

// Rows are deleted up to the lowest checkpoint, and those without a number never.
func TestDeleteAfter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx, s := suite.Context(t), w.source(t, Config{Batch: 2})
		topic, err := s.Describe(ctx)
		suite.NoError(t, "describe", err)
		at := func(n int64) *checkpoints {
			return &checkpoints{list: []driver.Checkpoint{{Partition: "0", Incarnation: topic.Incarnation, Position: driver.Position{Sequence: n}}}}
		}
		add(t, s, "a", "b", "c", "d", "e")
		_, end := readAll(t, s, driver.Origin)
		add(t, s, "f")
		count := func() (n int) {
			suite.NoError(t, "count", w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+w.table).Scan(&n))
			return n
		}
		other := at(end.Sequence)
		other.list[0].Incarnation = "another"
		for i, c := range []struct {
			keep    time.Duration
			readers []*checkpoints
			left    int
		}{
			{0, nil, 6},
			{0, []*checkpoints{at(3), {}}, 6},    // a group that has none yet
			{0, []*checkpoints{at(3), other}, 6}, // of a table that is gone
			{0, []*checkpoints{at(3), at(driver.Unset.Sequence)}, 6},
			{time.Hour, []*checkpoints{at(3)}, 6},
			{0, []*checkpoints{at(3), at(1)}, 4},
			{0, []*checkpoints{at(3), at(3)}, 2},
			{0, []*checkpoints{at(1 << 40)}, 1}, // f has no number
		} {
			var readers []Reader
			for j, r := range c.readers {
				readers = append(readers, Reader{Group: fmt.Sprint(j), Checkpoints: r})
			}
			s.DeleteAfter(c.keep, readers...)
			suite.NoError(t, "delete", s.deleteDue(ctx, 0))
			if n := count(); n != c.left {
				t.Errorf("case %d: %d rows are left, want %d", i, n, c.left)
			}
		}
		if bodies, _ := readAll(t, s, end); bodies != "f" {
			t.Errorf("read %q after all events before were deleted", bodies)
		}
		broken := errors.New("no answer")
		s.DeleteAfter(0, Reader{Checkpoints: &checkpoints{err: broken}})
		r, err := s.Open(ctx, "0", end, 1)
		suite.NoError(t, "open", err)
		if _, err := r.Read(ctx, 1); !errors.Is(err, broken) {
			t.Errorf("read with checkpoints that cannot be read: %v", err)
		}
	})
}

// A database of another dialect is refused with the dialect that was stated.
func TestWrongDialect(t *testing.T) {
	box, err := New(openSQLite(t, t.TempDir()+"/a.db"), PostgreSQL, nil)
	suite.NoError(t, "new", err)
	err = box.Create(t.Context())
	if err == nil || !strings.Contains(err.Error(), "whether the dialect of the database is postgres") {
		t.Errorf("create: %v", err)
	}
}
