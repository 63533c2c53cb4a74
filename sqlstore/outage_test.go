package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// saysAll fails the test unless err is one line that has all these words.
func saysAll(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %q, want one line that has %q", what, err, w)
		}
	}
}

// Another process that holds the database is nobody's fault.
func TestBusy(t *testing.T) {
	s, l := begun(t, &Config{BusyTimeout: 30 * time.Millisecond})
	other := open(t, s.name)
	hold, err := other.writer.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	step := driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}
	err = s.Commit(t.Context(), step, func(ctx context.Context, tx *Tx) error { return errors.New("not reached") })
	mustNotBlame(t, "commit", err)
	saysAll(t, "commit", err, "begin transaction", s.name, "locked", "another process holds its write lock")
	_, err = s.Claim(t.Context(), l, "i")
	mustNotBlame(t, "claim", err)
	err = s.RecordAttempt(t.Context(), l, positionAt(9), driver.AttemptRecord{})
	mustNotBlame(t, "record", err)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.busy = time.Hour
	err = s.Commit(ctx, step, nil)
	mustNotBlame(t, "commit that is cancelled", err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit that is cancelled: %v", err)
	}
	if err := hold.Rollback(); err != nil {
		t.Fatal(err)
	}
	untouched(t, "busy", s, l)
}

// A disk that is full is nobody's fault, wherever it shows and whatever the
// handler makes of it.
func TestDiskFull(t *testing.T) {
	full := func(t *testing.T, s *Store, more int) {
		t.Helper()
		var pages int
		if err := s.writer.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		if _, err := s.writer.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages+more)); err != nil {
			t.Fatal(err)
		}
	}
	big := strings.Repeat("x", 100_000)
	for what, handler := range map[string]func(context.Context, *Tx) error{
		"told": func(ctx context.Context, tx *Tx) error { return put(ctx, tx, big) },
		"hidden": func(ctx context.Context, tx *Tx) error {
			if put(ctx, tx, big) != nil {
				return errors.New("could not write")
			}
			return nil
		},
		"hidden in a statement": func(ctx context.Context, tx *Tx) error {
			stmt, err := tx.PrepareContext(ctx, "INSERT INTO effects (key) VALUES (?)")
			if err != nil {
				return err
			}
			if _, err := stmt.ExecContext(ctx, big); err != nil {
				return driver.Reject(errors.New("could not write"))
			}
			return nil
		},
		"hidden in a query": func(ctx context.Context, tx *Tx) error {
			rows, err := tx.QueryContext(ctx, "INSERT INTO effects (key) VALUES (?) RETURNING key", big)
			if err != nil {
				return errors.New("could not write")
			}
			return rows.Close()
		},
		"ignored": func(ctx context.Context, tx *Tx) error {
			put(ctx, tx, big)
			put(ctx, tx, "small")
			return nil
		},
		"inserted": func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "effects", []string{"key"}, [][]any{{big}})
		},
	} {
		s, l := begun(t, nil)
		full(t, s, 3)
		err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, handler)
		mustNotBlame(t, what, err)
		saysAll(t, what, err, s.name, "full", "free some room")
		full(t, s, 1000)
		untouched(t, what, s, l)
	}

	s, l := begun(t, nil)
	full(t, s, 3)
	letter := driver.DeadLetter{Group: group, Status: driver.StatusDead, HasBody: true, Event: driver.Event{Partition: "0", Sequence: 10, Body: []byte(big)}}
	err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10), DeadLetters: []driver.DeadLetter{letter}}, func(ctx context.Context, tx *Tx) error {
		return put(ctx, tx, "bad")
	})
	mustNotBlame(t, "dead letter", err)
	saysAll(t, "dead letter", err, "dead letter of event 10", s.name, "full")
	full(t, s, 1000)
	untouched(t, "dead letter", s, l)
}

// What is wrong with the statement may be wrong for every event: the error names the statement, and
// what to do. A handler that can do without goes on.
func TestStatementErrors(t *testing.T) {
	s, l := begun(t, nil)
	step := driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}
	for _, query := range []string{
		"INSERT INTO nowhere VALUES (1)",
		"INSERT INTO effects (colour) VALUES ('red')",
		"UPDATE effects SET colour = 'red'",
		"SELECT conjure(1)",
		"SELEKT 1",
	} {
		err := s.Commit(t.Context(), step, func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		})
		mustNameStatement(t, query, err)
		saysAll(t, query, err, "create what is missing")
	}
	err := s.Commit(t.Context(), step, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT json('{')")
		return err
	})
	if _, blames := errors.AsType[*driver.HandlerError](err); !blames {
		t.Errorf("malformed JSON: %v, want the event's failure", err)
	}
	untouched(t, "statement errors", s, l)
	err = s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(10), To: positionAt(11)}, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT 1 FROM nowhere"); err == nil {
			t.Error("there is such a table")
		}
		return put(ctx, tx, "11")
	})
	if err != nil {
		t.Errorf("handler that goes on without a table: %v", err)
	}
}

func TestClosed(t *testing.T) {
	s, err := OpenSQLite(filepath.Join(t.TempDir(), "x.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := leaseOf("0", "a", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close twice: %v", err)
	}
	err = s.Commit(t.Context(), driver.Step{Lease: l}, nil)
	mustNotBlame(t, "commit", err)
	saysAll(t, "commit", err, s.name, "closed")
	_, err = s.Claim(t.Context(), l, "i")
	mustNotBlame(t, "claim", err)
	if err := s.Leases().Renew(t.Context(), l, time.Second); err == nil || errors.Is(err, driver.ErrFenced) {
		t.Errorf("renew: %v", err)
	}
}

// What cannot be opened is said in one line.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		filepath.Join(dir, "no", "x.db"):  {"x.db", "there is no directory", "create it"},
		filepath.Join(text, "x.db"):       {"x.db", "not a directory"},
		dir:                               {dir, "is not a file"},
		text:                              {text, "not a database", "give another path"},
		"":                                {"not the path of a file"},
		":memory:":                        {"not the path of a file"},
		"sqlite:x.db":                     {"a URL, not the path of a file", "give the path alone, x.db"},
		"file:x.db":                       {"not the path of a file"},
		filepath.Join(dir, "nul\x00l.db"): {"not the path of a file"},
		"/proc/" + filepath.Base(dir):     {"/proc/", "unable to open", "can be read and written"},
		"/dev/null":                       {"/dev/null", "is not a file"},
	} {
		s, err := OpenSQLite(path, nil)
		if err == nil {
			s.Close()
		}
		saysAll(t, path, err, append(words, "open")...)
	}
	for _, cfg := range []Config{{BusyTimeout: -1}, {BusyTimeout: time.Microsecond}, {Readers: -1}} {
		if _, err := OpenSQLite(filepath.Join(dir, "x.db"), &cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
