package keyedtest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// change is a row of table folded.
type change struct {
	fold, decimal string // the key
	version       *int64
	body          string
	deletes       bool
}

// key is what the database takes the key for.
func (c change) key() string {
	decimal := c.decimal
	if strings.Contains(decimal, ".") {
		decimal = strings.TrimSuffix(strings.TrimRight(decimal, "0"), ".")
	}
	return strings.ToLower(c.fold) + "|" + decimal
}

// stored is a row that the model has.
type stored struct {
	version *int64
	body    string
	extra   int // a column that no change has
}

func (s stored) String() string {
	version := "<nil>"
	if s.version != nil {
		version = fmt.Sprint(*s.version)
	}
	return fmt.Sprintf("%s|%s|%d", version, s.body, s.extra)
}

// applies reports whether Newer takes a change of a version in place of another.
func applies(to, version *int64) bool { return to == nil || version != nil && *version >= *to }

// model is the table as it must be, by key.
type model map[string]stored

const fresh = 7 // the default of the column extra

func (m model) apply(changes []change, on driver.OnConflict) {
	if on == driver.Newer {
		changes = byVersion(changes)
	}
	for _, c := range changes {
		row, exists := m[c.key()]
		switch {
		case exists && on == driver.Newer && !applies(row.version, c.version), exists && on == driver.Skip && !c.deletes:
		case c.deletes:
			delete(m, c.key())
		case exists:
			m[c.key()] = stored{c.version, c.body, row.extra}
		default:
			m[c.key()] = stored{c.version, c.body, fresh}
		}
	}
}

// byVersion are changes by version and then in order, without the deletes that have a lower version
// than another change of the key.
func byVersion(changes []change) []change {
	compare := func(a, b *int64) int {
		switch {
		case a == nil && b == nil:
			return 0
		case a == nil:
			return -1
		case b == nil:
			return 1
		}
		return cmp.Compare(*a, *b)
	}
	highest := make(map[string]*int64)
	for _, c := range changes {
		if v := highest[c.key()]; compare(c.version, v) > 0 {
			highest[c.key()] = c.version
		}
	}
	changes = slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		return c.deletes && compare(c.version, highest[c.key()]) < 0
	})
	slices.SortStableFunc(changes, func(a, b change) int { return compare(a.version, b.version) })
	return changes
}

func (m model) lines() (list []string) {
	for key, row := range m {
		list = append(list, key+"|"+row.String())
	}
	slices.Sort(list)
	return list
}

func (h Harness) foldedTable(t testing.TB) {
	t.Helper()
	h.table(t, "folded", "a "+h.Words.Fold+" NOT NULL", "b "+h.Words.Decimal+" NOT NULL", "v "+h.Words.Int, "body "+h.Words.Text, fmt.Sprintf("extra %s DEFAULT %d", h.Words.Int, fresh), "PRIMARY KEY (b, a)")
}

// lines reads table folded as a model's lines.
func (h Harness) lines(t testing.TB) (list []string) {
	t.Helper()
	for _, line := range h.rows(t, "SELECT a, b, v, body, extra FROM folded") {
		parts := strings.Split(line, "|")
		key := change{fold: parts[0], decimal: parts[1]}.key()
		list = append(list, key+"|"+strings.Join(parts[2:], "|"))
	}
	slices.Sort(list)
	return list
}

var foldedColumns = []string{"body", "a", "v", "b"}

func write(upsert Upsert, changes []change, on driver.OnConflict) error {
	rows := make([][]any, len(changes))
	for i, c := range changes {
		rows[i] = []any{c.body, c.fold, nil, c.decimal}
		if c.version != nil {
			rows[i][2] = *c.version
		}
	}
	k := driver.Keyed{Key: []string{"a", "b"}, OnConflict: on}
	if on == driver.Newer {
		k.Version = "v"
	}
	if slices.ContainsFunc(changes, func(c change) bool { return c.deletes }) {
		k.Delete = func(row int) bool { return changes[row].deletes }
	}
	return upsert("folded", foldedColumns, rows, k)
}

// randomChange has one of few keys, in one of several spellings.
func randomChange(r *rand.Rand, n int, deletes bool) change {
	c := change{
		fold:    []string{"a", "A", "b", "é", "É", "it's", `IT'S`, `x\y`}[r.IntN(8)],
		decimal: []string{"1", "1.0", "2.5", "2.50"}[r.IntN(4)],
		body:    fmt.Sprint("change ", n),
		deletes: deletes && r.IntN(3) == 0,
	}
	if strings.EqualFold(c.fold, "é") {
		c.fold = "c" // not every database folds it
	}
	if r.IntN(4) > 0 {
		version := int64(r.IntN(5))
		c.version = &version
	}
	return c
}

// folded: random batches leave the table as a model of it.
func folded(t testing.TB, h Harness) {
	h.foldedTable(t)
	seeds := 12
	if h.Words.SlowDeadlocks && !need.InEveryDatabase() { // Babelfish is slow in all it does
		seeds = 4
	}
	for _, on := range []driver.OnConflict{driver.Update, driver.Skip, driver.Newer} {
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(on)))
			h.exec(t, "DELETE FROM folded")
			m := make(model)
			n := 0
			for batch := range 8 {
				changes := make([]change, []int{1, 2, 3, 8, 30, 150}[r.IntN(6)])
				for i := range changes {
					changes[i] = randomChange(r, n, seed%3 > 0)
					n++
				}
				before := m.lines()
				m.apply(changes, on)
				err := h.Step(suite.Context(t), 0, func(_ context.Context, upsert Upsert) error { return write(upsert, changes, on) })
				if err != nil {
					t.Fatalf("%v, seed %d, batch %d: %v", on, seed, batch, err)
				}
				if got, want := h.lines(t), m.lines(); !slices.Equal(got, want) {
					t.Fatalf("%v, seed %d, batch %d: before\n%s\nchanges\n%s\nrows are\n%s\nwant\n%s", on, seed, batch,
						strings.Join(before, "\n"), describe(changes), strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if r.IntN(2) == 0 {
					h.exec(t, "UPDATE folded SET extra = extra + 1")
					for key, row := range m {
						row.extra++
						m[key] = row
					}
				}
			}
		}
	}
}

func describe(changes []change) string {
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = fmt.Sprintf("%d: %s %s", i, c.key(), stored{c.version, c.body, fresh})
		if c.deletes {
			lines[i] += " (delete)"
		}
	}
	return strings.Join(lines, "\n")
}

// writers: two transactions write the same keys in opposite orders. What fails is an outage; it is
// repeated, and the highest version of each key is there in the end.
func writers(t testing.TB, h Harness) {
	h.foldedTable(t)
	const keys = 12
	rounds := 12
	if h.Words.SlowDeadlocks {
		rounds = 3
	}
	for _, on := range []driver.OnConflict{driver.Newer, driver.Update, driver.Skip} {
		h.exec(t, "DELETE FROM folded")
		var both sync.WaitGroup
		failures := make(chan error, 2*rounds)
		for partition := range 2 {
			both.Go(func() {
				for round := range rounds {
					if err := h.patiently(t, partition, func(upsert Upsert) error {
						for _, part := range halves(partition, round, keys) {
							if err := write(upsert, part, on); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						failures <- fmt.Errorf("%v, partition %d, round %d: %w", on, partition, round, err)
						return
					}
				}
			})
		}
		both.Wait()
		close(failures)
		for err := range failures {
			t.Error(err)
		}
		got := h.rows(t, "SELECT v, COUNT(*) FROM folded GROUP BY v")
		if on == driver.Newer {
			if want := fmt.Sprintf("%d|%d", 2*rounds-1, keys); len(got) != 1 || got[0] != want {
				t.Errorf("newer: versions are %q, want %q", got, want)
			}
		}
		if n := h.rows(t, "SELECT COUNT(*) FROM folded"); n[0] != fmt.Sprint(keys) {
			t.Errorf("%v: %s rows, want %d", on, n[0], keys)
		}
	}
}

// halves are the changes of one transaction, in two writes: one partition begins with the keys with
// which the other ends.
func halves(partition, round, keys int) [][]change {
	version := int64(2*round + partition)
	parts := make([][]change, 2)
	for i := range keys {
		fold := fmt.Sprint("k", i)
		if partition == 1 {
			fold = strings.ToUpper(fold)
		}
		half := (i*2/keys + partition) % 2
		parts[half] = append(parts[half], change{fold: fold, decimal: "1", version: &version, body: "x"})
	}
	return parts
}

// patiently repeats a step that fails by an outage.
func (h Harness) patiently(t testing.TB, partition int, fn func(upsert Upsert) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		var of error
		err := h.Step(ctx, partition, func(_ context.Context, upsert Upsert) error {
			of = fn(upsert)
			return of
		})
		if row := h.Row(of); row >= 0 {
			return fmt.Errorf("row %d is blamed: %w", row, of)
		}
		if err == nil || !h.Outage(err) || ctx.Err() != nil {
			return err
		}
	}
}

// concurrent: another transaction inserts or deletes a row while it is written, alone and with
// many.
func concurrent(t testing.TB, h Harness) {
	h.table(t, "contended", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "v "+h.Words.Int)
	for _, n := range []int{1, 150} {
		for _, c := range []struct {
			conflict    driver.OnConflict
			setup, then string
			want        int
		}{
			{driver.Update, "DELETE FROM contended", "INSERT INTO contended VALUES (1, 1)", 5},
			{driver.Skip, "DELETE FROM contended", "INSERT INTO contended VALUES (1, 1)", 1},
			{driver.Newer, "DELETE FROM contended", "INSERT INTO contended VALUES (1, 9)", 9},
			{driver.Update, "INSERT INTO contended VALUES (1, 1)", "DELETE FROM contended", 5},
			{driver.Newer, "INSERT INTO contended VALUES (1, 1)", "DELETE FROM contended", 5},
		} {
			h.exec(t, "DELETE FROM contended", c.setup)
			what := fmt.Sprintf("%v of %d rows beside %s", c.conflict, n, c.then)
			other, err := h.DB.BeginTx(suite.Context(t), nil)
			suite.NoError(t, "begin", err)
			_, err = other.ExecContext(suite.Context(t), c.then)
			suite.NoError(t, c.then, err)
			done := suite.Spawn(t, func() error { return h.fives(t, n, c.conflict) })
			if err, early := suite.Settled(done); early {
				t.Errorf("%s: did not wait: %v", what, err)
			}
			suite.NoError(t, "commit", other.Commit())
			suite.NoError(t, what, <-done)
			h.expect(t, what, "SELECT v FROM contended WHERE id = 1", fmt.Sprint(c.want))
			h.expect(t, what, "SELECT COUNT(*) FROM contended", fmt.Sprint(n))
		}
	}
}

// fives writes rows with the numbers from 1 on.
func (h Harness) fives(t testing.TB, n int, on driver.OnConflict) error {
	k := driver.Keyed{Key: []string{"id"}, OnConflict: on}
	if on == driver.Newer {
		k.Version = "v"
	}
	rows := make([][]any, n)
	for i := range rows {
		rows[i] = []any{i + 1, 5}
	}
	return h.patiently(t, 0, func(upsert Upsert) error { return upsert("contended", []string{"id", "v"}, rows, k) })
}
