package sqlstore

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/storetest"
)

// ahead puts the clock of a store's statements forward: now is the database's expression for the
// time, and shifted the one for a time so many seconds later.
func ahead(t testing.TB, s *Store, by time.Duration, now, shifted string) *Store {
	t.Helper()
	text := strings.ReplaceAll(shifted, "?", fmt.Sprintf("%+d", int(by.Seconds())))
	other := *s.sql
	changed := 0
	for _, v := range reflect.ValueOf(&other).Elem().Fields() {
		if of := v.String(); strings.Contains(of, now) {
			v.SetString(strings.ReplaceAll(of, now, text))
			changed++
		}
	}
	if changed < 10 {
		t.Fatalf("%d statements have a time", changed)
	}
	s.sql, s.leases.sql = &other, &other
	return s
}

func clockHarness(s *Store, h storetest.TxHarness[*Tx]) storetest.ClockHarness[*Tx] {
	return storetest.ClockHarness[*Tx]{TxHarness: h, Leases: s.Leases()}
}

func TestClock(t *testing.T) {
	storetest.TestClock(t, func(t testing.TB, by time.Duration) storetest.ClockHarness[*Tx] {
		s, _ := pair(t)
		ahead(t, s, by, "'now'", "'now', '? seconds'")
		return clockHarness(s, storetest.TxHarness[*Tx]{Store: s, DeadLetters: s, Put: put})
	})
}

func TestMariaDBClock(t *testing.T) {
	storetest.TestClock(t, func(t testing.TB, by time.Duration) storetest.ClockHarness[*Tx] {
		s := openMariaDB(t, mariadbtest.Database(t), nil)
		ahead(t, s, by, "UTC_TIMESTAMP(6)", "(UTC_TIMESTAMP(6) + INTERVAL ? SECOND)")
		return clockHarness(s, storetest.TxHarness[*Tx]{Store: s, DeadLetters: s, Put: mariaPut})
	})
}

func TestSQLServerClock(t *testing.T) {
	w := newMSSQLWorld(t, mssqlPatient)
	real := w.s.sql
	storetest.TestClock(t, func(t testing.TB, by time.Duration) storetest.ClockHarness[*Tx] {
		w.empty(t).s.sql = real
		ahead(t, w.s, by, "SYSUTCDATETIME()", "DATEADD(second, ?, SYSUTCDATETIME())")
		return clockHarness(w.s, storetest.TxHarness[*Tx]{Store: w.s, DeadLetters: w.s, Put: mssqlPut})
	})
}

func TestPostgresClock(t *testing.T) {
	schema := postgresSchemas(t)
	storetest.TestClock(t, func(t testing.TB, by time.Duration) storetest.ClockHarness[*Tx] {
		s := openPostgres(t, schema(t), patient)
		ahead(t, s, by, "clock_timestamp()", "(clock_timestamp() + ? * interval '1 second')")
		return clockHarness(s, postgresTxHarness(s, nil))
	})
}
