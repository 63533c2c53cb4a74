package faults_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// The oldest fault that applies to an operation is injected, until it has been injected as often as
// configured, or has expired.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s faults.Set[string]
		next := func(want string) {
			t.Helper()
			got, ok := faults.Next(&s, func(f *string) bool { return *f != "other" })
			if got != want || ok != (want != "") {
				t.Errorf("%q befalls it, %t, not %q", got, ok, want)
			}
		}
		next("")
		for _, f := range []struct {
			fault string
			times int
			life  time.Duration
		}{{"other", 0, 0}, {"twice", 2, 0}, {"soon over", 0, time.Second}, {"always", 0, 0}} {
			if _, err := faults.Add(&s, f.fault, f.times, f.life); err != nil {
				t.Fatal(err)
			}
		}
		next("twice")
		next("twice")
		next("soon over")
		time.Sleep(time.Second + 1)
		next("always")
		if s.Remove(5) || !s.Remove(4) || s.Remove(4) {
			t.Error("removed what isn't there, or not what is")
		}
		next("")
		if list := s.List(); len(list) != 3 || list[0].Hits != 0 || list[1].Hits != 2 || list[2] != (faults.State[string]{ID: 3, Fault: "soon over", Hits: 1}) {
			t.Errorf("faults %+v", list)
		}
		s.Clear()
		next("")
	})
}

func TestLimit(t *testing.T) {
	var s faults.Set[int]
	for i := range 1001 {
		if _, err := faults.Add(&s, i, 0, 0); (err == nil) != (i < 1000) {
			t.Fatalf("fault %d: %v", i, err)
		}
	}
}
