package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// Three consumers work through a hub over networks that lose commits in every
// way; one is cut off in the middle for longer than its lease lasts, and one
// is killed. The hub holds what another stage has sent, every fifth message
// twice. Each message's effects are there once, those that the database refuses
// are dead letters.
func TestConsumers(t *testing.T) {
	const (
		partitions = 4
		messages   = 1500                  // of each partition
		events     = messages + messages/5 // with those sent twice
		bad        = 100                   // every so manieth message cannot be applied
	)
	url := pgtest.Database(t)
	direct := open(t, url, nil)
	const tables = `CREATE TABLE one (p text, n bigint); CREATE TABLE two (p text, n bigint CHECK (n % 100 <> 50))`
	if _, err := direct.Pool().Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	hub := sluicetest.NewHub(group, partitions)
	for p := range partitions {
		send := func(n int64) {
			e := &driver.Event{Properties: map[string]any{}, Body: []byte("a message")}
			stamp.Stamp{ID: stamp.CausationID{Source: "before@1", Partition: fmt.Sprint(p), Sequence: n}, Epoch: 1, Low: max(n/40*40-1, -1)}.SetTo(e.Properties)
			hub.Append(fmt.Sprint(p), e)
		}
		for n := range int64(messages) {
			send(n)
			if n%5 == 4 {
				send(n - 3)
			}
		}
	}
	number := func(e *driver.Event) int64 {
		stamp, _, _ := stamp.From(e.Properties)
		return stamp.ID.Sequence
	}
	handler := func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
		rows := make([][]any, len(b.Events))
		for i, e := range b.Events {
			rows[i] = []any{b.Partition, number(e)}
		}
		if err := pgstore.Insert(ctx, tx, "one", []string{"p", "n"}, rows); err != nil {
			return err
		}
		for _, e := range b.Events {
			if _, err := tx.Exec(ctx, `INSERT INTO two VALUES ($1, $2)`, b.Partition, number(e)); err != nil {
				return err
			}
		}
		return nil
	}

	var commits atomic.Int64
	stalled, killed := make(chan struct{}), make(chan struct{})
	type member struct {
		proxy *commitproxy.Proxy
		kill  context.CancelFunc
		done  chan error
	}
	members, seed := make([]member, 3), need.Seed(t)
	for i := range members {
		proxy, through := pgtest.NewTestProxy(t, url)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		proxy.OnCommit(func(int) commitproxy.Fault {
			switch n := random.IntN(20); n {
			case 1, 2, 3:
				return commitproxy.Fault(n)
			}
			return commitproxy.None
		})
		s := open(t, through, &pgstore.Config{LeaseFor: time.Second, LockTimeout: 50 * time.Millisecond})
		consumer, err := sluice.New(hub, s.Leases(), sluice.Transactional(s, handler), &sluice.Config{
			StampsFrom: []stamp.Source{{Topic: "before"}},
			Owner:      fmt.Sprint("consumer ", i), LeaseFor: time.Second, AssignEvery: 20 * time.Millisecond, MaxBatch: 20,
			RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond, Seed: uint64(i) + 1,
			Observer: driver.ObserverFunc(func(o driver.Observation) {
				if o.Kind == driver.KindCommitted {
					switch commits.Add(1) {
					case 60:
						close(stalled)
					case 140:
						close(killed)
					}
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		m := member{proxy, kill, make(chan error, 1)}
		go func() { m.done <- consumer.Run(ctx) }()
		members[i] = m
	}

	progress := time.NewTicker(20 * time.Millisecond)
	defer progress.Stop()
	resume := make(<-chan time.Time)
	deadline := time.After(2 * time.Minute)
	for done := 0; done < partitions; {
		select {
		case <-stalled:
			members[0].proxy.Stall()
			resume, stalled = time.After(2500*time.Millisecond), nil
		case <-resume:
			members[0].proxy.Resume()
			members[0].proxy.Deliver()
		case <-killed:
			members[1].proxy.Cut()
			members[1].kill()
			killed = nil
		case <-progress.C:
			for _, m := range members {
				m.proxy.Deliver()
			}
			list, err := direct.Read(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			done = 0
			for _, p := range list {
				if p.Position.Sequence == events-1 {
					done++
				}
			}
		case <-deadline:
			list, err := direct.Read(t.Context(), group)
			t.Fatalf("not done after two minutes: %+v, %v", list, err)
		}
	}
	for _, m := range members {
		m.proxy.Resume()
		m.kill()
		if err := <-m.done; !errors.Is(err, context.Canceled) {
			t.Errorf("a consumer ended with %v", err)
		}
	}

	const good, dead = partitions * (messages - messages/bad), partitions * messages / bad
	for _, table := range []string{"one", "two"} {
		var rows, distinct int
		if err := direct.Pool().QueryRow(t.Context(), `SELECT count(*), count(DISTINCT (p, n)) FROM `+table).Scan(&rows, &distinct); err != nil {
			t.Fatal(err)
		}
		if rows != good || distinct != good {
			need.Verdict(t)
			t.Errorf("table %s: %d rows of %d events, want %d", table, rows, distinct, good)
		}
	}
	deadLetters, err := direct.List(t.Context(), group, driver.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(deadLetters) != dead {
		need.Verdict(t)
		t.Errorf("%d dead letters, want %d", len(deadLetters), dead)
	}
	for _, l := range deadLetters {
		if l, err = direct.Get(t.Context(), group, l.ID); err != nil || number(&l.Event)%bad != 50 {
			t.Errorf("message %d of partition %s is a dead letter: %s, %v", number(&l.Event), l.Event.Partition, l.Error, err)
		}
	}
	if stalled != nil || killed != nil {
		t.Error("the events ran out before the consumers were disturbed")
	}
}
