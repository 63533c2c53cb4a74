package catchup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/catchup"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "n", Topic: "t", Name: "g"}

func nothingStopped() map[string]error { return nil }

// world is a topic of three partitions, of which the last is empty.
type world struct {
	hub   *sluicetest.Hub
	store *sluicetest.Store
	topic sluice.Topic
}

func newWorld(t *testing.T) *world {
	w := &world{hub: sluicetest.NewHub(group, 3), store: &sluicetest.Store{}}
	w.hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
	w.hub.Append("1", sluicetest.Bodies("a")...)
	topic, err := w.hub.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.topic = topic
	return w
}

func (w *world) move(t *testing.T, partition string, to int64) {
	t.Helper()
	if _, err := w.store.Reset(t.Context(), group, partition, w.topic.Incarnation, sluice.Position{Sequence: to}, "set"); err != nil {
		t.Fatal(err)
	}
}

func (w *world) ends(t *testing.T) *catchup.Ends {
	t.Helper()
	e, err := catchup.Now(t.Context(), w.hub)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWaitsForEveryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ends := w.ends(t)
		w.hub.Append("0", sluicetest.Bodies("later")...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- ends.Wait(ctx, w.store, nothingStopped) }()
		w.move(t, "1", 0)
		w.move(t, "0", 1)
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("ended with %v while partition 0 was behind", err)
		default:
		}
		w.move(t, "0", 2)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitsForCopies: dead letters that are not copied are not caught up, and are counted at the
// end.
func TestWaitsForCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ends := w.ends(t)
		const letters = 40
		for i := range letters {
			e := driver.Event{Partition: []string{"0", "2"}[i%2], Sequence: int64(i)}
			if err := w.store.Park(t.Context(), []sluice.DeadLetter{{Group: group, Incarnation: w.topic.Incarnation, Event: e}}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := ends.WaitCopies(ctx, w.store)
		if want := "40 dead letters are not copied: check the target of dead_letters.copy_to"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		for partition := range 3 {
			var copied []driver.ParkedEvent
			list, err := w.store.Uncopied(t.Context(), group, fmt.Sprint(partition), 0, letters)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				copied = append(copied, driver.ParkedEvent{ID: d.ID, Position: d.Event.Position()})
			}
			if err := w.store.MarkCopied(t.Context(), group, fmt.Sprint(partition), copied); err != nil {
				t.Fatal(err)
			}
		}
		if err := ends.WaitCopies(t.Context(), w.store); err != nil {
			t.Error(err)
		}
	})
}

func TestNamesThePartitionsThatAreBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.move(t, "0", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w.ends(t).Wait(ctx, w.store, nothingStopped)
		var u *catchup.Unreached
		if !errors.As(err, &u) || err.Error() != "partition 0 at 1 of 2, partition 1 not started, of 0" {
			t.Errorf("got %v", err)
		}
	})
}

func TestACheckpointOfAnotherIncarnationIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.move(t, "0", 2)
		w.move(t, "1", 0)
		time.Sleep(time.Second)
		w.hub.Recreate()
		w.hub.Append("0", sluicetest.Bodies("a")...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w.ends(t).Wait(ctx, w.store, nothingStopped)
		if err == nil || err.Error() != "partition 0 not started, of 0" {
			t.Errorf("got %v", err)
		}
	})
}

func TestAStoppedPartitionFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.move(t, "0", 2)
		gone := &driver.RetentionError{Partition: "1", After: -1, First: 7}
		began := time.Now()
		err := w.ends(t).Wait(t.Context(), w.store, func() map[string]error {
			if time.Since(began) < time.Second {
				return nil
			}
			return map[string]error{"0": errors.New("stopped, but behind its end"), "1": gone}
		})
		if err != gone || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.move(t, "0", 2)
		w.move(t, "1", 0)
		ends := w.ends(t)
		down := errors.New("database is down")
		if err := ends.Wait(t.Context(), &flaky{Store: w.store, fail: 5, err: down}, nothingStopped); err != nil {
			t.Errorf("a short outage: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := ends.Wait(ctx, &flaky{Store: w.store, fail: 1e9, err: down}, nothingStopped)
		if !errors.Is(err, down) || !strings.Contains(err.Error(), "database is down") {
			t.Errorf("a long outage: %v", err)
		}
	})
}

// flaky fails so often before it answers.
type flaky struct {
	*sluicetest.Store
	fail int
	err  error
}

func (f *flaky) Read(ctx context.Context, g sluice.Group) ([]sluice.Checkpoint, error) {
	if f.fail--; f.fail >= 0 {
		return nil, f.err
	}
	return f.Store.Read(ctx, g)
}

// absent is a hub that can't be reached, or refuses.
type absent struct {
	driver.Source
	err error
}

func (a *absent) Describe(context.Context) (sluice.Topic, error) { return sluice.Topic{}, a.err }

func TestNowTriesAgainUnlessRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		down := errors.New("no route")
		if _, err := catchup.Now(ctx, &absent{err: down}); !errors.Is(err, down) || time.Since(began) < time.Minute {
			t.Errorf("unreachable: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := catchup.Now(t.Context(), &absent{err: sluice.ErrRefused}); !errors.Is(err, sluice.ErrRefused) || time.Since(began) > 0 {
			t.Errorf("refused: %v after %v", err, time.Since(began))
		}
	})
}
