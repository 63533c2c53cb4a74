package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// mended applies what [insert] refuses, if it comes as a retry.
func mended(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	if b.Redriven {
		return tx.Insert("rows", b.Events[0].Sequence)
	}
	return sluice.Each(insert)(ctx, tx, b)
}

// parked leaves a dead letter for every third of 30 events.
func (s *scene) parked(cfg sluice.Config) {
	for n := range 30 {
		body := "good"
		if n%3 == 0 {
			body = "reject"
		}
		s.send("0", body)
	}
	_, end := s.consume("before", mended, cfg)
	time.Sleep(time.Minute)
	end()
	if n := len(s.letters(sluice.StatusDead)); n != 10 {
		s.t.Fatalf("%d dead letters", n)
	}
}

// retry marks all dead letters.
func (s *scene) retry() {
	must(s.store.Redrive(s.t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
}

// exactly checks that n events, from the first on, have one row each.
func (s *scene) exactly(n int) {
	s.t.Helper()
	rows := s.rows()
	slices.Sort(rows)
	if len(rows) != n || len(slices.Compact(rows)) != n {
		s.t.Errorf("%d rows for %d events: %v", len(rows), n, rows)
	}
}

func TestOwnerRedrives(t *testing.T) {
	for name, limit := range map[string]int{"stored body": 0, "body read from the log": -1} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				cfg := sluice.Config{BodyLimit: limit}
				s.parked(cfg)
				_, end := s.consume("a", mended, cfg)
				for n := range 120 {
					if n == 60 {
						s.retry()
					}
					s.send("0", "good")
					time.Sleep(time.Second)
				}
				end()
				if n := len(s.letters()); n != 0 {
					s.t.Errorf("%d dead letters are left", n)
				}
				s.exactly(150)
				if n := s.count(sluice.KindRedriven); n != 10 {
					s.t.Errorf("told of %d", n)
				}
			})
		})
	}
}

func TestCommandsRedriveWhatNobodyOwns(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.parked(sluice.Config{})
		s.hub.Trim("0", 30) // retention has passed: the bodies are stored
		s.retry()
		var wg sync.WaitGroup
		var mu sync.Mutex
		total := 0
		for n := range 3 {
			wg.Go(func() {
				c := must(sluice.New(s.hub, s.leases, sluice.Transactional(s.store, mended), &sluice.Config{Owner: fmt.Sprint("command", n)}))
				applied, failed, err := c.Redrive(s.t.Context())
				if err != nil || failed != 0 {
					s.t.Error(failed, err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += applied
			})
		}
		wg.Wait()
		if total != 10 || len(s.letters()) != 0 {
			s.t.Errorf("applied %d, %d are left", total, len(s.letters()))
		}
		s.exactly(30)
		if n := s.leases.holders(s.t); len(n) != 0 {
			s.t.Errorf("leases are still held: %v", n)
		}
	})
}

func TestRedriveLeavesOwnedPartitionsAlone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.parked(sluice.Config{})
		_, end := s.consume("a", mended, sluice.Config{RedriveEvery: time.Hour})
		time.Sleep(10 * time.Second)
		s.retry()
		c := must(sluice.New(s.hub, s.leases, sluice.Transactional(s.store, mended), nil))
		if applied, failed, err := c.Redrive(s.t.Context()); applied+failed != 0 || err != nil {
			s.t.Error(applied, failed, err)
		}
		time.Sleep(time.Hour)
		end()
		s.exactly(30)
	})
}

func TestRetryFailsAgain(t *testing.T) {
	stage(t, 1, func(s *scene) {
		cfg := sluice.Config{BodyLimit: -1}
		s.parked(cfg)
		s.hub.Trim("0", 15) // five are gone, and their bodies were not stored
		s.send("0", "good")
		_, end := s.consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Redriven && b.Events[0].Sequence == 27 {
				if err := tx.Insert("rows", int64(27)); err != nil {
					return err
				}
				return errors.New("no better than before")
			}
			return mended(ctx, tx, b)
		}, cfg)
		time.Sleep(time.Minute)
		s.retry()
		time.Sleep(time.Minute)
		end()
		letters := s.letters(sluice.StatusDead)
		if len(letters) != 6 || len(s.letters()) != 6 {
			s.t.Fatalf("%d dead letters, %d in all", len(letters), len(s.letters()))
		}
		for _, l := range letters {
			want := "retention removed"
			if l.Event.Sequence == 27 {
				want = "no better"
			}
			if l.Attempts != 2 || !strings.Contains(l.Error, want) {
				s.t.Errorf("event %d: %d attempts, %s", l.Event.Sequence, l.Attempts, l.Error)
			}
		}
		s.exactly(31 - 6)
	})
}

// A retry that kills the process comes to an end.
func TestRetryThatKills(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.parked(sluice.Config{})
		must(s.store.Redrive(s.t.Context(), group, sluice.DeadLetterFilter{IDs: []int64{s.letters()[4].ID}}, time.Time{}))
		deaths := 0
		for life := range 10 {
			s.send("0", "good")
			owner, dead := fmt.Sprint("life", life), make(chan struct{})
			h := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				if b.Redriven {
					s.leases.cutOff(owner)
					close(dead)
					<-ctx.Done()
					return ctx.Err()
				}
				return mended(ctx, tx, b)
			}
			c := must(sluice.New(s.hub, s.leases, sluice.Transactional(&mortal{Store: s.store, dead: dead}, h), &sluice.Config{Partitions: 1, Owner: owner}))
			ctx, cancel := context.WithCancel(s.t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = c.Run(ctx) }()
			select {
			case <-dead:
				deaths++
			case <-time.After(2 * time.Minute):
			}
			cancel()
			<-done
		}
		if deaths != 3 || len(s.letters(sluice.StatusDead)) != 10 {
			s.t.Errorf("%d deaths, %d dead letters", deaths, len(s.letters(sluice.StatusDead)))
		}
		s.exactly(30)
	})
}

// A command retries while the event behind the checkpoint has attempts on
// record: it neither waits for that event nor loses count.
func TestRedriveBesideAnEventUnderTrial(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.parked(sluice.Config{})
		s.send("0", "bad")
		_, end := s.consume("a", mended, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
		time.Sleep(time.Minute)
		end()
		s.retry()
		c := must(sluice.New(s.hub, s.leases, sluice.Transactional(s.store, mended), &sluice.Config{Partitions: 1}))
		if applied, failed, err := c.Redrive(s.t.Context()); applied != 10 || failed != 0 || err != nil {
			s.t.Errorf("applied %d, failed %d, %v", applied, failed, err)
		}
		if p := must(s.store.Read(s.t.Context(), group))[0]; p.Attempt.Sequence != 30 || p.Attempt.Attempts != 1 {
			s.t.Errorf("the record of event 30 is %+v", p.Attempt)
		}
	})
}

// counted is a context that counts the functions that wait for its end.
type counted struct {
	context.Context
	waiting atomic.Int64
}

// Value hides the context within, where package context would register otherwise.
func (c *counted) Value(any) any { return nil }

// AfterFunc is what package context calls to register one.
func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	detach := context.AfterFunc(c.Context, f)
	return func() bool {
		c.waiting.Add(-1)
		return detach()
	}
}

// A program that redrives again and again under one context keeps nothing there.
func TestRedriveLeavesNothingWithItsContext(t *testing.T) {
	ctx := &counted{Context: t.Context()}
	c := must(sluice.New(sluicetest.NewHub(group, 2), newLedger(), sluice.Transactional(&sluicetest.Store{}, nothing), nil))
	for range 10 {
		if _, _, err := c.Redrive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := ctx.waiting.Load(); n != 0 {
		t.Errorf("%d functions wait for the context's end after 10 redrives", n)
	}
}
