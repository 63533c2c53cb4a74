package pipeline

import (
	"context"
	"errors"
	"fmt"
	"regexp"
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

// Whatever the type of a column, a value is stored as the database's own cast of its text would, or
// refused: for the types of the databases behind database/sql, by INSERT and by their bulk way.
func (e *testedEngine) testColumnTypes(t *testing.T) {
	k := e.kinds
	ctx := t.Context()
	address, db := e.database(t)
	p, parts := opened(t, address, flightsTarget)
	store := parts.Checkpoints.(*sqlstore.Store)
	lease := driver.Lease{Group: p.Group, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := store.Claim(ctx, lease, "1")
	if err != nil {
		t.Fatal(err)
	}
	// within returns what is in the table's rows after a write, which is rolled back.
	errBack := errors.New("that is all")
	within := func(table, kind string, rows int, write func(ctx context.Context, tx *sqlstore.Tx) error) (stored string, err error) {
		whole := store.Commit(ctx, driver.Step{Lease: lease, From: claimed.Position, To: driver.Position{Sequence: 1}}, func(ctx context.Context, tx *sqlstore.Tx) error {
			if err = write(ctx, tx); err != nil {
				return err
			}
			var different, all int
			read := tx.QueryRowContext(ctx, "SELECT count(DISTINCT v), count(*), max(v) FROM (SELECT "+k.shown(kind)+" AS v FROM "+table+") AS s")
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
	var count typesCount
	for i, kind := range k.kinds {
		table := fmt.Sprintf("t%d", i)
		mustExec(t, db, "CREATE TABLE "+table+" (c "+kind+")")
		for typ, list := range typeSamples {
			count.pairs++
			tg := typedTarget(t, k.dialect, table, typ)
			if err := tg.prepare(ctx, parts.catalog, false); err != nil {
				count.refused++
				continue
			}
			handler := tg.sqlHandler()
			for i, s := range list {
				if k.slow && typ == typeText && i%4 != 0 {
					continue
				}
				literal := k.literal(typ, s.text)
				own, ownErr := within(table, kind, 1, func(ctx context.Context, tx *sqlstore.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES ("+literal+")")
					return err
				})
				ways := []int{1, 100}
				if k.slow {
					ways = ways[i/4%2:][:1]
				}
				for _, rows := range ways {
					events := make([]*sluice.Event, rows)
					for i := range events {
						events[i] = sampleEvent(s)
					}
					stored, err := within(table, kind, rows, func(ctx context.Context, tx *sqlstore.Tx) error {
						return handler(ctx, tx, sluice.Batch{Partition: "0", Events: events})
					})
					k.compareLabel(t, kind, s, stored, err)
					count.compare(t, fmt.Sprintf("%s, %d rows", kind, rows), typ, s, strings.TrimRight(stored, " "), err, strings.TrimRight(own, " "), ownErr)
				}
			}
		}
	}
	count.report(t, 9*len(k.kinds), 100)
}
