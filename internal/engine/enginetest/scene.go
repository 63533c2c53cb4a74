package enginetest

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// Group is the consumer group of all scenes.
var Group = sluice.Group{Namespace: "test", Topic: "events", Name: "$Default"}

// Main is a package's TestMain. Consumers without an observer log to slog.Default; tests are read
// without that.
func Main(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// Scene is a consumer's surroundings in one bubble. It is the observer of the consumers that its
// methods run.
type Scene struct {
	Panics     bool // a driver panics in this test
	RetryLater bool // failed events are tried again later, as by default; else an operator redrives them
	T          *testing.T
	Hub        *sluicetest.Hub
	Leases     *Ledger
	Store      *sluicetest.Store

	StampsFrom []stamp.Source // of its consumers

	mu   sync.Mutex
	seen []driver.Observation
}

// Stage runs a test in virtual time, with a topic of some partitions.
func Stage(t *testing.T, partitions int, run func(*Scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run(&Scene{
			T: t, Hub: sluicetest.NewHub(Group, partitions), Leases: NewLedger(), Store: &sluicetest.Store{},
			StampsFrom: []stamp.Source{{Topic: "flights"}},
		})
	})
}

// StageSparse is [Stage] with one partition, in whose log numbers may be missing.
func StageSparse(t *testing.T, run func(*Scene)) {
	t.Helper()
	Stage(t, 1, func(s *Scene) {
		s.Hub.Sparse()
		run(s)
	})
}

// Send appends an event for each body.
func (s *Scene) Send(partition string, bodies ...string) {
	s.Hub.Append(partition, sluicetest.Bodies(bodies...)...)
}

// SendKeyed appends n events with the keys that key returns. Their bodies are 0, 1 and so on.
func (s *Scene) SendKeyed(partition string, n int, key func(i int) string) {
	events := make([]*sluice.Event, n)
	for i := range events {
		events[i] = &sluice.Event{Key: key(i), Body: fmt.Appendf(nil, "%d", i)}
	}
	s.Hub.Append(partition, events...)
}

// SendSparse appends an event for each word, and takes a number without an event for each "-".
func (s *Scene) SendSparse(words string) {
	var events []*sluice.Event
	for _, word := range strings.Fields(words) {
		events = append(events, &sluice.Event{Body: []byte(word), Control: word == "-"})
	}
	s.Hub.Append("0", events...)
}

// LeaveDeadLetters sends 30 events, every third of which becomes a dead letter.
func (s *Scene) LeaveDeadLetters(cfg sluice.Config) {
	for n := range 30 {
		body := "good"
		if n%3 == 0 {
			body = "reject"
		}
		s.Send("0", body)
	}
	_, end := s.Consume("before", InsertRedriven, cfg)
	time.Sleep(time.Minute)
	end()
	if n := len(s.Letters(sluice.StatusDead)); n != 10 {
		s.T.Fatalf("%d dead letters", n)
	}
}

// RedriveAll requests the redrive of all dead letters.
func (s *Scene) RedriveAll() {
	Must(s.Store.Redrive(s.T.Context(), Group, sluice.DeadLetterFilter{}, time.Time{}))
}

// Rows returns the sequence numbers in the table, in the order of their commits.
func (s *Scene) Rows() (list []int64) {
	for _, r := range s.Store.Rows("rows") {
		list = append(list, r.(int64))
	}
	return list
}

// Letters returns the dead letters with one of these statuses, or all of them.
func (s *Scene) Letters(status ...sluice.DeadLetterStatus) []sluice.DeadLetter {
	return Must(s.Store.List(s.T.Context(), Group, sluice.DeadLetterFilter{Status: status}))
}

// Position returns the sequence number of a partition's checkpoint.
func (s *Scene) Position(partition string) int64 {
	for _, p := range Must(s.Store.Read(s.T.Context(), Group)) {
		if p.Partition == partition {
			return p.Position.Sequence
		}
	}
	return driver.Unset.Sequence
}

// Observe fails the test if a panic is reported that it does not expect.
func (s *Scene) Observe(o driver.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Err != nil && !s.Panics && strings.Contains(o.Err.Error(), "panic outside of the handler") {
		s.T.Errorf("partition %s: %v", o.Partition, o.Err)
	}
	s.seen = append(s.seen, o)
}

// Observations returns the observations of some kinds, or all of them.
func (s *Scene) Observations(kinds ...driver.ObservationKind) (list []driver.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		if len(kinds) == 0 || slices.Contains(kinds, o.Kind) {
			list = append(list, o)
		}
	}
	return list
}

// Count returns how many observations of a kind there were.
func (s *Scene) Count(k driver.ObservationKind) int { return len(s.Observations(k)) }

// Errors returns the errors that were observed with a kind.
func (s *Scene) Errors(k driver.ObservationKind) (list []string) {
	for _, o := range s.Observations(k) {
		list = append(list, o.Err.Error())
	}
	return list
}

// Stalls returns the texts of the stalls that were reported.
func (s *Scene) Stalls() []string { return s.Errors(driver.KindStalled) }

// Moved sums what the checkpoint's moves say, and returns the lag that the last one left.
func (s *Scene) Moved() (commits, events int, lag int64) {
	for _, o := range s.Observations(driver.KindCommitted) {
		commits, events, lag = commits+1, events+o.Events, o.Lag
	}
	return commits, events, lag
}
