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

// columnKinds are types of columns, and how a test writes values by itself.
type columnKinds struct {
	dialect    *dialect
	kinds      []string
	shown      func(kind string) string // is the text of the column c
	escaped    *strings.Replacer        // of a text in quotes
	texts      string                   // is before the quotes
	bytes      string                   // is the format of bytes
	timeSuffix string
	labels     *regexp.Regexp // matches kinds that store labels; nil: there are none
	slow       bool           // it gets a quarter of the texts, and each value in one way
}

// literal is a value of a type as SQL has it.
func (k *columnKinds) literal(typ columnType, text string) string {
	quoted := "'" + k.escaped.Replace(text) + "'"
	switch typ {
	case typeText, typeJSON:
		return k.texts + quoted
	case typeTimestamp:
		return strings.TrimSuffix(quoted, "'") + k.timeSuffix + "'"
	case typeBytes:
		return fmt.Sprintf(k.bytes, text)
	case typeBoolean:
		return map[string]string{"true": "1", "false": "0"}[text]
	case typeSmallint, typeInteger, typeBigint:
		return text
	case typeReal, typeDouble:
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return text
	}
	return quoted
}

// compareLabel: a column of labels stores the text and no other label.
func (k *columnKinds) compareLabel(t *testing.T, kind string, s typeSample, stored string, err error) {
	t.Helper()
	if err == nil && k.labels != nil && k.labels.MatchString(kind) && !strings.EqualFold(stored, strings.TrimRight(s.text, " ")) {
		t.Errorf("%q into %s: stored the label %q", s.text, kind, stored)
	}
}

// typeWorld is an empty database with a store, whose one partition commits.
type typeWorld struct {
	*columnKinds
	db       *sql.DB
	store    *sqlstore.Store
	catalog  catalog
	lease    driver.Lease
	position driver.Position
}

func (e *testedEngine) newTypeWorld(t *testing.T) *typeWorld {
	t.Helper()
	address, db := e.database(t)
	p, parts := opened(t, address, flightsTarget)
	w := &typeWorld{columnKinds: &e.kinds, db: db, store: parts.Checkpoints.(*sqlstore.Store), catalog: parts.catalog,
		lease: driver.Lease{Group: p.Group, Partition: "0", Owner: "a", Epoch: 1}}
	claimed, err := w.store.Claim(t.Context(), w.lease, "1")
	if err != nil {
		t.Fatal(err)
	}
	w.position = claimed.Position
	return w
}

// batch commits a batch.
func (w *typeWorld) batch(t *testing.T, write func(ctx context.Context, tx *sqlstore.Tx) error) error {
	to := driver.Position{Sequence: max(w.position.Sequence, -1) + 1}
	err := w.store.Commit(t.Context(), driver.Step{Lease: w.lease, From: w.position, To: to}, write)
	if err == nil {
		w.position = to
	}
	return err
}

var errBack = errors.New("that is all")

// try returns what is in the table's rows after a write, which is rolled back.
func (w *typeWorld) try(t *testing.T, table, kind string, rows int, write func(ctx context.Context, tx *sqlstore.Tx) error) (stored string, err error) {
	whole := w.batch(t, func(ctx context.Context, tx *sqlstore.Tx) error {
		if err = write(ctx, tx); err != nil {
			return err
		}
		var different, all int
		read := tx.QueryRowContext(ctx, "SELECT count(DISTINCT v), count(*), max(v) FROM (SELECT "+w.shown(kind)+" AS v FROM "+table+") AS s")
		if err = read.Scan(&different, &all, &stored); err == nil && (all != rows || different != 1) {
			err = fmt.Errorf("%d different values in %d rows", different, all)
		}
		return errBack
	})
	if !errors.Is(whole, errBack) && err == nil {
		t.Fatal(whole)
	}
	return stored, err
}

// compare writes samples of a type by a handler, and compares what is stored with the database's
// own cast of their texts.
func (w *typeWorld) compare(t *testing.T, count *typesCount, table, kind string, typ columnType, handler sluice.Handler[*sqlstore.Tx], list []typeSample) {
	for i, s := range list {
		if w.slow && typ == typeText && i%4 != 0 {
			continue
		}
		literal := w.literal(typ, s.text)
		own, ownErr := w.try(t, table, kind, 1, func(ctx context.Context, tx *sqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES ("+literal+")")
			return err
		})
		ways := []int{1, 100}
		if w.slow {
			ways = ways[i/4%2:][:1]
		}
		for _, rows := range ways {
			stored, err := w.try(t, table, kind, rows, func(ctx context.Context, tx *sqlstore.Tx) error {
				return handler(ctx, tx, sluice.Batch{Partition: "0", Events: slices.Repeat([]*sluice.Event{sampleEvent(s)}, rows)})
			})
			w.compareLabel(t, kind, s, stored, err)
			count.compare(t, fmt.Sprintf("%s, %d rows", kind, rows), typ, s, strings.TrimRight(stored, " "), err, strings.TrimRight(own, " "), ownErr)
		}
	}
}

// Whatever the type of a column, a value is stored as the database's own cast of its text would, or
// refused: for the types of the databases behind database/sql, by INSERT and by their bulk way.
func (e *testedEngine) testColumnTypes(t *testing.T) {
	w := e.newTypeWorld(t)
	var count typesCount
	for i, kind := range w.kinds {
		table := fmt.Sprintf("t%d", i)
		mustExec(t, w.db, "CREATE TABLE "+table+" (c "+kind+")")
		for typ, list := range typeSamples {
			count.pairs++
			tg := typedTarget(t, w.dialect, table, typ)
			if err := tg.prepare(t.Context(), w.catalog, false); err != nil {
				count.refused++
				continue
			}
			w.compare(t, &count, table, kind, typ, tg.sqlHandler(), list)
		}
	}
	count.report(t, 9*len(w.kinds), 100)
}
