package scale

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestPostgres: the transactions that the server counts for 64 processes and 1,024 partitions
// without events are within the budget. The processes are consumers in this one, with the
// connections of a single store.
func TestPostgres(t *testing.T) {
	need.RealTime(t)
	ctx := t.Context()
	url := pgtest.Database(t)
	s, err := pgstore.Open(ctx, url, &pgstore.Config{MaxConns: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close(context.WithoutCancel(ctx))
	hub := sluicetest.NewHub(groupName, partitions)
	handle := func(context.Context, pgx.Tx, sluice.Batch) error { return nil }
	var ended []func()
	defer func() {
		for _, end := range ended {
			end()
		}
	}()
	for i := range processes {
		c, err := sluice.New(hub, s.Leases(), sluice.Transactional(s, handle), &sluice.Config{
			Partitions: sluice.Balanced, Owner: fmt.Sprintf("process-%04d", i), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		run, end := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		go func() { defer close(done); _ = c.Run(run) }()
		ended = append(ended, func() { end(); <-done })
	}
	held := func() bool {
		list, err := s.Leases().List(ctx, groupName)
		if err != nil {
			t.Fatal(err)
		}
		share := map[string]int{}
		n := 0
		for _, l := range list {
			if l.Live() && !l.Member() {
				share[l.Owner]++
				n++
			}
		}
		for _, k := range share {
			if k != partitions/processes {
				return false
			}
		}
		return n == partitions && len(share) == processes
	}
	eventually(t, "64 processes have their shares", held)
	count := func() (n int64) {
		if err := monitor.QueryRow(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// A rate is measured, so time has to pass: twice a lease's interval between renewals.
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	<-tick.C
	before, began := count(), time.Now()
	<-tick.C
	rate := float64(count()-before) / time.Since(began).Seconds()
	t.Logf("PostgreSQL: %.1f transactions a second of 64 processes and 1,024 partitions without events: %.2f a process, %.2f a partition", rate, rate/processes, rate/partitions)
	if rate > storePerProcess*processes || rate > storePerPartition*partitions {
		t.Errorf("%.1f transactions a second, want at most %v a process and %v a partition", rate, storePerProcess, storePerPartition)
	}
	if rate < 1 {
		t.Errorf("%.1f transactions a second: nothing was counted", rate)
	}
	// Without the processes' own leases, which are renewed when the next listing is due.
	eventually(t, "no lease, of 30 s, was not renewed for 15 s", func() bool {
		var late int
		err := monitor.QueryRow(ctx, `SELECT count(*) FROM sluice_leases WHERE partition NOT LIKE '~%' AND expires_at < clock_timestamp() + interval '15 seconds'`).Scan(&late)
		if err != nil {
			t.Fatal(err)
		}
		return late == 0
	})
	if !held() {
		t.Error("partitions were lost meanwhile")
	}
}

// eventually looks once a second, for two minutes: listing 1,024 leases more often would delay the
// processes that are waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	const within = 2 * time.Minute
	for end := time.Now().Add(within); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("after %v: still not: %s", within, what)
		}
	}
}
