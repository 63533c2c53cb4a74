package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// ours is the version of this binary.
var ours = len(postgres.Migrations)

// later are the migrations of binaries to come: the first adds, the second
// leaves this one behind.
var later = append(append([]postgres.Migration{}, postgres.Migrations...),
	postgres.Migration{Oldest: 1, SQL: `
ALTER TABLE sluice_checkpoints ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE sluice_dead_letters ADD COLUMN tags text[];
CREATE INDEX sluice_dead_letters_failed ON sluice_dead_letters (failed_at)`},
	postgres.Migration{Oldest: ours + 1, SQL: `ALTER TABLE sluice_leases ADD COLUMN note text NOT NULL DEFAULT ''`},
)

// connect connects until the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func migrateTo(t *testing.T, url string, version int) error {
	t.Helper()
	_, err := postgres.Migrate(t.Context(), connect(t, url), "", postgres.Stores, later[:version])
	return err
}

// use does everything that a binary does with the tables.
func use(t *testing.T, s *Store, owner string) {
	t.Helper()
	ctx := t.Context()
	group := driver.Group{Namespace: "ns", Topic: "flights", Name: owner}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	lease, err := s.Leases().Acquire(ctx, group, "0", owner, time.Minute, 0)
	must("acquire", err)
	must("renew", s.Leases().Renew(ctx, lease, time.Minute))
	p, err := s.Claim(ctx, lease, "1")
	must("claim", err)
	next := driver.Position{Sequence: p.Position.Sequence + 1}
	letter := driver.DeadLetter{Incarnation: "1", Status: driver.StatusRetry, HasBody: true, Event: driver.Event{Partition: "0", Sequence: next.Sequence}}
	must("commit", s.Commit(ctx, driver.Step{Lease: lease, From: p.Position, To: next, DeadLetters: []driver.DeadLetter{letter}}, nil))
	_, err = s.Redrive(ctx, group, driver.DeadLetterFilter{}, time.Time{})
	must("retry", err)
	due, err := s.Due(ctx, group, "0", 10)
	must("due", err)
	if len(due) != 1 {
		t.Fatalf("due are %+v, want one", due)
	}
	must("see", s.Commit(ctx, driver.Step{Lease: lease, From: next, To: next, Dedup: []driver.DedupState{{Origin: "b/0", Top: 1, IDs: "0:1"}}}, nil))
	if seen, err := s.ReadDedup(ctx, group, "0"); err != nil || len(seen) != 1 {
		t.Fatalf("seen %+v, %v; want one", seen, err)
	}
	must("redrive", s.Commit(ctx, driver.Step{Lease: lease, From: next, To: next, Redriven: []int64{due[0].ID}}, nil))
	must("advance", s.Advance(ctx, lease, "1", next, []driver.SequenceRange{{First: next.Sequence + 2, Last: next.Sequence + 5}}))
	if p, err = s.Claim(ctx, lease, "1"); err != nil || len(p.Done) != 1 {
		t.Fatalf("claimed %+v, %v; want a range that is done", p, err)
	}
	letter.Group, letter.Event.Key = group, "key"
	must("park", s.Park(ctx, []driver.DeadLetter{letter}))
	if due, err = s.Due(ctx, group, "0", 10); err != nil || len(due) != 1 {
		t.Fatalf("due are %+v, %v; want one", due, err)
	}
	if keys, err := s.Held(ctx, group, "0", nil); err != nil || len(keys) != 1 {
		t.Fatalf("held are %+v, %v; want one key", keys, err)
	}
	must("settle", s.Settle(ctx, group, []int64{due[0].ID}, nil))
	if numbers, err := s.Parked(ctx, group, "0", "1", -1); err != nil || len(numbers) != 0 {
		t.Fatalf("parked are %v, %v; want none", numbers, err)
	}
	must("leave", s.Leave(ctx, lease))
	must("release", s.Leases().Release(ctx, lease))
}

func TestSideBySide(t *testing.T) {
	url := pgtest.Database(t)
	old, err := Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	use(t, old, "before")
	if err := migrateTo(t, url, ours+1); err != nil {
		t.Fatal(err)
	}
	use(t, old, "running") // with statements prepared before the migration
	started, err := Open(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("an older binary started after the migration: %v", err)
	}
	defer started.Close()
	use(t, started, "started")

	if err := migrateTo(t, url, ours+2); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), url, nil)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", ours+2)) || !strings.Contains(err.Error(), fmt.Sprint("version ", ours+1)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a binary that is too old: error is %v, want one line that names both versions", err)
	}
	if err := migrateTo(t, url, ours+1); err != nil {
		t.Errorf("a binary that is just young enough: %v", err)
	}
}

// openOld returns a store over tables that a binary of an earlier version has
// made, with a checkpoint of a group at 9, and what executes such a binary's
// statements.
func openOld(t *testing.T, version int) (s *Store, group driver.Group, asOld func(statement string)) {
	t.Helper()
	url := pgtest.Database(t)
	old := connect(t, url)
	if _, err := postgres.Migrate(t.Context(), old, "", postgres.Stores, postgres.Migrations[:version]); err != nil {
		t.Fatal(err)
	}
	asOld = func(statement string) {
		t.Helper()
		if _, err := old.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	asOld(`INSERT INTO sluice_checkpoints (namespace, topic, consumer_group, partition, incarnation, sequence_number, owner, epoch, updated_at)
VALUES ('ns', 'flights', 'g', '0', 'i', 9, 'a', 1, now())`)
	s, err := Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, driver.Group{Namespace: "ns", Topic: "flights", Name: "g"}, asOld
}

// Tables that a binary of version 1 has made are taken over as they are, and
// such a binary may go on beside this one: it claims and moves checkpoints
// without knowledge of what is done after them, which then must not count.
func TestBesideVersion1(t *testing.T) {
	s, group, asOld := openOld(t, 1)
	for i, c := range []struct{ what, statement string }{
		{"claimed", `UPDATE sluice_checkpoints SET owner = 'old', epoch = epoch + 1, claims = claims + 1`},
		{"claimed and moved", `UPDATE sluice_checkpoints SET owner = 'old', epoch = epoch + 1, claims = 1, sequence_number = sequence_number + 3`},
		{"reset", `UPDATE sluice_checkpoints SET owner = '', epoch = epoch + 1, claims = 0, incarnation = 'another'`},
	} {
		l := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: int64(2*i + 2)}
		p, err := s.Claim(t.Context(), l, "i")
		if err != nil || len(p.Done) > 0 || p.Position.Sequence < 9 {
			t.Fatalf("claimed %+v, %v", p, err)
		}
		done := []driver.SequenceRange{{First: p.Position.Sequence + 3, Last: p.Position.Sequence + 5}}
		if err := s.Advance(t.Context(), l, "i", p.Position, done); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Claim(t.Context(), l, "i"); err != nil || !slices.Equal(p.Done, done) {
			t.Errorf("before: %+v, %v; want %v done", p, err, done)
		}
		asOld(c.statement)
		list, err := s.Read(t.Context(), group)
		if err != nil || len(list) != 1 || len(list[0].Done) > 0 {
			t.Errorf("%s by a binary of version 1: %+v, %v; want nothing done", c.what, list, err)
		}
	}
}

// Tables of version 2 are taken over too. Such a binary knows nothing of what
// was seen: that stays while it moves checkpoints, and does not count where it
// has set one back.
func TestBesideVersion2(t *testing.T) {
	s, group, asOld := openOld(t, 2)
	steps := func(what string, want ...int64) {
		t.Helper()
		list, err := s.ReadDedup(t.Context(), group, "0")
		if err != nil || !slices.EqualFunc(list, want, func(s driver.DedupState, top int64) bool { return s.Top == top }) {
			t.Errorf("%s: seen %+v, %v; want those of %v", what, list, err, want)
		}
	}
	seen := func(epoch, from, to int64) {
		t.Helper()
		step := driver.Step{
			Lease: driver.Lease{Group: group, Partition: "0", Owner: "b", Epoch: epoch}, From: driver.Position{Sequence: from}, To: driver.Position{Sequence: to},
			Dedup: []driver.DedupState{{Origin: "b/0", Low: -1, Top: to, Forget: -1, IDs: "0:1"}},
		}
		if _, err := s.Claim(t.Context(), step.Lease, "i"); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), step, nil); err != nil {
			t.Fatal(err)
		}
	}
	steps("tables of version 2")
	seen(2, 9, 20)
	seen(2, 20, 30)
	asOld(`UPDATE sluice_checkpoints SET owner = 'old', epoch = 3, sequence_number = 40`)
	steps("the old binary moved the checkpoint", 20, 30)
	asOld(`UPDATE sluice_checkpoints SET owner = '', epoch = 4, sequence_number = 25`)
	steps("it was set back", 20)
	seen(5, 25, 27)
	seen(5, 27, 50)
	steps("and moved on", 20, 27, 50)
}

func TestMigrateTogether(t *testing.T) {
	url := pgtest.Database(t)
	const n = 8
	errs := make(chan error)
	for i := range n {
		go func() {
			ctx := context.WithoutCancel(t.Context())
			conn, err := pgx.Connect(ctx, url)
			if err == nil {
				_, err = postgres.Migrate(ctx, conn, "", postgres.Stores, later[:1+i%len(later)])
				conn.Close(ctx)
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil && !strings.Contains(err.Error(), "too old") {
			t.Error(err)
		}
	}
	conn := connect(t, url)
	var version, oldest int
	if err := conn.QueryRow(t.Context(), `SELECT version, oldest_compatible FROM sluice_schema WHERE component = 'store'`).Scan(&version, &oldest); err != nil || version != ours+2 || oldest != ours+1 {
		t.Errorf("the tables are at %d, %d, %v", version, oldest, err)
	}
}

// A migration that fails leaves nothing.
func TestMigrationFails(t *testing.T) {
	url := pgtest.Database(t)
	conn := connect(t, url)
	broken := append(append([]postgres.Migration{}, later...), postgres.Migration{Oldest: 1, SQL: `CREATE TABLE sluice_more (n int); SELECT 1/0`})
	if _, err := postgres.Migrate(t.Context(), conn, "", postgres.Stores, broken); err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", ours+3)) {
		t.Errorf("error is %v, want it to name version %d", err, ours+3)
	}
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE tablename LIKE 'sluice%'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables are left, %v", n, err)
	}
	if _, err := postgres.Migrate(t.Context(), conn, "", postgres.Stores, postgres.Migrations); err != nil {
		t.Error(err)
	}
}

func TestSchemas(t *testing.T) {
	url := pgtest.Database(t)
	for _, name := range []string{"sluice", `Odd "name".x`} {
		s, err := Open(t.Context(), url, &Config{Schema: name})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		use(t, s, "a")
		var n int
		if err := s.Pool().QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = $1`, name).Scan(&n); err != nil || n != 5 {
			t.Errorf("%d tables in schema %s, %v; want 5", n, name, err)
		}
		var path string
		if err := s.Pool().QueryRow(t.Context(), `SHOW search_path`).Scan(&path); err != nil || strings.Contains(path, name) {
			t.Errorf("search_path is %s, %v; want the role's own", path, err)
		}
	}
	if _, err := Open(t.Context(), url+"&search_path=nowhere", nil); err == nil || !strings.Contains(err.Error(), "search_path") {
		t.Errorf("no schema to use: error is %v", err)
	}
}

func TestMayNotCreate(t *testing.T) {
	url := pgtest.Database(t)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'reader'; REVOKE CREATE ON SCHEMA public FROM PUBLIC`); err != nil {
		t.Fatal(err)
	}
	c := conn.Config()
	_, err := Open(t.Context(), fmt.Sprintf("postgres://reader:reader@%s:%d/%s?sslmode=disable", c.Host, c.Port, c.Database), nil)
	if err == nil || !strings.Contains(err.Error(), "grant") || !strings.Contains(err.Error(), "public") || !strings.Contains(err.Error(), "PostgreSQL at 127.0.0.1:") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v, want one line that says what to grant", err)
	}
}

func TestEncoding(t *testing.T) {
	url := pgtest.Database(t)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `DROP DATABASE IF EXISTS latin`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), strings.Replace(url, "/"+conn.Config().Database, "/latin", 1), nil)
	if err == nil || !strings.Contains(err.Error(), "LATIN1") || !strings.Contains(err.Error(), "PostgreSQL at 127.0.0.1:") || errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the encoding refused", err)
	}
}

// Dead letters that a binary of version 4 has stored, or stores beside this one, are not copied
// yet.
func TestCopiesBesideVersion4(t *testing.T) {
	s, group, asOld := openOld(t, 4)
	park := func(sequence int) {
		asOld(fmt.Sprintf(`INSERT INTO sluice_dead_letters (namespace, topic, consumer_group, incarnation, partition, sequence_number, failed_at, error, attempts, status, has_body)
VALUES ('ns', 'flights', 'g', 'i', '0', %d, now(), 'no', 1, 'dead', false)`, sequence))
	}
	uncopied := func(want ...int64) (list []driver.DeadLetter) {
		t.Helper()
		list, err := s.Uncopied(t.Context(), group, "0", 0, 10)
		if err != nil || !slices.EqualFunc(list, want, func(d driver.DeadLetter, n int64) bool { return d.Event.Sequence == n }) {
			t.Fatalf("not copied are %+v, %v; want events %v", list, err, want)
		}
		return list
	}
	park(1)
	one := uncopied(1)[0]
	if err := s.MarkCopied(t.Context(), group, "0", []driver.ParkedEvent{{ID: one.ID}}); err != nil {
		t.Fatal(err)
	}
	park(2)
	uncopied(2)
}
