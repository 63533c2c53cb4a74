package pipeline

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// TestLeasesBesideTheDatabase keeps leases in a container and checkpoints in the target's database.
// The fence is the epoch of the checkpoint's row: a consumer whose lease is valid commits nothing
// after another has claimed the checkpoint with a higher one.
func TestLeasesBesideTheDatabase(t *testing.T) {
	storage := azurite.New(t, nil)
	path := filepath.Join(t.TempDir(), "x.db")
	address := "sqlite:" + path
	p, err := Parse("p.yaml", []byte(strings.Replace(plainFile, "sqlite:x.db", "${DATABASE_URL}", 1)+`assign: {every: 20ms}
lease: {for: 15s, renew: 5s}
leases:
  blob:
    container: leases
    connection: ${STORAGE}
`), environment("DATABASE_URL="+address, "STORAGE="+storage.ConnectionString()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(suite.Context(t)); err == nil { // the hub is not there
		t.Error("the check has reached a hub")
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(context.WithoutCancel(t.Context()))
	db, err := OpenReader(address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	hub := sluicetest.NewHub(p.Group, 1)
	hub.Append("0", sluicetest.Bodies("{}", "{}")...)
	var mu sync.Mutex
	var fenced []error
	c, err := parts.Consumer(t.Context(), &Options{Source: hub, Owner: "a", Observer: observerFunc(func(o driver.Observation) {
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(o.Err, sluice.ErrFenced) {
			fenced = append(fenced, o.Err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	ran := suite.Spawn(t, func() error { return c.Run(t.Context()) })
	rows := func(want string) {
		t.Helper()
		suite.Eventually(t, "the table has the sequence numbers "+want, func() bool {
			return query(t, db, "SELECT coalesce(group_concat(n), '') FROM (SELECT n FROM flights ORDER BY n)") == want
		})
	}
	suite.Eventually(t, "the table is there", func() bool { return query(t, db, "SELECT count(*) FROM sqlite_master WHERE name = 'flights'") == "1" })
	rows("0,1")
	epoch := func() int64 {
		t.Helper()
		held, err := parts.Leases.List(suite.Context(t), p.Group)
		if err != nil || len(held) != 1 || held[0].Owner != "a" || !held[0].Live() {
			t.Fatalf("leases %+v, %v", held, err)
		}
		return held[0].Epoch
	}
	checkpoints, err := parts.Checkpoints.Read(suite.Context(t), p.Group)
	if err != nil || len(checkpoints) != 1 || checkpoints[0].Epoch != epoch() {
		t.Fatalf("checkpoints %+v of epoch %d, %v", checkpoints, epoch(), err)
	}
	store, err := sqlstore.OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if inDatabase, err := store.Leases().List(suite.Context(t), p.Group); err != nil || len(inDatabase) > 0 {
		t.Errorf("leases in the database: %+v, %v", inDatabase, err)
	}

	// As another owner would, whose lease is in a store that this one does not see.
	above, err := parts.Checkpoints.Reset(suite.Context(t), p.Group, "0", checkpoints[0].Incarnation, checkpoints[0].Position, "set")
	if err != nil || above <= checkpoints[0].Epoch {
		t.Fatalf("epoch %d, %v", above, err)
	}
	hub.Append("0", sluicetest.Bodies("{}")...)
	rows("0,1,2")
	mu.Lock()
	if len(fenced) == 0 {
		t.Error("the commit was not refused")
	}
	mu.Unlock()
	if e := epoch(); e <= above {
		t.Errorf("the lease has epoch %d, the checkpoint had %d", e, above)
	}
	if err := errors.Join(c.Stop(suite.Context(t)), <-ran); err != nil {
		t.Error(err)
	}
}
