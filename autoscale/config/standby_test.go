package config_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
)

// roles collects the roles of one file, and calls on with each.
type roles struct {
	config.Watch
	onRole func(config.Role)
	seen   []config.Role
}

func (r *roles) OnRole(_, _ string, _ autoscale.Limits, role config.Role) {
	r.seen = append(r.seen, role)
	r.onRole(role)
}

// TestStandby: a process does not wait for one with another file, which is an error with both
// names. It stands by for one with the same file, and one that is interrupted then has never
// been active.
func TestStandby(t *testing.T) {
	d := &directory{t, t.TempDir()}
	d.write("metrics.db", "")
	file := d.scaling("orders")
	store, err := sqlstore.OpenSQLite(d.file("state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	run := func(holder string, standsBy func(times int, interrupt func())) (*roles, string, error) {
		t.Helper()
		lease := autoscale.Lease{Owner: "other", File: holder, Host: "far", Duration: time.Hour}
		if held, err := store.TakeLease(t.Context(), "orders", lease); held != nil || err != nil {
			t.Fatal(held, err)
		}
		g, err := config.LoadGroup(config.AllParts, file)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log, watch := &logFile{}, &roles{}
		watch.onRole = func(role config.Role) {
			if role == config.Standby {
				standsBy(len(watch.seen), cancel)
			}
		}
		err = g.Run(ctx, &config.Options{Watch: watch, Log: slog.New(slog.NewTextHandler(log, nil))})
		return watch, log.String(), err
	}

	atOnce := func(_ int, interrupt func()) { interrupt() }
	watch, log, err := run("/elsewhere/orders.yaml", atOnce)
	for _, want := range []string{file + ": another process works on the resource orders: other of /elsewhere/orders.yaml on the host far", "give this one another name, or stop that process"} {
		if err == nil || !strings.Contains(err.Error(), want) || len(watch.seen) > 0 {
			t.Errorf("beside a process with another file: %v, roles %v, want … %s …\n%s", err, watch.seen, want, log)
		}
	}
	watch, log, err = run(file, atOnce)
	if err != nil || !slices.Equal(watch.seen, []config.Role{config.Standby}) || strings.Contains(log, "msg=autoscaling") {
		t.Errorf("interrupted while it stands by: %v, roles %v, log\n%s", err, watch.seen, log)
	}

	// It stands by, which it reports to the probes, while the state cannot be reached too.
	watch, log, err = run(file, func(times int, interrupt func()) {
		switch times {
		case 1:
			d.breakState("state.db")
		case 3:
			interrupt()
		}
	})
	if err != nil || len(watch.seen) != 3 || !strings.Contains(log, "standby: the state cannot be reached, will be retried") {
		t.Errorf("without the state: %v, roles %v, log\n%s", err, watch.seen, log)
	}
}

// breakState renames the tables of a state.
func (d *directory) breakState(name string) {
	d.T.Helper()
	db, err := sql.Open("sqlite", d.file(name))
	if err != nil {
		d.T.Fatal(err)
	}
	defer db.Close()
	var renames []string
	rows, err := db.QueryContext(d.T.Context(), `SELECT 'ALTER TABLE ' || name || ' RENAME TO gone_' || name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)
	if err != nil {
		d.T.Fatal(err)
	}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			d.T.Fatal(err)
		}
		renames = append(renames, text)
	}
	if err := rows.Err(); err != nil || len(renames) == 0 {
		d.T.Fatal(renames, err)
	}
	for _, text := range renames {
		if _, err := db.ExecContext(d.T.Context(), text); err != nil {
			d.T.Fatal(err)
		}
	}
}
