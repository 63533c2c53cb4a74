package sluicetest

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func TestHubKeepsItsEventsApart(t *testing.T) {
	h := NewHub(testGroup, 1)
	sent := &sluice.Event{Body: []byte("body"), Properties: map[string]any{"a": 1}}
	h.Append("0", sent)
	spoil := func(e *sluice.Event) {
		e.Body[0], e.Properties["a"], e.Sequence = 'X', 2, 99
	}
	spoil(sent)
	for range 2 {
		e := read(t, open(t, h, "0", driver.Origin, 1))
		if string(e.Body) != "body" || e.Properties["a"] != 1 || e.Sequence != 0 {
			t.Errorf("read %+v, which someone has changed", e)
		}
		spoil(e)
	}
}

func TestHubSeeksByReading(t *testing.T) {
	h := NewHub(testGroup, 1)
	h.Append("0", Bodies("a", "b")...)
	for _, where := range []sluice.Start{sluice.At(time.Now().Add(-time.Hour)), sluice.Ago(time.Hour), sluice.FromOffset("0")} {
		r := open(t, h, "0", driver.Origin, 5)
		_, err := h.Seek(suite.Context(t), "0", where, 4)
		stolen(t, "seek in a lower epoch", err, "0", 5)
		if got := string(read(t, r).Body); got != "a" {
			t.Errorf("read %q", got)
		}
		_, err = h.Seek(suite.Context(t), "0", where, 5)
		suite.NoError(t, "seek", err)
		_, err = r.Read(suite.Context(t), 1)
		stolen(t, "read after a seek in the same epoch", err, "0", 5)
	}
}

func TestHubOffsets(t *testing.T) {
	h := NewHub(testGroup, 1)
	h.Append("0", Bodies("a", "b", "c")...)
	h.Trim("0", 1)
	for offset, want := range map[string]int64{"0": 0, "99": 0, "100": 0, "101": 1, "200": 1, "201": 2, "100000": 2} {
		p, err := h.Seek(suite.Context(t), "0", sluice.FromOffset(offset), 1)
		suite.NoError(t, "seek", err)
		if p.Sequence != want {
			t.Errorf("offset %s is sought at %v, want %d", offset, p, want)
		}
	}
	_, err := h.Seek(suite.Context(t), "0", sluice.FromOffset("x"), 1)
	suite.ErrorIs(t, "seek of an offset that is no number", err, sluice.ErrRefused)
}

func TestHubRefusesMistakes(t *testing.T) {
	h := NewHub(testGroup, 2)
	for what, fn := range map[string]func(){
		"append": func() { h.Append("2", Bodies("a")...) },
		"trim":   func() { h.Trim("x", 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s in a partition that is not there: no panic", what)
				}
			}()
			fn()
		}()
	}
	r := open(t, h, "0", driver.Origin, 1)
	if _, err := r.Read(suite.Context(t), 0); err == nil {
		t.Error("read at most 0 events: no error")
	}
	h.Append("0", Bodies("a")...)
	h.Trim("0", 1000) // no more than there is
	if b, err := h.Bounds(suite.Context(t), "0"); err != nil || b.First != 1 || b.Last.Sequence != 0 || b.LastEnqueued.IsZero() {
		t.Errorf("bounds after all was trimmed: %+v, %v", b, err)
	}
}
