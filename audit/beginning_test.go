package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// sixEvents is a hub of six events, and a ledger whose checkpoint is at event 4.
func sixEvents(began driver.Beginning, rows ...int64) (*sluicetest.Hub, *memoryLedger) {
	hub := sluicetest.NewHub(group, 1)
	hub.Append("0", sluicetest.Bodies("0", "1", "2", "3", "4", "5")...)
	b := &memoryLedger{checkpoint: map[string]int64{"0": 4}, began: began, entries: map[string][]audit.Entry{}}
	for _, n := range rows {
		b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
	}
	return hub, b
}

// TestBeginning: events count from the recorded beginning on, whatever the first effect is.
func TestBeginning(t *testing.T) {
	for _, c := range []struct {
		name   string
		began  driver.Beginning
		rows   []int64
		faults string
		count  audit.Count // Skipped and Earlier
		doubt  audit.Doubt
	}{
		{"started at the latest event, and lost all", driver.Beginning{After: 1, How: driver.HowStart}, nil, "[partition 0: events 2 to 4 are lost]", audit.Count{Skipped: 2}, ""},
		{"lost the first", driver.Beginning{After: 1, How: driver.HowStart}, []int64{3, 4}, "[partition 0: event 2 is lost]", audit.Count{Skipped: 2}, ""},
		{"imported", driver.Beginning{After: 1, How: driver.HowImport}, []int64{2, 3, 4}, "[]", audit.Count{Skipped: 2}, ""},
		{"imported beside rows of the other processor", driver.Beginning{After: 2, How: driver.HowImport}, []int64{0, 0, 2, 3, 4}, "[]", audit.Count{Skipped: 3, Earlier: 3}, ""},
		{"set forwards", driver.Beginning{After: 3, How: driver.HowSet}, []int64{0, 1, 4}, "[]", audit.Count{Skipped: 4, Earlier: 2}, ""},
		{"set backwards", driver.Beginning{After: 0, How: driver.HowSet}, []int64{0, 1, 2, 2, 3, 3, 4, 4}, "[partition 0: events 2 to 4 are duplicated]", audit.Count{Skipped: 1, Earlier: 1}, ""},
		{"began before the truth", driver.Beginning{After: 0, How: driver.HowStart}, []int64{2, 3, 4}, "[partition 0: event 1 is lost]", audit.Count{Skipped: 1}, ""},
		{"began after the truth", driver.Beginning{After: 2, How: driver.HowStart}, []int64{1, 2, 3, 4}, "[]", audit.Count{Skipped: 3, Earlier: 2}, audit.EarlierEffects},
		{"began after the checkpoint", driver.Beginning{After: 5, How: driver.HowSet}, nil, "[]", audit.Count{Skipped: 6}, audit.BeganLater},
	} {
		hub, b := sixEvents(c.began, c.rows...)
		r, err := audit.Run(t.Context(), hub, b, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := audit.Count{Skipped: r.Total.Skipped, Earlier: r.Total.Earlier}
		if fmt.Sprint(r.Faults) != c.faults || fmt.Sprint(got) != fmt.Sprint(c.count) || r.Partitions[0].Doubt != c.doubt || r.Partitions[0].Began != c.began {
			t.Errorf("%s: %v, %+v, doubt %q", c.name, r.Faults, got, r.Partitions[0].Doubt)
		}
		if r.Exact() != (c.faults == "[]" && c.doubt == "") || r.Undecided() != (c.faults == "[]" && c.doubt != "") {
			t.Errorf("%s: exact %t, undecided %t: %s", c.name, r.Exact(), r.Undecided(), r.Headline())
		}
	}
}

// TestNoRecordedBeginning: without it nothing is lost, and nothing is known not to be.
func TestNoRecordedBeginning(t *testing.T) {
	hub, b := sixEvents(driver.Beginning{}, 0, 1, 2, 3, 4)
	look := func(doubt audit.Doubt, unclear, waiting int64, faults string) {
		t.Helper()
		r, err := audit.Run(t.Context(), hub, b, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Partitions[0].Doubt != doubt || r.Total.Unclear != unclear || r.Total.Waiting != waiting || fmt.Sprint(r.Faults) != faults || r.Exact() || r.Undecided() != (faults == "[]") ||
			!strings.Contains(r.Headline(), "partition 0 "+string(doubt)) {
			t.Errorf("%s: doubt %q, %+v, %v", r.Headline(), r.Partitions[0].Doubt, r.Total, r.Faults)
		}
	}
	b.unrecorded = true
	look(audit.NoBeginning, 0, 1, "[]")
	b.entries["0"] = b.entries["0"][2:]
	look(audit.NoBeginning, 2, 1, "[]")
	hub.Trim("0", 2)
	look(audit.NoBeginning, 0, 1, "[]")
	b.entries["0"] = append(b.entries["0"][:1], b.entries["0"]...)
	look(audit.NoBeginning, 0, 1, "[partition 0: event 2 is duplicated]")
	b.checkpoint, b.unrecorded = nil, false
	look(audit.NoCheckpoint, 1, 0, "[partition 0: event 2 is duplicated]")
	b.entries["0"] = nil
	look(audit.NoCheckpoint, 4, 0, "[]")
	b.checkpoint, b.unrecorded = map[string]int64{"0": driver.Unset.Sequence}, true
	look(audit.NoCheckpoint, 4, 0, "[]")

	hub = sluicetest.NewHub(group, 1)
	b.checkpoint = nil
	if r, err := audit.Run(t.Context(), hub, b, group, nil); err != nil || !r.Exact() {
		t.Errorf("a partition that never had an event: %v, %v", r, err)
	}
}

// TestRemovedByRetention: what the log no longer has and what left nothing behind is neither lost
// nor not lost.
func TestRemovedByRetention(t *testing.T) {
	for _, c := range []struct {
		name             string
		rows             []int64
		began            int64
		removed, unclear int64
	}{
		{"all have rows", []int64{0, 1, 2, 3, 4}, -1, 0, 0},
		{"those before the first row", []int64{2, 3, 4}, -1, 2, 0},
		{"one after a row", []int64{0, 2, 3, 4}, -1, 0, 1},
		{"before the beginning", []int64{2, 3, 4}, 1, 0, 0},
		{"the first after the beginning", []int64{2, 3, 4}, 0, 1, 0},
	} {
		hub, b := sixEvents(driver.Beginning{After: c.began, How: driver.HowSet}, c.rows...)
		hub.Trim("0", 3)
		r, err := audit.Run(t.Context(), hub, b, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Total.Removed != c.removed || r.Total.Unclear != c.unclear || len(r.Faults) > 0 || r.Exact() != (c.unclear == 0) || r.Undecided() == r.Exact() {
			t.Errorf("%s: %+v, %v", c.name, r.Total, r.Faults)
		}
		if strings.Contains(r.Headline(), "not checked") != (c.removed > 0) {
			t.Errorf("%s: %s", c.name, r.Headline())
		}
	}
	// Without any row nothing explains why there is none.
	hub, b := sixEvents(driver.Beginning{After: -1, How: driver.HowStart})
	hub.Trim("0", 5)
	if r, err := audit.Run(t.Context(), hub, b, group, nil); err != nil || !r.Undecided() || r.Total.Unclear != 5 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestRepetitionsOfEarlierMessages: a consumer whose checkpoint an operator has set may remember
// the messages before it. One that started there does not.
func TestRepetitionsOfEarlierMessages(t *testing.T) {
	for _, c := range []struct {
		how              driver.How
		rows             []int64
		lost, duplicated int64
		unclear          int64
	}{
		{driver.HowSet, []int64{2}, 0, 0, 1},
		{driver.HowSet, []int64{2, 3}, 0, 0, 0},
		{driver.HowStart, []int64{2}, 1, 0, 0},
		{driver.HowStart, []int64{2, 3}, 0, 0, 0},
	} {
		hub := sluicetest.NewHub(group, 1)
		for _, id := range []int64{10, 11, 12, 10} { // event 3 repeats event 0
			hub.Append("0", stamped(fmt.Sprint("s@1/", 0), id, -1))
		}
		b := &memoryLedger{checkpoint: map[string]int64{"0": 3}, began: driver.Beginning{After: 1, How: c.how}, entries: map[string][]audit.Entry{}}
		for _, n := range c.rows {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
		}
		r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{StampsFrom: []stamp.Source{{Topic: "s"}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Total.Faults[audit.Lost] != c.lost || r.Total.Faults[audit.Duplicated] != c.duplicated || r.Total.Unclear != c.unclear || r.Total.Skipped != 2 {
			t.Errorf("%s with rows %v: %+v", c.how, c.rows, r.Total)
		}
	}
}

// stamped is a message of an earlier stage. origin is the source and the partition of its id.
func stamped(origin string, id, low int64) *sluice.Event {
	source, partition, _ := strings.Cut(origin, "/")
	e := sluicetest.Bodies("x")[0]
	e.Properties = map[string]any{}
	stamp.Stamp{ID: stamp.CausationID{Source: source, Partition: partition, Sequence: id}, Epoch: 1, Low: low}.SetTo(e.Properties)
	return e
}

// TestMoreOriginsThanRemembered: beyond the bound of origins a repetition is not recognised, and an
// event without an effect may be one.
func TestMoreOriginsThanRemembered(t *testing.T) {
	const origins = 1<<14 + 1 // one more than are remembered
	for _, of := range []int{origins - 1, origins} {
		hub := sluicetest.NewHub(group, 1)
		b := &memoryLedger{checkpoint: map[string]int64{"0": int64(of)}, entries: map[string][]audit.Entry{}}
		for i := range of {
			hub.Append("0", stamped(fmt.Sprint("s@1/", i), 7, -1))
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: int64(i)})
		}
		hub.Append("0", stamped("s@1/0", 7, -1)) // repeats the first
		r, err := audit.Run(t.Context(), hub, b, group, &audit.Config{StampsFrom: []stamp.Source{{Topic: "s"}}})
		if err != nil {
			t.Fatal(err)
		}
		known := of < origins
		if r.Exact() != known || r.Undecided() == known || (r.Total.Unclear == 0) != known || (r.Partitions[0].Doubt == audit.TooManyIDs) == known || len(r.Faults) > 0 {
			t.Errorf("%d origins: %s, %+v, doubt %q", of, r.Headline(), r.Total, r.Partitions[0].Doubt)
		}
	}
}

// TestSQLLedgerReadsTheBeginning from a checkpoint, and finds none in a table of an earlier
// version, nor after a program of an earlier version has set it.
func TestSQLLedgerReadsTheBeginning(t *testing.T) {
	hub := sluicetest.NewHub(group, 1)
	hub.Append("0", sluicetest.Bodies("0", "1")...)
	topic, err := hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "flights.db")
	writeLedger(t, path, group, topic, 2)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	began := func(change string, want driver.Beginning) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		view, err := audit.NewSQLLedger(db, audit.SQLite(), audit.Table{Name: "flights", Partition: "hub_partition", Sequence: "sequence_number"}).Open(t.Context(), topic, "0")
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		if c, found, err := view.Checkpoint(t.Context()); c.Began != want || c.Position.Sequence != 1 || !found || err != nil {
			t.Errorf("%s: %+v, %t, %v, want %+v", change, c, found, err, want)
		}
	}
	began(`UPDATE sluice_checkpoints SET began_sequence = 7, began_how = 'import'`, driver.Beginning{After: 7, How: driver.HowImport})
	began(`UPDATE sluice_checkpoints SET owner = '', epoch = epoch + 1`, driver.Beginning{})
	began(`UPDATE sluice_checkpoints SET done_epoch = epoch`, driver.Beginning{After: 7, How: driver.HowImport})
	began(`UPDATE sluice_checkpoints SET began_how = ''`, driver.Beginning{})
	began(`UPDATE sluice_checkpoints SET began_how = 'start'; ALTER TABLE sluice_checkpoints DROP COLUMN began_sequence`, driver.Beginning{})
}

// TestConsumerThatLosesEverything runs a consumer that starts at the latest event, and whose
// handler writes nothing.
func TestConsumerThatLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := sluicetest.NewHub(group, 1)
		hub.Append("0", sluicetest.Bodies("0", "1", "2")...)
		store := &sluicetest.Store{}
		forgetful := sluice.Each(func(context.Context, *sluicetest.Tx, *sluice.Event) error { return nil })
		c, err := sluice.New(hub, &sluicetest.Leases{}, sluice.Transactional(store, forgetful), &sluice.Config{Start: sluice.Latest(), Observer: driver.ObserverFunc(func(driver.Observation) {})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		hub.Append("0", sluicetest.Bodies("3", "4")...)
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		list, err := store.Read(t.Context(), group)
		if err != nil || len(list) != 1 || list[0].Position.Sequence != 4 {
			t.Fatalf("checkpoints %+v, %v", list, err)
		}
		b := &memoryLedger{checkpoint: map[string]int64{"0": 4}, began: list[0].Began}
		r, err := audit.Run(t.Context(), hub, b, group, nil)
		if err != nil || fmt.Sprint(r.Faults) != "[partition 0: events 3 to 4 are lost]" || r.Total.Skipped != 3 {
			t.Errorf("%v, %v", r, err)
		}
	})
}
