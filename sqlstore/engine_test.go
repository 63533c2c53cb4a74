package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// A handler that writes two tables and fails in the second for some events, by
// an error or by a constraint: no event is done by half, and its neighbours are
// done.
func TestTwoTables(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	const events = 2000
	bodies := make([]string, events)
	bad := 0
	for i := range bodies {
		switch bodies[i] = fmt.Sprint(i % 10); i % 100 {
		case 7:
			bodies[i] = "10" // more than the second table takes
			bad++
		case 63:
			bodies[i] = "error"
			bad++
		}
	}
	handler := sluice.Each(func(ctx context.Context, tx *Tx, e *driver.Event) error {
		if err := put(ctx, tx, fmt.Sprintf("%s/%d", e.Partition, e.Sequence)); err != nil {
			return err
		}
		if string(e.Body) == "error" {
			return errors.New("no")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO children (small) VALUES (CAST(? AS INTEGER))", string(e.Body))
		return err
	})
	result := sluicetest.Run(t, s, handler, sluicetest.Bodies(bodies...), nil)
	if len(result.DeadLetters) != bad {
		t.Errorf("%d dead letters, want %d", len(result.DeadLetters), bad)
	}
	var rows, keys, second int
	if err := s.DB().QueryRow("SELECT count(*), count(DISTINCT key), (SELECT count(*) FROM children) FROM effects").Scan(&rows, &keys, &second); err != nil {
		t.Fatal(err)
	}
	if want := events - bad; rows != want || keys != want || second != want {
		t.Errorf("%d effects of %d keys and %d in the second table, want %d", rows, keys, second, want)
	}
}

// What another stage has sent twice takes effect once, whichever owner comes to
// it, and what was seen does not pile up.
func TestSentTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	const messages = 3000
	hub := sluicetest.NewHub(group, 1)
	for n := range int64(messages) {
		for _, n := range []int64{n, max(n-20, 0)} {
			e := &driver.Event{Properties: map[string]any{}, Body: fmt.Append(nil, n)}
			stamp.Stamp{ID: stamp.CausationID{Source: "before@1", Sequence: n}, Epoch: 1, Low: max(n/100*100-101, -1)}.SetTo(e.Properties)
			hub.Append("0", e)
		}
	}
	var s *Store
	for i := range 4 {
		s = open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		left := messages / 3 // for one owner
		consumer, err := sluice.New(hub, s.Leases(), sluice.Transactional(s, sluice.Each(func(ctx context.Context, tx *Tx, e *driver.Event) error {
			if left--; left == 0 {
				cancel()
			}
			return put(ctx, tx, string(e.Body))
		})), &sluice.Config{StampsFrom: []stamp.Source{{Topic: "before"}}, Owner: fmt.Sprint("owner ", i), MaxBatch: 30, AssignEvery: time.Millisecond, Observer: driver.ObserverFunc(func(o driver.Observation) {
			if (o.Kind == driver.KindCommitted || o.Kind == driver.KindClaimed) && o.To.Sequence == 2*messages-1 {
				cancel()
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		if err := consumer.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("owner %d ended with %v", i, err)
		}
		cancel()
		if i < 3 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	var rows, keys, seen int
	if err := s.DB().QueryRow("SELECT count(*), count(DISTINCT key), (SELECT count(*) FROM sluice_seen) FROM effects").Scan(&rows, &keys, &seen); err != nil {
		t.Fatal(err)
	}
	if rows != messages || keys != messages || seen > 20 {
		t.Errorf("%d effects of %d messages, want %d; %d rows of what was seen, want few", rows, keys, messages, seen)
	}
}
