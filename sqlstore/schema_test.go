package sqlstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

// openAs opens the database as a program that knows these steps beyond
// this one's.
func openAs(t testing.TB, path string, more ...step) (*Store, error) {
	t.Helper()
	cfg, err := (*Config)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSQLite(path, cfg, sqliteDialect{slices.Concat(sqliteStoreSteps, more), sqliteLeaseSteps})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func version(t testing.TB, s *Store) (version, oldest int) {
	t.Helper()
	if err := s.DB().QueryRow("SELECT version, oldest_compatible FROM sluice_schema WHERE component = 'store'").Scan(&version, &oldest); err != nil {
		t.Fatal(err)
	}
	return version, oldest
}

// ours is the version of this program.
var ours = len(sqliteStoreSteps)

var (
	additive = step{oldest: 1, sql: `
		ALTER TABLE sluice_checkpoints ADD COLUMN speed INTEGER NOT NULL DEFAULT 7;
		ALTER TABLE sluice_dead_letters ADD COLUMN note TEXT;
		CREATE TABLE sluice_news (id INTEGER PRIMARY KEY)`}
	breaking = step{oldest: ours + 2, sql: `DROP TABLE sluice_news`}
	faulty   = step{oldest: 1, sql: `CREATE TABLE sluice_half (id INTEGER PRIMARY KEY); CREATE TABLE no such thing`}
)

// During a rolling upgrade an older program works on the tables of a newer
// one, whichever of them opens the database first.
func TestOlderBesideNewer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	running := open(t, path)
	newer, err := openAs(t, path, additive)
	if err != nil {
		t.Fatal(err)
	}
	starting := open(t, path)
	if v, oldest := version(t, starting); v != ours+1 || oldest != 1 {
		t.Errorf("version %d, oldest %d; want %d, 1: the older program must not change them", v, oldest, ours+1)
	}
	from := driver.Unset
	for i, s := range []*Store{running, newer, starting} {
		l, to := leaseOf("0", "a", int64(i+1)), positionAt(int64(i))
		if _, err := s.Claim(t.Context(), l, "i"); err != nil {
			t.Fatal(err)
		}
		letter := driver.DeadLetter{Group: group, Incarnation: "i", Status: driver.StatusDead, Event: driver.Event{Partition: "0", Sequence: to.Sequence}}
		if err := s.Commit(t.Context(), driver.Step{Lease: l, From: from, To: to, DeadLetters: []driver.DeadLetter{letter}}, func(ctx context.Context, tx *Tx) error {
			return put(ctx, tx, "x")
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Redrive(t.Context(), group, driver.DeadLetterFilter{}, letter.FailedAt); err != nil || n != int64(i+1) {
			t.Errorf("retry of %d dead letters: %d, %v", i+1, n, err)
		}
		from = to
	}
	var speed int
	if err := newer.DB().QueryRow("SELECT speed FROM sluice_checkpoints").Scan(&speed); err != nil || speed != 7 {
		t.Errorf("the newer program's column: %d, %v", speed, err)
	}
}

// A database that a program of version 1 has made is taken over as it is, and
// such a program may go on beside this one: it claims and moves checkpoints
// without knowledge of what is done after them, which then must not count.
func TestBesideVersion1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	cfg, err := (*Config)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	old, err := openSQLite(path, cfg, sqliteDialect{sqliteStoreSteps[:1], sqliteLeaseSteps})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	asOld := func(statement string) {
		t.Helper()
		if _, err := old.writer.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	asOld(`INSERT INTO sluice_checkpoints VALUES ('` + strings.Join([]string{group.Namespace, group.Topic, group.Name}, "','") + `', '0', 'i', 9, 'o', 'a', 1, 1, 0, 0, '', '2026-01-02T03:04:05.000000Z')`)
	s := open(t, path)
	done := []driver.SequenceRange{{First: 12, Last: 14}}
	for epoch, c := range []struct{ what, statement string }{
		{"claimed", `UPDATE sluice_checkpoints SET owner = 'old', epoch = epoch + 1, claims = claims + 1`},
		{"claimed and moved", `UPDATE sluice_checkpoints SET owner = 'old', epoch = epoch + 1, claims = 1, sequence_number = sequence_number + 3`},
		{"reset", `UPDATE sluice_checkpoints SET owner = '', epoch = epoch + 1, claims = 0, incarnation = 'another'`},
	} {
		l := leaseOf("0", "a", int64(2*epoch+2))
		p, err := s.Claim(t.Context(), l, "i")
		if err != nil || len(p.Done) > 0 || p.Position.Sequence < 9 {
			t.Fatalf("claimed %+v, %v", p, err)
		}
		for i := range done {
			done[i] = driver.SequenceRange{First: p.Position.Sequence + 3, Last: p.Position.Sequence + 5}
		}
		if err := s.Advance(t.Context(), l, p.Incarnation, p.Position, done); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Claim(t.Context(), l, "i"); err != nil || !slices.Equal(p.Done, done) {
			t.Errorf("before: %+v, %v; want %v done", p, err, done)
		}
		asOld(c.statement)
		list, err := s.Read(t.Context(), group)
		if err != nil || len(list) != 1 || len(list[0].Done) > 0 {
			t.Errorf("%s by a program of version 1: %+v, %v; want nothing done", c.what, list, err)
		}
	}
}

// A database that a program of version 2 has made is taken over too. Such a
// program knows nothing of what was seen: that stays while it moves
// checkpoints, and does not count where it has set one back.
func TestBesideVersion2(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	cfg, err := (*Config)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	old, err := openSQLite(path, cfg, sqliteDialect{sqliteStoreSteps[:2], sqliteLeaseSteps})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	asOld := func(statement string) {
		t.Helper()
		if _, err := old.writer.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	asOld(`INSERT INTO sluice_checkpoints VALUES ('` + strings.Join([]string{group.Namespace, group.Topic, group.Name}, "','") + `', '0', 'i', 9, 'o', 'old', 1, 1, 0, 0, '', '2026-01-02T03:04:05.000000Z', '', 0)`)
	s := open(t, path)
	steps := func(what string, want ...int64) {
		t.Helper()
		list, err := s.ReadDedup(t.Context(), group, "0")
		if err != nil || !slices.EqualFunc(list, want, func(s driver.DedupState, top int64) bool { return s.Top == top }) {
			t.Errorf("%s: seen %+v, %v; want those of %v", what, list, err, want)
		}
	}
	seen := func(epoch, from, to int64) {
		t.Helper()
		step := driver.Step{Lease: leaseOf("0", "a", epoch), From: positionAt(from), To: positionAt(to), Dedup: []driver.DedupState{{Origin: "b/0", Low: -1, Top: to, Forget: -1, IDs: "0:1"}}}
		if _, err := s.Claim(t.Context(), step.Lease, "i"); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), step, nil); err != nil {
			t.Fatal(err)
		}
	}
	steps("a database of version 2")
	seen(2, 9, 20)
	seen(2, 20, 30)
	asOld(`UPDATE sluice_checkpoints SET owner = 'old', epoch = 3, claims = 1, sequence_number = 40`)
	steps("the old program moved the checkpoint", 20, 30)
	asOld(`UPDATE sluice_checkpoints SET owner = '', epoch = 4, sequence_number = 25`)
	steps("it was set back", 20)
	seen(5, 25, 27)
	seen(5, 27, 50)
	steps("and moved on", 20, 27, 50)
}

// A program that is too old for the tables says so, and leaves them alone.
func TestIncompatible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := openAs(t, path, additive, breaking)
	if err != nil {
		t.Fatal(err)
	}
	for what, more := range map[string][]step{"two versions behind": nil, "one version behind": {additive}} {
		_, err := openAs(t, path, more...)
		saysAll(t, what, err, path, fmt.Sprintf("schema for store is version %d", ours+2), fmt.Sprintf("know version %d or later", ours+2), "upgrade it")
	}
	if v, oldest := version(t, s); v != ours+2 || oldest != ours+2 {
		t.Errorf("version %d, oldest %d; want both %d", v, oldest, ours+2)
	}
	if _, err := openAs(t, path, additive, breaking); err != nil {
		t.Errorf("the same version: %v", err)
	}
	if _, err := openAs(t, path, additive, breaking, step{oldest: ours + 2, sql: "CREATE TABLE sluice_more (id INTEGER)"}); err != nil {
		t.Errorf("a later version: %v", err)
	}
}

// A migration that fails leaves nothing.
func TestMigrationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	_, err := openAs(t, path, additive, faulty)
	saysAll(t, "faulty migration", err, path, fmt.Sprintf("migrate store to version %d", ours+2), "syntax error")
	s := open(t, path)
	var tables int
	if err := s.DB().QueryRow("SELECT count(*) FROM sqlite_schema WHERE name IN ('sluice_news', 'sluice_half')").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables of a migration that failed, %v", tables, err)
	}
}

// Several processes that start at once on a file that is not there yet all get
// a working database.
func TestFirstStarts(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		var all []*process
		for range 4 {
			all = append(all, spawn(t, dir, "start"))
		}
		for _, p := range all {
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		if v, _ := version(t, open(t, filepath.Join(dir, "x.db"))); v != len(sqliteStoreSteps) {
			t.Errorf("version %d", v)
		}
	}
}

// The start of a program does not wait for a transaction in progress.
func TestStartBesideHandler(t *testing.T) {
	s, l := begun(t, nil)
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(context.Context, *Tx) error {
		other, err := OpenSQLite(s.name, nil)
		if err != nil {
			return err
		}
		return other.Close()
	}); err != nil {
		t.Error(err)
	}
}

// All who name the same file, by whatever path, agree on where the leases are.
func TestOneLeaseFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "real", "x.db")
	s := open(t, path)
	t.Chdir(filepath.Join(dir, "real"))
	for _, link := range [][2]string{{"real", "dir"}, {"real/x.db", "file.db"}} {
		if err := os.Symlink(filepath.Join(dir, link[0]), filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"x.db", "../dir/x.db", filepath.Join(dir, "file.db")} {
		if o := open(t, other); o.name != s.name || o.leases.name != s.name+"-leases" {
			t.Errorf("opened as %s: database %s with leases %s, want those of %s", other, o.name, o.leases.name, s.name)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "-leases") }) {
		t.Errorf("files beside the links: %q, %v", names, err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	if err := CheckSQLite(t.Context(), path); err != nil {
		t.Errorf("a file that is not there: %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) > 0 {
		t.Errorf("the check made %q, %v", names, err)
	}
	saysAll(t, "no directory", CheckSQLite(t.Context(), filepath.Join(dir, "no", "x.db")), "create it")
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	saysAll(t, "link to nothing", CheckSQLite(t.Context(), filepath.Join(dir, "link")), "target is missing")

	s, err := OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckSQLite(t.Context(), path); err != nil {
		t.Errorf("a database in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	if err := CheckSQLite(t.Context(), path); err != nil {
		t.Errorf("a database: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("the check changed the file: %v", err)
	}
	if newer, err := openAs(t, path, additive, breaking); err != nil {
		t.Fatal(err)
	} else if err := newer.Close(); err != nil {
		t.Fatal(err)
	}
	saysAll(t, "a newer one", CheckSQLite(t.Context(), path), path, fmt.Sprintf("version %d", ours+2), "upgrade it")
}

// Dead letters that a program of version 4 has stored, or stores beside this one, are not copied
// yet.
func TestCopiesBesideVersion4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	cfg, err := (*Config)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	old, err := openSQLite(path, cfg, sqliteDialect{sqliteStoreSteps[:4], sqliteLeaseSteps})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	parkOne(t, old, 1)
	s := open(t, path)
	wantUncopied(t, s, 1)
	parkOne(t, old, 2)
	if err := s.MarkCopied(t.Context(), group, "0", []driver.ParkedEvent{{ID: 1}}); err != nil {
		t.Fatal(err)
	}
	parkOne(t, old, 1)
	wantUncopied(t, s, 2)
}

func parkOne(t *testing.T, s *Store, sequence int64) {
	t.Helper()
	d := driver.DeadLetter{Group: group, Incarnation: "i", Status: driver.StatusDead, Event: driver.Event{Partition: "0", Sequence: sequence}}
	if err := s.Park(t.Context(), []driver.DeadLetter{d}); err != nil {
		t.Fatal(err)
	}
}

func wantUncopied(t *testing.T, s *Store, want ...int64) {
	t.Helper()
	list, err := s.Uncopied(t.Context(), group, "0", 0, 10)
	if err != nil || !slices.EqualFunc(list, want, func(d driver.DeadLetter, n int64) bool { return d.Event.Sequence == n }) {
		t.Errorf("not copied are %+v, %v; want events %v", list, err, want)
	}
}
