package telemetry_test

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

func TestBinsAreOfTheZone(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s, err := telemetry.NewSeries(6*time.Hour, zone)
	if err != nil {
		t.Fatal(err)
	}
	// The day of 25 hours: its fifth stretch belongs to the fourth.
	for _, at := range []string{"2025-10-25T21:59:59Z", "2025-10-25T22:00:00Z", "2025-10-26T22:30:00Z", "2025-10-26T23:00:00Z"} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add(stored(when, 1, 1, "")); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, b := range s.Bins() {
		got = append(got, b.Start.Format("02 15:04"))
	}
	want := []string{"25 18:00", "26 00:00", "26 17:00", "27 00:00"}
	if len(got) != len(want) {
		t.Fatalf("bins %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("bins %v, want %v", got, want)
		}
	}
	r, err := s.Evaluate(nil)
	if err != nil || len(r.Days) != 3 {
		t.Errorf("%d days, %v", len(r.Days), err)
	}
}

func TestBinsMustDivideADay(t *testing.T) {
	for _, size := range []time.Duration{0, time.Second, 7 * time.Hour, 48 * time.Hour, -time.Hour} {
		if _, err := telemetry.NewSeries(size, nil); err == nil {
			t.Errorf("bins of %v are taken", size)
		}
	}
}

// TestPartialDaysAreLeftOut begins and ends an export in the middle of a day.
func TestPartialDaysAreLeftOut(t *testing.T) {
	s, err := telemetry.NewSeries(24*time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2025, 4, 7, 14, 2, 0, 0, time.UTC)
	for at := begin; at.Before(begin.AddDate(0, 0, 20)); at = at.Add(10 * time.Minute) {
		if at.Day() == 12 {
			continue // an outage
		}
		if err := s.Add(stored(at, 20, 1, "")); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Evaluate(&telemetry.Config{Holidays: []time.Time{time.Date(2025, 4, 18, 0, 0, 0, 0, time.UTC)}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"07 begins at 14:02", "12 no items", "18 holiday", "27 ends at 13:52"}
	if len(r.LeftOut) != len(want) {
		t.Fatalf("left out %v", r.LeftOut)
	}
	for i, l := range r.LeftOut {
		if got := l.Day.Format("02 ") + l.Why; got != want[i] {
			t.Errorf("left out %s, want %s", got, want[i])
		}
	}
	if r.Verdict != telemetry.Neither || r.Step != nil {
		t.Errorf("%s: %v", r.Verdict, r.Explain())
	}
}
