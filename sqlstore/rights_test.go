package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

// granted are the rights on tables that docs/security.md grants in a section: right, table.
func granted(t *testing.T, section string, want int) (list [][2]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	suite.NoError(t, "read the page", err)
	_, text, _ := strings.Cut(string(page), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, grant := range regexp.MustCompile(`(?m)^GRANT ([A-Z, ]+) ON (.*\bsluice_.*) TO `).FindAllStringSubmatch(text, -1) {
		for right := range strings.SplitSeq(grant[1], ", ") {
			for table := range strings.SplitSeq(grant[2], ", ") {
				list = append(list, [2]string{right, table[strings.LastIndex(table, ".")+1:]})
			}
		}
	}
	if len(list) != want {
		t.Fatalf("docs/security.md grants %v in section %s, want %d rights on 5 tables", list, section, want)
	}
	return list
}

// running is what consumers and operators use of a store.
type running[Tx any] interface {
	driver.TxStore[Tx]
	driver.DeadLetterStore
}

// useAll takes a partition from its lease to a redriven dead letter, and sets its checkpoint back.
// It returns the first error, and what it was of.
func useAll[Tx any](ctx context.Context, s running[Tx], leases driver.LeaseStore, put func(ctx context.Context, tx Tx) error) error {
	var lease driver.Lease
	var at driver.Position
	letter := driver.DeadLetter{Group: group, Incarnation: "1", Error: "no", Attempts: 1, Status: driver.StatusDead,
		Event: driver.Event{Partition: "0", Sequence: 5, Body: []byte("x")}, HasBody: true}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"acquire", func() (err error) {
			lease, err = leases.Acquire(ctx, group, "0", "a", time.Minute, 0)
			return err
		}},
		{"renew", func() error { return leases.Renew(ctx, lease, time.Minute) }},
		{"list leases", func() error { _, err := leases.List(ctx, group); return err }},
		{"claim", func() error {
			c, err := s.Claim(ctx, lease, "1")
			at = c.Position
			return err
		}},
		{"record", func() error { return s.RecordAttempt(ctx, lease, at, driver.AttemptRecord{Sequence: 1, Attempts: 1}) }},
		{"transactional step", func() error {
			next := driver.Position{Sequence: at.Sequence + 10}
			err := s.Commit(ctx, driver.Step{Lease: lease, From: at, To: next, SettleIncarnation: "1", DeadLetters: []driver.DeadLetter{letter},
				Dedup: []driver.DedupState{{Origin: "b/0", Epoch: 1, Top: 1, At: time.Now(), IDs: "0:1", Forget: -1}}}, put)
			at = next
			return err
		}},
		{"read duplicates", func() error { _, err := s.ReadDedup(ctx, group, "0"); return err }},
		{"redrive", func() error {
			if _, err := s.Redrive(ctx, group, driver.DeadLetterFilter{}, time.Time{}); err != nil {
				return err
			}
			due, err := s.Due(ctx, group, "0", 10)
			if err == nil && len(due) != 1 {
				err = fmt.Errorf("%d dead letters are due, want 1", len(due))
			}
			if err != nil {
				return err
			}
			return s.Commit(ctx, driver.Step{Lease: lease, From: at, To: at, Redriven: []int64{due[0].ID}}, put)
		}},
		{"set back", func() error { _, err := s.Reset(ctx, group, "0", "1", driver.Unset, "set"); return err }},
		{"release", func() error { return leases.Release(ctx, lease) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// eachRight checks that a run works with the rights of the page, and that it fails by name without
// each of them. run opens a store that may not migrate, and uses it.
func eachRight(t *testing.T, rights [][2]string, admin func(statement string), grant func(verb, right, table string) string, run func() error) {
	t.Helper()
	for _, r := range rights {
		admin(grant("GRANT", r[0], r[1]))
	}
	suite.NoError(t, "run with all rights", run())
	for _, r := range rights {
		admin(grant("REVOKE", r[0], r[1]))
		err := run()
		if err == nil || !strings.Contains(err.Error(), r[1]) {
			t.Errorf("without %s on %s: %v; want an error that names the table", r[0], r[1], err)
		}
		admin(grant("GRANT", r[0], r[1]))
	}
	suite.NoError(t, "run with all rights again", run())
}

// TestPostgresEachRight: stores over database/sql, over a handle, and over pgx run with the rights
// that docs/security.md grants, and each is needed.
func TestPostgresEachRight(t *testing.T) {
	address := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), address)
	suite.NoError(t, "connect", err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	admin := func(statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		suite.NoError(t, statement, err)
	}
	role := "consumer_" + conn.Config().Database
	admin("CREATE ROLE " + role + " LOGIN PASSWORD 'app'")
	t.Cleanup(func() { conn.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	openPostgres(t, address, nil)
	admin("GRANT SELECT, INSERT ON effects TO " + role)
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	u.User = url.UserPassword(role, "app")
	limited := u.String()
	reset := func() { admin("TRUNCATE sluice_checkpoints, sluice_leases, sluice_dead_letters, sluice_seen") }
	grant := func(verb, right, table string) string {
		return verb + " " + right + " ON " + table + map[string]string{"GRANT": " TO ", "REVOKE": " FROM "}[verb] + role
	}
	use := func(s *Store, err error) error {
		if err != nil {
			return err
		}
		defer s.Close()
		return useAll(t.Context(), s, s.Leases(), func(ctx context.Context, tx *Tx) error { return postgresPut(ctx, tx, "x") })
	}
	for name, run := range map[string]func() error{
		"Opened": func() error {
			return use(OpenPostgres(t.Context(), limited, &ServerConfig{NoMigrate: true}))
		},
		"Handle": func() error {
			db, err := sql.Open("pgx", limited)
			suite.NoError(t, "open", err)
			defer db.Close()
			return use(NewPostgres(t.Context(), db, &ServerConfig{NoMigrate: true}))
		},
		"Pgx": func() error {
			s, err := pgstore.Open(t.Context(), limited, &pgstore.Config{NoMigrate: true})
			if err != nil {
				return err
			}
			defer s.Close()
			return useAll(t.Context(), s, s.Leases(), func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO effects (key) VALUES ('x')")
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRight(t, granted(t, "PostgreSQL", 15), admin, grant, func() error { reset(); return run() })
		})
	}
}

// TestMariaDBEachRight is TestPostgresEachRight for MySQL and MariaDB.
func TestMariaDBEachRight(t *testing.T) {
	address := mariadbtest.Database(t)
	owner := openMariaDB(t, address, nil)
	admin := func(statement string) {
		t.Helper()
		suite.NoError(t, statement, execute(t.Context(), owner.DB(), statement))
	}
	var database string
	suite.NoError(t, "read the name", owner.DB().QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database))
	user := "'" + database[max(0, len(database)-20):] + "'@'%'"
	admin("CREATE USER " + user + " IDENTIFIED BY 'app'")
	t.Cleanup(func() { execute(context.WithoutCancel(t.Context()), owner.DB(), "DROP USER "+user) })
	admin("GRANT SELECT, INSERT ON " + database + ".effects TO " + user)
	u, err := url.Parse(address)
	suite.NoError(t, "read the URL", err)
	u.User = url.UserPassword(strings.Trim(strings.Split(user, "@")[0], "'"), "app")
	grant := func(verb, right, table string) string {
		return verb + " " + right + " ON " + database + "." + table + map[string]string{"GRANT": " TO ", "REVOKE": " FROM "}[verb] + user
	}
	eachRight(t, granted(t, "MySQL and MariaDB", 14), admin, grant, func() error {
		for _, table := range []string{"sluice_checkpoints", "sluice_leases", "sluice_dead_letters", "sluice_seen"} {
			admin("DELETE FROM " + table)
		}
		s, err := OpenMySQL(t.Context(), u.String(), &ServerConfig{NoMigrate: true})
		if err != nil {
			return err
		}
		defer s.Close()
		return useAll(t.Context(), s, s.Leases(), func(ctx context.Context, tx *Tx) error { return mariaPut(ctx, tx, "x") })
	})
}
