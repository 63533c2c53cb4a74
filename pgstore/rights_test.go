package pgstore_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/storetest"
)

// TestRights runs the conformance suites with exactly the rights that docs/security.md
// grants.
func TestRights(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## PostgreSQL\n")
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := strings.Split(text, "```sql\n")
	if len(blocks) != 3 {
		t.Fatalf("docs/security.md has %d blocks of SQL for PostgreSQL, want the roles and the rights", len(blocks)-1)
	}
	roles, _, _ := strings.Cut(blocks[1], "```")
	rights, _, _ := strings.Cut(blocks[2], "```")

	admin := pgtest.Database(t)
	made := false
	n := 0
	// limited returns the URL of a new schema for the consumers' role.
	limited := func(t testing.TB) string {
		t.Helper()
		n++
		schema := fmt.Sprintf("sluice_%d", n)
		runSQL(t, admin, named(roles, schema, made)+`
ALTER ROLE sluice_owner PASSWORD 'owner'; ALTER ROLE sluice_app PASSWORD 'app';`)
		made = true
		owner := asRole(t, admin, "sluice_owner", "owner", schema)
		s := open(t, owner, nil)
		createEffects(t, s)
		s.Close()
		runSQL(t, owner, named(rights, schema, false)+`
GRANT SELECT, INSERT ON effects, unique_now, unique_later TO sluice_app;`)
		return asRole(t, admin, "sluice_app", "app", schema)
	}
	stores := func(t testing.TB) (s, peer *pgstore.Store) {
		at := limited(t)
		return open(t, at, patient), open(t, at, patient)
	}
	tx := func(t testing.TB) storetest.TxHarness[pgx.Tx] {
		s, peer := stores(t)
		return txHarness(s, peer)
	}
	t.Run("transactional", func(t *testing.T) { storetest.TestTxStore(t, tx) })
	t.Run("dead letters", func(t *testing.T) { storetest.TestDeadLetterStore(t, tx) })
	t.Run("checkpoints", func(t *testing.T) {
		storetest.TestCheckpoints(t, func(t testing.TB) storetest.CheckpointHarness {
			s, peer := stores(t)
			return storetest.CheckpointHarness{Store: s, Peer: peer, Features: storetest.CheckpointFeatures{Ranges: 10_000}}
		})
	})
	t.Run("dead letter queue", func(t *testing.T) {
		storetest.TestDeadLetterQueue(t, func(t testing.TB) storetest.DeadLetterQueueHarness {
			s, peer := stores(t)
			return storetest.DeadLetterQueueHarness{Store: s, DeadLetters: s, Peer: peer}
		})
	})
	t.Run("leases", func(t *testing.T) {
		storetest.TestLeases(t, func(t testing.TB) driver.LeaseStore {
			s, _ := stores(t)
			return s.Leases()
		}, nil)
	})
	t.Run("no more", func(t *testing.T) {
		at := limited(t)
		for _, sql := range []string{
			"CREATE TABLE t (n int)", "DROP TABLE sluice_seen", "DELETE FROM sluice_checkpoints", "DELETE FROM sluice_leases",
			"UPDATE sluice_schema SET version = 1", "TRUNCATE sluice_dead_letters",
		} {
			conn, err := pgx.Connect(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), sql); err == nil {
				t.Errorf("%s: allowed", sql)
			}
			conn.Close(t.Context())
		}
	})
}

// named returns the SQL of the page for a schema, without what makes roles if they are made.
func named(sql, schema string, made bool) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if made && (strings.HasPrefix(line, "CREATE ROLE") || strings.HasPrefix(line, "ALTER ROLE")) {
			continue
		}
		line = strings.ReplaceAll(line, "SCHEMA sluice ", "SCHEMA "+schema+" ")
		b.WriteString(strings.ReplaceAll(line, " sluice.", " "+schema+"."))
	}
	return b.String()
}

func runSQL(t testing.TB, at, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
}

// asRole returns the URL for a role and a schema.
func asRole(t testing.TB, at, role, password, schema string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}
