//go:build unix

package main

import (
	"io"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// tested are the databases beside SQLite and PostgreSQL.
var tested = map[string]func(testing.TB){"mariadb": need.MariaDB, "sqlserver": need.SQLServer}

// TestTrialsOnServers: Sluice and the loop by hand write each event once to each server.
func TestTrialsOnServers(t *testing.T) {
	need.RealTime(t)
	for kind, server := range tested {
		t.Run(kind, func(t *testing.T) {
			server(t)
			db := &databases{}
			defer db.close()
			r := newReport()
			wanted := slices.DeleteFunc(trials(200, 1), func(t trial) bool { return t.Database != kind })
			if err := measureHub(t.Context(), smallest(1, ""), db, r, wanted, io.Discard); err != nil {
				t.Fatal(err)
			}
			check(t, r, 2, 1)
			if r.Machine.Databases[kind] == "" {
				t.Errorf("the report lacks the server's version")
			}
		})
	}
}

func TestWritingOnServers(t *testing.T) {
	need.RealTime(t)
	for kind, server := range tested {
		t.Run(kind, func(t *testing.T) {
			if kind == "sqlserver" {
				need.EveryDatabase(t, "has MariaDB")
			}
			server(t)
			db := &databases{}
			defer db.close()
			writingOn(t, db, kind)
		})
	}
}
