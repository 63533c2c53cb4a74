package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// failingHub is a hub whose readers fail.
type failingHub struct {
	*sluicetest.Hub
	fault  func(opened int, last int64) error // asked before each read
	opened int
}

func (b *failingHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := b.Hub.Open(ctx, partition, after, epoch)
	if err != nil {
		return nil, err
	}
	b.opened++
	return &failingReader{Reader: r, hub: b, last: after.Sequence}, nil
}

type failingReader struct {
	driver.Reader
	hub  *failingHub
	last int64
}

func (r *failingReader) Read(ctx context.Context, _ int) ([]*sluice.Event, error) {
	if err := r.hub.fault(r.hub.opened, r.last); err != nil {
		return nil, err
	}
	events, err := r.Reader.Read(ctx, 10)
	if err == nil {
		r.last = events[len(events)-1].Sequence
	}
	return events, err
}

// hundred is a hub of a hundred events, of which all but 42 have a row.
func hundred() (*sluicetest.Hub, *memoryLedger) {
	hub := sluicetest.NewHub(group, 1)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 99}, entries: map[string][]audit.Entry{}}
	for n := range int64(100) {
		hub.Append("0", sluicetest.Bodies("x")...)
		if n != 42 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
		}
	}
	return hub, b
}

var errBroken = errors.New("connection lost")

func TestReadingContinuesAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, b := hundred()
		source := &failingHub{Hub: hub, fault: func(opened int, last int64) error {
			// The first two readers get thirty events each, the next four none.
			if opened <= 2 && last < int64(30*opened-1) || opened > 6 {
				return nil
			}
			return errBroken
		}}
		r, err := audit.Run(t.Context(), source, b, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		if source.opened != 7 || r.Total.Held != 100 || r.Total.Written != 99 || len(r.Faults) != 1 || r.Faults[0].First != 42 {
			t.Errorf("opened %d times: %+v, %v", source.opened, r.Total, r.Faults)
		}
	})
}

func TestReadingGivesUpWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, b := hundred()
		source := &failingHub{Hub: hub, fault: func(_ int, last int64) error {
			if last >= 49 {
				return errBroken
			}
			return nil
		}}
		began := time.Now()
		if _, err := audit.Run(t.Context(), source, b, group, nil); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if took := time.Since(began); source.opened != 7 || took > 10*time.Second {
			t.Errorf("opened %d times in %v", source.opened, took)
		}
	})
}

// TestRetentionMeanwhile removes events while others are read.
func TestRetentionMeanwhile(t *testing.T) {
	hub, b := hundred()
	source := &failingHub{Hub: hub, fault: func(opened int, last int64) error {
		if opened == 1 && last >= 19 {
			hub.Trim("0", 60)
			return errBroken
		}
		return nil
	}}
	r, err := audit.Run(t.Context(), source, b, group, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Total.Held != 100 || r.Total.Written != 99 || len(r.Faults) != 1 || r.Faults[0].String() != "partition 0: event 42 is lost" {
		t.Errorf("%+v, %v", r.Total, r.Faults)
	}
}

func TestHubRecreatedMeanwhileIsUndecided(t *testing.T) {
	hub, b := hundred()
	source := &failingHub{Hub: hub, fault: func(_ int, last int64) error {
		if last >= 19 {
			hub.Recreate()
			hub.Append("0", sluicetest.Bodies(strings.Split(strings.Repeat("y", 200), "")...)...)
		}
		return nil
	}}
	if _, err := audit.Run(t.Context(), source, b, group, nil); !errors.Is(err, audit.ErrUndecided) || !strings.Contains(err.Error(), "recreated while it was read") {
		t.Error(err)
	}
}

func TestCheckpointPastTheHubsEndIsUndecided(t *testing.T) {
	hub, b := hundred()
	b.checkpoint["0"] = 100
	if _, err := audit.Run(t.Context(), hub, b, group, nil); !errors.Is(err, audit.ErrUndecided) || !strings.Contains(err.Error(), "checkpoint is at 100, and the newest event of hub is 99") {
		t.Error(err)
	}
}

// The hub's report of what it holds may be out of date: the audit asks the log itself.
func TestBoundsOutOfDate(t *testing.T) {
	hub, b := hundred()
	hub.HoldBounds()
	for n := int64(100); n < 110; n++ {
		hub.Append("0", sluicetest.Bodies("x")...)
		b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
	}
	b.checkpoint["0"] = 109
	r, err := audit.Run(t.Context(), hub, b, group, nil)
	if err != nil || r.Total.Held != 110 || r.Total.Written != 109 || len(r.Faults) != 1 {
		t.Errorf("%+v, %v, %v", r.Total, r.Faults, err)
	}
}

// TestRetentionOfAllMeanwhile removes every event that is left: a log without events returns
// nothing.
func TestRetentionOfAllMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, b := hundred()
		source := &failingHub{Hub: hub, fault: func(opened int, last int64) error {
			if opened == 1 && last >= 19 {
				hub.Trim("0", 100)
				hub.Lenient(true)
				return errBroken
			}
			return nil
		}}
		r, err := audit.Run(t.Context(), source, b, group, nil)
		if err != nil || r.Total.Held != 100 || r.Total.Written != 99 || len(r.Faults) != 1 {
			t.Errorf("%+v, %v, %v", r.Total, r.Faults, err)
		}
	})
}

// TestStrayRows has rows with sequence numbers that no event has.
func TestStrayRows(t *testing.T) {
	hub, b := hundred()
	b.entries["0"] = append([]audit.Entry{{Sequence: -5}, {Sequence: -5}, {Sequence: -1}}, append(b.entries["0"], audit.Entry{Sequence: 100})...)
	r, err := audit.Run(t.Context(), hub, b, group, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Faults {
		got = append(got, f.String())
	}
	want := "partition 0: event -5 is stray; partition 0: event -1 is stray; partition 0: event 42 is lost; partition 0: event 100 is stray"
	if strings.Join(got, "; ") != want || r.Total.PastRetention != 0 {
		t.Errorf("%v, %d past", got, r.Total.PastRetention)
	}
}

// TestMissingColumns must not be taken for strings, as SQLite takes quoted
// names that it doesn't know.
func TestMissingColumns(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	topic, err := hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hub.Append("0", sluicetest.Bodies("x")...)
	path := filepath.Join(t.TempDir(), "flights.db")
	writeLedger(t, path, group, topic, 1)
	for _, table := range []audit.Table{
		{Name: `"flights"`, Partition: `"nowhere?"`, Sequence: `"sequence_number"`},
		{Name: `"flights"`, Partition: `"hub_partition"`, Sequence: `"nowhere?"`},
	} {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		ledger := audit.NewSQLLedger(db, audit.SQLite(), table)
		if _, err := audit.Run(t.Context(), hub, ledger, group, nil); err == nil || !strings.Contains(err.Error(), "no such column: t.nowhere?") {
			t.Errorf("%+v: %v", table, err)
		}
	}
}
