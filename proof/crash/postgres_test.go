package crash

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

func postgres(t *testing.T) (database string, n count) {
	return prepare(t, pgtest.Database(t))
}

// prepare makes the tables in a database.
func prepare(t *testing.T, url string) (database string, n count) {
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Pool().Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return url, func(query string) int {
		n := -1
		_ = s.Pool().QueryRow(t.Context(), query).Scan(&n)
		return n
	}
}

func TestKilledHalfWayPostgreSQL(t *testing.T) {
	t.Parallel()
	database, n := postgres(t)
	killedHalfWay(t, database, n)
}

func TestKillerIsParkedPostgreSQL(t *testing.T) {
	t.Parallel()
	database, n := postgres(t)
	killerIsParked(t, database, n)
}

// TestOutageOfAMinute stops PostgreSQL for a minute while a consumer runs. The
// consumer must continue by itself, and no event may become a dead letter for it.
func TestOutageOfAMinute(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, nil)
	url, err := server.CreateDatabase(t.Context(), "outage")
	if err != nil {
		t.Fatal(err)
	}
	database, n := prepare(t, url)
	a := newArena(t, database, make([]string, 600))
	a.start()
	await(t, time.Minute, "first commit", func() bool { return n(done) > 0 })
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	a.send(make([]string, 600))
	<-time.After(time.Minute)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	await(t, time.Minute, "the end", func() bool { return n(done) == 1200 })
	t.Logf("went on and caught up within %v", time.Since(began).Round(time.Millisecond))
	need.Verdict(t)
	if rows, letters := n("SELECT count(*) FROM first"), n("SELECT count(*) FROM sluice_dead_letters"); rows != 1200 || letters != 0 {
		t.Errorf("%d rows, %d dead letters", rows, letters)
	}
}
