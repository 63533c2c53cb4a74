package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

// waited checks that an error blames no event.
func waited(t *testing.T, err error) {
	t.Helper()
	if _, blamed := errors.AsType[*driver.HandlerError](err); err == nil || blamed && !errors.Is(err, driver.ErrOutage) {
		t.Errorf("error is %v, want one of the table", err)
	}
}

var changedFrom = regexp.MustCompile(`table \w+: column c has changed from .+ to .+`)

// testColumnChanges: a column of each type that a mapping fills becomes one of each other type
// between two batches. The change is reported. Then what is stored is what the database's own cast
// of the value's text would be, or refused; or events wait, if such a column does not fit the
// mapping.
func (e *testedEngine) testColumnChanges(t *testing.T) {
	w := e.newTypeWorld(t)
	ctx := t.Context()
	var count typesCount
	waiting, silent := 0, 0
	fit := w.fitting(t)
	for typ, list := range typeSamples {
		for n, kind := range w.kinds {
			from := fit[typ][0]
			if from == kind && len(fit[typ]) > 1 {
				from = fit[typ][1]
			}
			if w.slow && n%3 != 0 && !slices.Contains(fit[typ], kind) {
				continue
			}
			mustExec(t, w.db, "CREATE TABLE changing (c "+from+")")
			tg := typedTarget(t, w.dialect, "changing", typ)
			if err := tg.prepare(ctx, w.catalog, false); err != nil {
				t.Fatal(err)
			}
			handler := tg.sqlHandler()
			var taken *typeSample
			batch := func() error {
				return w.batch(t, func(ctx context.Context, tx *sqlstore.Tx) error {
					return handler(ctx, tx, sluice.Batch{Partition: "0", Events: []*sluice.Event{sampleEvent(*taken)}})
				})
			}
			for i := range list {
				if taken = &list[i]; batch() == nil {
					break
				}
			}
			alter(t, w.db, "DROP TABLE changing; CREATE TABLE changing (c "+kind+")")
			now, err := w.catalog.columns(ctx, "changing")
			if err != nil || len(now) != 1 {
				t.Fatal(now, err)
			}
			count.pairs++
			switch err := batch(); {
			case err == nil:
				silent++ // the two types are one to the database
				mustExec(t, w.db, "DELETE FROM changing")
			case !changedFrom.MatchString(err.Error()):
				t.Errorf("%s from %s to %s: %v", typ, from, kind, err)
			default:
				waited(t, err)
			}
			if w.dialect.fits(ctx, w.catalog, typ, now[0]) == nil {
				w.compare(t, &count, "changing", kind, typ, handler, list[:min(len(list), 6)])
			} else {
				waiting++
				err := batch()
				if waited(t, err); !strings.Contains(fmt.Sprint(err), "which can't hold the mapping's "+string(typ)) {
					t.Errorf("%s from %s to %s: %v", typ, from, kind, err)
				}
			}
			mustExec(t, w.db, "DROP TABLE changing")
		}
	}
	t.Logf("%d changes are none to the database, after %d events wait", silent, waiting)
	count.report(t, 4*len(w.kinds), 100)
	if silent > count.pairs/10 || waiting == 0 {
		t.Errorf("of %d changes %d are none, and events wait after %d", count.pairs, silent, waiting)
	}
}

// fitting has, for each type of a mapping, the types of columns that it fills.
func (w *typeWorld) fitting(t *testing.T) map[columnType][]string {
	t.Helper()
	fit := make(map[columnType][]string)
	for i, kind := range w.kinds {
		table := fmt.Sprint("fitting", i)
		mustExec(t, w.db, "CREATE TABLE "+table+" (c "+kind+")")
		now, err := w.catalog.columns(t.Context(), table)
		if err != nil || len(now) != 1 {
			t.Fatal(now, err)
		}
		for typ := range typeSamples {
			if w.dialect.fits(t.Context(), w.catalog, typ, now[0]) == nil {
				fit[typ] = append(fit[typ], kind)
			}
		}
	}
	return fit
}

// alter runs statements, one after the other.
func alter(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	for statement := range strings.SplitSeq(statements, "; ") {
		mustExec(t, db, statement)
	}
}

// alteration is a change of a table (id, c), by statements that an administrator runs.
type alteration struct {
	oldType string // the type of c
	typ     columnType
	json    string
	sql     string
	says    string // matches the first error after it
	// waits matches the error until back was run; empty: there is none.
	waits, back string
	want        string // the value in the end
}

// testAlterations: a table is altered between two batches, or inside one before its rows, of one
// row or of many, that are inserted or written by key. The change is reported in words; events wait
// as long as they must, and go on by themselves.
func (e *testedEngine) testAlterations(t *testing.T) {
	w, n := e.newTypeWorld(t), 0
	for name, a := range e.alterations {
		if e.leaves(name) {
			continue
		}
		for _, way := range []struct {
			name          string
			keyed, inside bool
			rows          int
		}{{"a row", false, false, 1}, {"rows", false, false, 150}, {"a row by key", true, false, 1}, {"rows by key", true, false, 150},
			{"inside", false, true, 150}, {"inside, by key", true, true, 150}} {
			if way.inside && e.alone || w.slow && (way.keyed == way.inside || way.rows == 1) {
				continue
			}
			t.Run(name+"/"+way.name, func(t *testing.T) {
				n++
				a.test(t, w, fmt.Sprint("changing", n), way.keyed, way.inside, way.rows)
			})
		}
	}
}

func (a alteration) test(t *testing.T, w *typeWorld, table string, keyed, inside bool, rows int) {
	for _, text := range []*string{&a.sql, &a.says, &a.waits, &a.back} {
		*text = strings.ReplaceAll(*text, "changing", table)
	}
	mustExec(t, w.db, "CREATE TABLE "+table+" (id int NOT NULL PRIMARY KEY, c "+a.oldType+")"+w.dialect.options)
	tg := &tableTarget{table: table, rowTarget: rowTarget{dialect: w.dialect,
		mapping: mappingOf(t, fmt.Sprintf("id: {from: body.id, type: integer}\nc: {from: body.v, type: %s}", a.typ))}}
	if keyed {
		tg.key = &tableKey{columns: []string{"id"}}
	}
	if err := tg.prepare(t.Context(), w.catalog, false); err != nil {
		t.Fatal(err)
	}
	handler := tg.sqlHandler()
	batch := func(first func()) error {
		events := make([]*sluice.Event, rows)
		for i := range events {
			events[i] = &sluice.Event{Partition: "0", Body: fmt.Appendf(nil, `{"id":%d,"v":%s}`, i, a.json)}
		}
		return w.batch(t, func(ctx context.Context, tx *sqlstore.Tx) error {
			if _, err := tx.Columns(ctx, table); err != nil { // which the handler reads first
				return err
			}
			if first != nil {
				first()
			}
			return handler(ctx, tx, sluice.Batch{Partition: "0", Events: events})
		})
	}
	if err := batch(nil); err != nil {
		t.Fatal(err)
	}
	mustExec(t, w.db, "DELETE FROM "+table)
	var first func()
	if first = func() { alter(t, w.db, a.sql) }; !inside {
		first()
		first = nil
	}
	waits := func(err error, what string) {
		t.Helper()
		waited(t, err)
		if !regexp.MustCompile(what).MatchString(fmt.Sprint(err)) {
			t.Errorf("error is %v, want %s", err, what)
		}
		t.Log(err)
	}
	waits(batch(first), a.says)
	if a.waits != "" {
		waits(batch(nil), a.waits)
		waits(batch(nil), a.waits)
		alter(t, w.db, a.back)
	}
	err := batch(nil)
	if err != nil && a.waits != "" { // it has changed again
		waits(err, "has changed|is new|is gone")
		err = batch(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := "varchar(40)"
	if w.dialect.engine == mysql {
		text = "char(40)"
	}
	if got := query(t, w.db, "SELECT count(*), count(DISTINCT c), min(CAST(c AS "+text+")) FROM "+table); got != fmt.Sprintf("%d 1 %s", rows, a.want) {
		t.Errorf("stored %s, want %d rows of %s", got, rows, a.want)
	}
}
