package blame

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

// holdVariable is how long an alteration lasts, such as 300s in make soak. By default each lasts 10
// to 30 s.
const holdVariable = "SLUICE_ALTERED_FOR"

// MovesWithin is how soon a partition moves after its table is back.
const MovesWithin = 10 * time.Second

// Alteration is what an operator does to the table of a statement, and undoes.
type Alteration struct{ Name, Statement, Broken, Mended string }

// Service is a consumer at work with the settings of a service, while a producer sends.
type Service struct {
	t          *testing.T
	Letters    func() []sluice.DeadLetter
	Checkpoint func() int64 // the checkpoint
}

// NewGroup returns a group that no other test has.
func NewGroup() sluice.Group {
	return sluice.Group{Namespace: "test", Topic: "orders", Name: fmt.Sprint("outage", groups.Add(1))}
}

// Serve starts a consumer with settings, and a producer of ten events a second.
func Serve[Tx any](t *testing.T, s Store[Tx], group sluice.Group, cfg sluice.Config, handle func(ctx context.Context, tx Tx, e *sluice.Event) error) *Service {
	t.Helper()
	need.RealTime(t)
	sv := &Service{t: t}
	hub := sluicetest.NewHub(group, 1)
	cfg.Owner, cfg.Seed = group.Name, 1
	consumer, err := sluice.New(hub, s.Leases, sluice.Transactional(s.Store, sluice.Each(handle)), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := consumer.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the consumer ended with %v", err)
		}
	})
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			hub.Append("0", sluicetest.Bodies(fmt.Sprint(n))...)
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	sv.Letters = func() []sluice.DeadLetter {
		list, err := s.Store.List(ctx, group, sluice.DeadLetterFilter{})
		if err != nil {
			t.Error(err)
		}
		return list
	}
	sv.Checkpoint = func() int64 {
		list, err := s.Store.Read(ctx, group)
		if err != nil || len(list) == 0 {
			return driver.Unset.Sequence
		}
		return list[0].Position.Sequence
	}
	sv.Await("it moves", time.Minute, func() bool { return sv.Checkpoint() >= 3 })
	return sv
}

// Await waits for a condition, and returns how long that took.
func (s *Service) Await(what string, most time.Duration, met func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !met() {
		if time.Since(began) > most {
			s.t.Fatalf("%s not within %v: at %d, %d dead letters", what, most, s.Checkpoint(), len(s.Letters()))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// altered is an alteration of a running service: what is left to do, in its order.
type altered[Tx any] struct {
	Alteration
	service    *Service
	broken     time.Time     // when it is made
	hold       time.Duration // until it is undone
	step       int
	checkpoint int64 // the checkpoint then
	mended     time.Time
	operators  func(ctx context.Context, statements string) error
}

// Altered proves for each alteration, made at a random moment of a running service, that it makes
// no dead letter, and that the service moves soon after it is undone. The services run beside each
// other, each with a table of its own.
func Altered[Tx any](t *testing.T, s Store[Tx], alterations []Alteration) {
	need.RealTime(t)
	r := need.Rand(t)
	var all []*altered[Tx]
	for _, a := range alterations {
		hold := 10*time.Second + time.Duration(r.Int64N(int64(20*time.Second)))
		if text := os.Getenv(holdVariable); text != "" {
			var err error
			if hold, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
		}
		moment := time.Duration(r.Int64N(int64(3 * time.Second)))
		sv := Serve(t, s, NewGroup(), sluice.Config{StallAfter: 3 * time.Second}, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return s.Exec(ctx, tx, a.Statement, string(e.Body))
		})
		all = append(all, &altered[Tx]{Alteration: a, service: sv, broken: time.Now().Add(moment), hold: hold, operators: s.Do})
	}
	for busy := true; busy; time.Sleep(20 * time.Millisecond) {
		busy = false
		for _, a := range all {
			busy = a.proceed(t) || busy
		}
	}
}

// proceed does what is due, and reports whether anything is left to do.
func (a *altered[Tx]) proceed(t *testing.T) bool {
	t.Helper()
	do := func(statements string) {
		if err := a.operators(t.Context(), statements); err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		a.step++
	}
	switch now := time.Now(); {
	case a.step == 0 && now.After(a.broken):
		do(a.Broken)
	case a.step == 1 && now.After(a.broken.Add(a.hold)):
		a.checkpoint = a.service.Checkpoint()
		do(a.Mended)
		a.mended = time.Now()
	case a.step == 2:
		took, moved := time.Since(a.mended), a.service.Checkpoint() > a.checkpoint
		if !moved && took < MovesWithin {
			break
		}
		a.step++
		letters := a.service.Letters()
		for _, l := range letters {
			t.Errorf("%s: dead letter of event %d: %s", a.Name, l.Event.Sequence, l.Error)
		}
		if !moved {
			t.Errorf("%s: it does not move within %v after the end", a.Name, MovesWithin)
		}
		t.Logf("%s for %v: %d dead letters, moved after %v", a.Name, a.hold.Round(time.Second), len(letters), took.Round(10*time.Millisecond))
	}
	return a.step < 3
}
