package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// held are the partitions of a consumer, in one text.
func held(c *sluice.Consumer) string {
	var list []string
	for _, a := range c.Assignments() {
		list = append(list, a.Lease.Partition)
	}
	return strings.Join(list, " ")
}

// TestOrdinals: each process takes the partitions of its ordinal and no others, whoever is missing.
func TestOrdinals(t *testing.T) {
	stage(t, 12, func(s *scene) {
		t := s.T
		consumers, stops := make([]*sluice.Consumer, 3), make([]func(), 3)
		start := func(i int) {
			delivery := sluice.Transactional(s.Store, enginetest.Nothing)
			consumers[i], stops[i] = s.Run(s.Hub, delivery, sluice.Config{Owner: fmt.Sprint("pod-", i), Ordinal: i, Replicas: 3})
		}
		for i := range consumers {
			start(i)
		}
		want := []string{"0 3 6 9", "1 10 4 7", "11 2 5 8"}
		check := func(when string, want ...string) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			for i, c := range consumers {
				if got := held(c); got != want[i] {
					t.Errorf("%s: process %d holds %q, want %q", when, i, got, want[i])
				}
			}
		}
		check("at first", want...)
		stops[1]()
		check("without process 1", want[0], "", want[2])
		start(1)
		check("with it again", want...)
		for _, stop := range stops {
			stop()
		}
		for _, c := range []struct {
			cfg  sluice.Config
			want string
		}{
			{sluice.Config{Ordinal: 3, Replicas: 3}, "ordinal 3 of 3 replicas: the ordinals are those from 0 to Replicas-1"},
			{sluice.Config{Ordinal: 1}, "ordinal 1 of 0 replicas: the ordinals are those from 0 to Replicas-1"},
			{sluice.Config{Replicas: 3, Partitions: 4}, "ordinal of replicas: these divide all partitions, so Partitions must be AllPartitions"},
		} {
			if _, err := sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.Nothing), &c.cfg); fmt.Sprint(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		}
	})
}

// TestCaughtUp: it returns when what was there at the beginning is done, and not before; events
// that keep coming do not put it off.
func TestCaughtUp(t *testing.T) {
	stage(t, 4, func(s *scene) {
		t := s.T
		for p := range 4 {
			s.Send(fmt.Sprint(p), slices.Repeat([]string{"old"}, 100)...)
		}
		slow := func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			time.Sleep(time.Second)
			return nil
		}
		c, stop := s.Run(s.Hub, sluice.Transactional(s.Store, slow), sluice.Config{MaxBatch: 10})
		sending, end := context.WithCancel(t.Context())
		for len(c.Assignments()) < 4 { // what is there then is waited for
			time.Sleep(time.Millisecond)
		}
		go func() {
			for sending.Err() == nil {
				s.Send("0", "new", "new")
				time.Sleep(100 * time.Millisecond)
			}
		}()
		began := time.Now()
		if err := c.CaughtUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("caught up after %v; a partition has ten batches of a second", took)
		}
		for _, a := range c.Assignments() {
			if a.Done < 99 {
				t.Errorf("partition %s has done events up to %d", a.Lease.Partition, a.Done)
			}
		}
		late, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s.Send("1", slices.Repeat([]string{"old"}, 100)...)
		if err := c.CaughtUp(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with 100 events to do it returned %v", err)
		}
		end()
		stop()
		if err := c.CaughtUp(t.Context()); !errors.Is(err, sluice.ErrStopped) {
			t.Errorf("after the stop it returned %v", err)
		}
	})
}

// deaf is a source that fails.
type deaf struct{ driver.Source }

var errDeaf = errors.New("no answer")

func (deaf) Describe(context.Context) (driver.Topic, error) { return driver.Topic{}, errDeaf }

// TestCaughtUpWithoutAnAnswer: while the source fails, the wait ends with ctx, or with the
// consumer.
func TestCaughtUpWithoutAnAnswer(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		c, stop := s.Run(deaf{s.Hub}, sluice.Transactional(s.Store, enginetest.Nothing), sluice.Config{})
		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.CaughtUp(late); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDeaf) {
			t.Errorf("at the end of ctx it returned %v", err)
		}
		late, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Minute, stop)
		if err := c.CaughtUp(late); !errors.Is(err, sluice.ErrStopped) || !errors.Is(err, errDeaf) {
			t.Errorf("after the stop it returned %v", err)
		}
	})
}

// epochs is a source that notes the epochs that it is asked with.
type epochs struct {
	driver.Source
	mu   sync.Mutex
	seen []int64
}

func (e *epochs) note(epoch int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, epoch)
}

func (e *epochs) Seek(ctx context.Context, partition string, start driver.Start, epoch int64) (driver.Position, error) {
	e.note(epoch)
	return e.Source.Seek(ctx, partition, start, epoch)
}

func (e *epochs) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	e.note(epoch)
	return e.Source.Open(ctx, partition, after, epoch)
}

// TestReplayInEveryReplica: without a lease store each replica has all events, and disconnects no
// other reader.
func TestReplayInEveryReplica(t *testing.T) {
	stage(t, 3, func(s *scene) {
		t := s.T
		for p := range 3 {
			s.Send(fmt.Sprint(p), slices.Repeat([]string{"x"}, 10)...)
		}
		source := &epochs{Source: s.Hub}
		var mu sync.Mutex
		counts := make([]int, 2)
		for i := range counts {
			replay := sluice.Replay(sluice.Replayer{Apply: func(_ context.Context, b sluice.Batch) error {
				mu.Lock()
				defer mu.Unlock()
				counts[i] += len(b.Events)
				return nil
			}})
			c := enginetest.Must(sluice.New(source, nil, replay, &sluice.Config{Observer: s}))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()
			defer func() {
				if err := c.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				if err := <-ran; err != nil {
					t.Error(err)
				}
			}()
			began := time.Now()
			if err := c.CaughtUp(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took >= time.Second {
				t.Errorf("replica %d has caught up after %v: the partitions are acquired one a second", i, took)
			}
		}
		s.Send("1", "y")
		time.Sleep(10 * time.Minute) // longer than a lease
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(counts, []int{31, 31}) || slices.ContainsFunc(source.seen, func(n int64) bool { return n != driver.NoEpoch }) {
			t.Errorf("the replicas have %v events, of 31; epochs %v", counts, source.seen)
		}
		if failed := s.Observations(driver.KindFailed, driver.KindLost, driver.KindStalled); len(failed) > 0 {
			t.Errorf("reported: %v", failed)
		}
		if _, err := sluice.New(s.Hub, nil, sluice.Transactional(s.Store, enginetest.Nothing), nil); fmt.Sprint(err) != "make a consumer: the lease store is nil, and only Replay can do without one" {
			t.Errorf("Transactional without leases: %v", err)
		}
	})
}
