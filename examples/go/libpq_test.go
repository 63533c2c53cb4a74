package examples

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/sqlstore"
	"github.com/sluice-go/sluice/storetest"
)

// TestLibPQ: a store over lib/pq passes the suites of stores.
func TestLibPQ(t *testing.T) {
	database, cases := pgtest.Database(t), 0
	admin, err := sql.Open("postgres", database)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	pair := func(t testing.TB) (s, peer *sqlstore.Store) {
		cases++
		schema := fmt.Sprint("case_", cases)
		if _, err := admin.Exec("CREATE SCHEMA " + schema); err != nil {
			t.Fatal(err)
		}
		address := database + "&search_path=" + schema
		open := func() *sqlstore.Store {
			db, err := sql.Open("postgres", address)
			if err != nil {
				t.Fatal(err)
			}
			s, err := sqlstore.NewPostgres(t.Context(), db, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close(); db.Close() })
			return s
		}
		s, peer = open(), open()
		for _, statement := range []string{
			"CREATE TABLE effects (key text NOT NULL)", "CREATE TABLE parents (id bigint PRIMARY KEY)",
			"CREATE TABLE children (small bigint CHECK (small < 10), later bigint REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
		} {
			if _, err := s.DB().ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		return s, peer
	}
	exec := func(statement string) func(ctx context.Context, tx *sqlstore.Tx) error {
		return func(ctx context.Context, tx *sqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	tx := func(t testing.TB) storetest.TxHarness[*sqlstore.Tx] {
		s, peer := pair(t)
		return storetest.TxHarness[*sqlstore.Tx]{
			Store: s, DeadLetters: s, Peer: peer,
			Put: func(ctx context.Context, tx *sqlstore.Tx, key string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects (key) VALUES ($1)", key)
				return err
			},
			Effects: func(ctx context.Context) (keys []string, err error) {
				rows, err := peer.DB().QueryContext(ctx, "SELECT key FROM effects")
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				for rows.Next() {
					var key string
					if err := rows.Scan(&key); err != nil {
						return nil, err
					}
					keys = append(keys, key)
				}
				return keys, rows.Err()
			},
			Break:      exec("INSERT INTO children (small) VALUES (10)"),
			BreakLater: exec("INSERT INTO children (later) VALUES (404)"),
			Missing:    exec("INSERT INTO nowhere VALUES (1)"),
			Doors: []storetest.Door[*sqlstore.Tx]{
				{Name: "COMMIT", Refused: true, End: exec("COMMIT")}, {Name: "ROLLBACK", Refused: true, End: exec("ROLLBACK")},
			},
		}
	}
	storetest.TestTxStore(t, tx)
	storetest.TestDeadLetterStore(t, tx)
	storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
		s, peer := pair(t)
		return storetest.CheckpointHarness{Store: s, Peer: peer, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
	})
	storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
		s, peer := pair(t)
		return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s, Peer: peer}
	})
	storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
		s, _ := pair(t)
		return s.Leases()
	}, nil)
}
