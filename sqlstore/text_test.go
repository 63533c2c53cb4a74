package sqlstore

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"Grüße ✈":      "Grüße ✈",
		"a\x00b":       "a\uFFFDb",
		"a\xff\xfeb":   "a\uFFFDb",
		"\xed\xa0\x80": "\uFFFD",
		"\x00\xff":     "\uFFFD\uFFFD",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// Times sort as text, come back to the microsecond, and never fail to.
func TestTimeText(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	last := ""
	for _, c := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{time.UnixMilli(-1), time.UnixMilli(-1)},
		{time.UnixMilli(0), time.UnixMilli(0)},
		{time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, berlin), time.Date(2026, 1, 2, 2, 4, 5, 678_901_000, time.UTC)},
		{time.Date(2026, 1, 2, 3, 4, 6, 0, berlin), time.Date(2026, 1, 2, 2, 4, 6, 0, time.UTC)},
		{time.UnixMilli(math.MaxInt64), latestTime},
	} {
		text := formatTime(c.in)
		var got storedTime
		if err := got.Scan(text); err != nil || !got.Equal(c.want) {
			t.Errorf("%v is stored as %s and read as %v, %v; want %v", c.in, text, got.Time, err, c.want)
		}
		if text <= last || len(text) != len(timeLayout) {
			t.Errorf("%q after %q", text, last)
		}
		last = text
	}
	if text := formatTime(time.UnixMilli(math.MinInt64)); text != formatTime(earliestTime) {
		t.Errorf("a time before all others is stored as %s", text)
	}
	for _, bad := range []any{"yesterday", 17, []byte("2026")} {
		if err := new(storedTime).Scan(bad); err == nil {
			t.Errorf("%v was read as a time", bad)
		}
	}
}

// SQLite's clock and Go's write the same form, and what is stored is that.
func TestStoredForm(t *testing.T) {
	s, l := begun(t, nil)
	lease, err := s.Leases().Acquire(t.Context(), group, "0", "a", 90*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	letter := driver.DeadLetter{
		Group: group, Incarnation: "i", Status: driver.StatusRetry, FailedAt: time.Now(), NextAttempt: time.Now(),
		Event: driver.Event{Partition: "0", Sequence: 1, Enqueued: time.Now(), Key: "a\x00b"},
	}
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9), DeadLetters: []driver.DeadLetter{letter}}, nil); err != nil {
		t.Fatal(err)
	}
	const form = "____-__-__T__:__:__.______Z"
	var ok bool
	var left float64
	if err := s.Leases().db.QueryRow("SELECT expires_at LIKE ? AND renewed_at LIKE ?, (julianday(expires_at) - julianday(renewed_at)) * 86400 FROM sluice_leases", form, form).Scan(&ok, &left); err != nil || !ok || math.Abs(left-90) > 0.01 {
		t.Errorf("lease: form %v, lasts %v s, %v", ok, left, err)
	}
	if err := s.DB().QueryRow("SELECT updated_at LIKE ? FROM sluice_checkpoints", form).Scan(&ok); err != nil || !ok {
		t.Errorf("checkpoint: form %v, %v", ok, err)
	}
	if err := s.DB().QueryRow("SELECT enqueued_at LIKE ? AND failed_at LIKE ? AND next_attempt LIKE ? AND instr(partition_key, char(0)) = 0 FROM sluice_dead_letters", form, form, form).Scan(&ok); err != nil || !ok {
		t.Errorf("dead letter: form %v, %v", ok, err)
	}
	if err := s.Leases().Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := s.Leases().db.QueryRow("SELECT expires_at IS NULL FROM sluice_leases").Scan(&ok); err != nil || !ok {
		t.Errorf("a lease given back: expires_at is NULL: %v, %v", ok, err)
	}
}

// No epoch is handed out twice, not even at the end of all numbers.
func TestLastEpoch(t *testing.T) {
	leases := open(t, filepath.Join(t.TempDir(), "x.db")).Leases()
	l, err := leases.Acquire(t.Context(), group, "0", "a", time.Hour, math.MaxInt64-1)
	if err != nil || l.Epoch != math.MaxInt64 {
		t.Fatalf("epoch %d, %v", l.Epoch, err)
	}
	for _, above := range []int64{0, math.MaxInt64} {
		if l, err := leases.Acquire(t.Context(), group, "0", "a", time.Hour, above); err == nil {
			t.Errorf("epoch %d after the last", l.Epoch)
		}
	}
	if l, err := leases.Acquire(t.Context(), group, "1", "a", time.Hour, -5); err != nil || l.Epoch != 1 {
		t.Errorf("above -5: epoch %d, %v; want 1", l.Epoch, err)
	}
}
