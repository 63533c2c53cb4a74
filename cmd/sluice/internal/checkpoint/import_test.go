package checkpoint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// fresh is the world with five events in partition 1, without a checkpoint,
// of which events 2 to 4 are still held.
func fresh(t *testing.T) *world {
	w := newWorld(t)
	w.hub.Append("1", sluicetest.Bodies("a", "b", "c", "d", "e")...)
	w.hub.Trim("1", 2)
	return w
}

func offset(t *testing.T, w *world, sequence int64) string {
	t.Helper()
	r, err := w.hub.Open(t.Context(), "1", sluice.Position{Sequence: sequence - 1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	events, err := r.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return events[0].Offset
}

func TestImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			sequence, offset int64 // -1: not known
			want             int64
		}{
			"both":                        {3, 3, 3},
			"sequence number alone":       {3, -1, 3},
			"newest":                      {4, 4, 4},
			"last before the oldest held": {1, -1, 1},
			"offset alone":                {-1, 3, 3},
			"offset of the newest":        {-1, 4, 4},
			"offset of the oldest":        {-1, 2, 2},
		} {
			w := fresh(t)
			f := checkpoint.Foreign{Partition: "1", Sequence: c.sequence}
			if c.offset >= 0 {
				f.Offset = offset(t, w, c.offset)
			}
			planned, err := w.table.PlanImport(t.Context(), f, false)
			if err != nil || planned.To.Sequence != c.want || w.checkpoint(t, "1").Position != driver.Unset {
				t.Errorf("%s: planned %+v, %v", name, planned, err)
			}
			m, err := w.table.Import(t.Context(), f, false)
			if err != nil || m.To.Sequence != c.want || m.Begun || m.Epoch < 1 || w.checkpoint(t, "1").Position.Sequence != c.want {
				t.Errorf("%s: moved %+v, %v; want it at %d", name, m, err, c.want)
			}
			w.own(t, "1") // fails unless the lease was given back
		}
	})
}

func TestImportRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		between := strings.TrimSuffix(offset(t, fresh(t), 3), "0") + "1"
		for name, c := range map[string]struct {
			foreign checkpoint.Foreign
			owned   bool
			forced  int64 // position by force; -3: refused all the same
			says    string
		}{
			"a checkpoint is there":   {checkpoint.Foreign{Partition: "0", Sequence: 7}, false, 7, "partition 0 has a checkpoint already, at 5"},
			"a live owner":            {checkpoint.Foreign{Partition: "1", Sequence: 3}, true, 3, "partition 1 is owned by rival"},
			"the other is at work":    {checkpoint.Foreign{Partition: "1", Sequence: 3, Owner: "worker-7"}, false, 3, "still read by worker-7"},
			"events are gone":         {checkpoint.Foreign{Partition: "1", Sequence: 0}, false, 1, "events 1 to 1 have passed retention and cannot be read"},
			"past the end":            {checkpoint.Foreign{Partition: "1", Sequence: 5}, false, -3, "the newest event of t is 4"},
			"no such partition":       {checkpoint.Foreign{Partition: "7", Sequence: 3}, false, -3, "t has no partition 7"},
			"an offset that's no one": {checkpoint.Foreign{Partition: "1", Sequence: -1, Offset: "nonsense"}, false, -3, "seek offset nonsense"},
			"its event is gone":       {checkpoint.Foreign{Partition: "1", Sequence: -1, Offset: "0", Exact: true}, false, 1, "the event at the offset 0 of the checkpoint has passed retention"},
			"between two events":      {checkpoint.Foreign{Partition: "1", Sequence: -1, Offset: between}, false, -3, "no event has the offset " + between},
			"an offset past the end":  {checkpoint.Foreign{Partition: "1", Sequence: -1, Offset: "99999"}, false, -3, "no event is at or after the offset 99999"},
		} {
			w := fresh(t)
			if c.owned {
				w.own(t, c.foreign.Partition)
			}
			before := w.checkpoint(t, c.foreign.Partition)
			for _, do := range []func() (checkpoint.Move, error){
				func() (checkpoint.Move, error) { return w.table.PlanImport(t.Context(), c.foreign, false) },
				func() (checkpoint.Move, error) { return w.table.Import(t.Context(), c.foreign, false) },
			} {
				if _, err := do(); err == nil || !strings.Contains(err.Error(), c.says) || c.forced >= 0 && !strings.Contains(err.Error(), "--force") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if after := w.checkpoint(t, c.foreign.Partition); after.Position != before.Position || after.Epoch != before.Epoch {
				t.Errorf("%s: refused, but the checkpoint is %+v", name, after)
			}
			m, err := w.table.Import(t.Context(), c.foreign, true)
			if c.forced < -1 {
				if err == nil {
					t.Errorf("%s: forced to %+v", name, m)
				}
				continue
			}
			if err != nil || m.To.Sequence != c.forced || w.checkpoint(t, c.foreign.Partition).Position.Sequence != c.forced {
				t.Errorf("%s, by force: %+v, %v", name, m, err)
			}
			if c.owned && m.Fenced != "rival" {
				t.Errorf("%s: fenced off %q", name, m.Fenced)
			}
		}
		var exists *checkpoint.ExistsError
		if _, err := fresh(t).table.Import(t.Context(), checkpoint.Foreign{Partition: "0", Sequence: 7}, false); !errors.As(err, &exists) || exists.Position.Sequence != 5 {
			t.Errorf("got %v", err)
		}
	})
}

// The hub's report of what it holds may be out of date: the import asks the log itself.
func TestImportWithBoundsOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hub.HoldBounds()
		w.hub.Append("1", sluicetest.Bodies("a", "b", "c", "d", "e")...)
		m, err := w.table.Import(t.Context(), checkpoint.Foreign{Partition: "1", Sequence: 3}, false)
		if err != nil || m.To.Sequence != 3 {
			t.Errorf("moved %+v, %v; want it at 3", m, err)
		}
		if _, err := w.table.Import(t.Context(), checkpoint.Foreign{Partition: "1", Sequence: 7}, true); err == nil || !strings.Contains(err.Error(), "the newest event of t is 4") {
			t.Errorf("past the end: %v", err)
		}
	})
}

// A refused import, and a dry run by force, do not end the link of the other processor.
func TestImportLeavesTheOtherProcessorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fresh(t)
		table := *w.table
		table.Source = seekless{w.hub, t}
		f := checkpoint.Foreign{Partition: "1", Sequence: 3, Owner: "worker-7"}
		for _, do := range []func(context.Context, checkpoint.Foreign, bool) (checkpoint.Move, error){table.PlanImport, table.Import} {
			if _, err := do(t.Context(), f, false); !errors.As(err, new(*checkpoint.ActiveError)) {
				t.Errorf("without force: %v", err)
			}
		}
		table.DryRun = true
		if m, err := table.PlanImport(t.Context(), f, true); err != nil || m.To.Sequence != 3 {
			t.Errorf("a dry run by force: %+v, %v", m, err)
		}
	})
}

// An offset that retention has passed continues at the oldest event, also where the hub reports
// an older one.
func TestImportOfAnOffsetThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hub.Append("1", sluicetest.Bodies("a", "b", "c", "d", "e")...)
		f := checkpoint.Foreign{Partition: "1", Sequence: -1, Offset: offset(t, w, 1)}
		w.hub.HoldBounds()
		w.hub.Trim("1", 3)
		if m, err := w.table.Import(t.Context(), f, false); err != nil || m.To.Sequence != 2 {
			t.Errorf("moved %+v, %v; want it before event 3, the oldest", m, err)
		}
	})
}
