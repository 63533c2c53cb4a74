package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// batchOf returns a batch of events with these bodies, in the order of their numbers.
func batchOf(bodies ...string) sluice.Batch {
	b := sluice.Batch{Partition: "0"}
	for i, body := range bodies {
		b.Events = append(b.Events, &sluice.Event{Sequence: int64(i), Body: []byte(body)})
	}
	return b
}

// TestRoute: the order of the events is kept, neighbours of a kind come together, and an error
// names the event by its place in the whole batch.
func TestRoute(t *testing.T) {
	var got []string
	note := func(name string) sluice.Handler[int] {
		return func(_ context.Context, _ int, b sluice.Batch) error {
			text := name
			for i, e := range b.Events {
				text += fmt.Sprint(" ", e.Sequence)
				if strings.HasSuffix(string(e.Body), "!") {
					return errors.Join(&driver.EventError{Index: i, Err: errors.New("bad")})
				}
			}
			got = append(got, text)
			return nil
		}
	}
	kind := func(e *sluice.Event) string {
		if len(e.Body) == 0 {
			panic("no body")
		}
		return string(e.Body[:1])
	}
	h := sluice.Route(kind, map[string]sluice.Handler[int]{"a": note("a"), "b": note("b")})
	rest := sluice.Route(kind, map[string]sluice.Handler[int]{"a": note("a"), "": note("rest")})
	for _, c := range []struct {
		handler sluice.Handler[int]
		bodies  []string
		want    []string
		index   int // of the event to blame; -1: no error
		final   bool
	}{
		{h, []string{"a", "a", "b", "a"}, []string{"a 0 1", "b 2", "a 3"}, -1, false},
		{h, []string{"a", "b", "b!", "b"}, []string{"a 0"}, 2, false},
		{h, []string{"a", "c", "a"}, []string{"a 0"}, 1, true},
		{h, []string{"b", ""}, []string{"b 0"}, 1, false},
		{rest, []string{"c", "d", "a", "e"}, []string{"rest 0", "rest 1", "a 2", "rest 3"}, -1, false},
	} {
		got = nil
		err := c.handler(t.Context(), 0, batchOf(c.bodies...))
		var blamed *driver.EventError
		switch {
		case c.index < 0 && err != nil, c.index >= 0 && (!errors.As(err, &blamed) || blamed.Index != c.index || errors.Is(err, sluice.ErrRejected) != c.final):
			t.Errorf("%q: %v, want event %d blamed", c.bodies, err, c.index)
		case !slices.Equal(got, c.want):
			t.Errorf("%q: handled %q, want %q", c.bodies, got, c.want)
		}
	}
	// What is nobody's fault stays so.
	down := sluice.Route(kind, map[string]sluice.Handler[int]{"": func(context.Context, int, sluice.Batch) error { return driver.Outage(errors.New("down")) }})
	if err := down(t.Context(), 0, batchOf("a", "b")); !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("an outage became %v", err)
	}
}

// TestTypedNull: a body of null is no value, unless the type has one for it.
func TestTypedNull(t *testing.T) {
	type order struct{ ID int }
	var values []string
	plain := sluice.Typed(func(_ context.Context, _ int, _ *sluice.Event, v order) error {
		values = append(values, fmt.Sprint(v.ID))
		return nil
	})
	pointer := sluice.Typed(func(_ context.Context, _ int, _ *sluice.Event, v *order) error {
		values = append(values, fmt.Sprint(v == nil))
		return nil
	})
	for _, body := range []string{"null", " null\n", "", "nul", "{} {}"} {
		if err := plain(t.Context(), 0, batchOf(body)); !errors.Is(err, sluice.ErrRejected) {
			t.Errorf("%q: %v, want it rejected", body, err)
		}
	}
	for _, err := range []error{plain(t.Context(), 0, batchOf(` {"ID":7} `)), pointer(t.Context(), 0, batchOf("null", "", `{"ID":7}`))} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := pointer(t.Context(), 0, batchOf("nul")); !errors.Is(err, sluice.ErrRejected) {
		t.Errorf("nul: %v, want it rejected", err)
	}
	if !slices.Equal(values, []string{"7", "true", "true", "false"}) {
		t.Errorf("values %q", values)
	}
}
