package check

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"
)

// brokenSession is one assumption about sessions that is broken on purpose.
type brokenSession struct {
	what   string
	check  string // that must name it
	want   State
	damage func(*words)
}

// patience is how long a statement is watched that must not wait.
const patience = 30 * time.Second

// brokenSessions are statements and numbers of errors of servers that differ in one thing.
var brokenSessions = []brokenSession{
	{"the fence does not lock", "db.lock", Failed, func(w *words) { w.lock, w.watch = w.read, patience }},
	{"a condition is not checked again", "db.rows", Failed, func(w *words) { w.swap = w.set }},
	{"the error of a duplicate is unknown", "db.insert", Failed, func(w *words) { w.duplicate = nil }},
	{"the error of a time limit is unknown", "db.timeout", Failed, func(w *words) { w.timeout = nil }},
	{"the error of a deadlock is unknown", "db.deadlock", Failed, func(w *words) { w.deadlock = nil }},
	{"a session goes on after its end", "db.killed", Failed, func(w *words) { w.kill, w.apart = w.read, 0 }},
	{"sessions must not be ended", "db.killed", Undecided, func(w *words) { w.kill, w.mayNotKill = w.long, w.tooLong }},
	{"a statement that is cancelled does not wait", "db.cancel", Failed, func(w *words) { w.lock, w.watch = w.read, patience }},
	{"the mark outlives the transaction", "db.mark", Failed, func(w *words) { w.ends = []string{w.set} }},
	{"a transaction is rolled back unnoticed", "db.undone", Failed, func(w *words) {
		w.read = strings.Replace(w.read, "n", "0", 1)
		w.swap += " AND n = 5" // of a server where every further statement fails
	}},
	{"readers wait", "db.readers", Warning, func(w *words) { w.read, w.apart = w.lock, 0 }},
	{"no snapshot", "db.snapshot", Failed, func(w *words) { w.snapshot = &sql.TxOptions{Isolation: sql.LevelReadCommitted} }},
	{"hints are ignored", "db.hints", Failed, func(w *words) { w.hints, w.watch = w.read, patience }},
	{"a text that is too long is stored", "db.strict", Failed, func(w *words) { w.long = strings.Replace(w.long, "long", "lon", 1) }},
	{"the error of a long text is unknown", "db.strict", Failed, func(w *words) { w.tooLong = nil }},
	{"times are stored to the millisecond", "db.time", Failed, func(w *words) { w.time = strings.Replace(w.time, "123457", "123000", 1) }},
	{"the error of a read-only server is unknown", "db.readonly", Failed, func(w *words) { w.refused = nil }},
}

// testBrokenSessions breaks what a server is assumed to do, one thing after the other.
func testBrokenSessions(t *testing.T, s *databaseSystem) {
	t.Helper()
	prepared(t, s)
	for _, c := range sessionChecks {
		if !slices.ContainsFunc(brokenSessions, func(row brokenSession) bool { return row.check == c.name }) {
			t.Errorf("no row breaks what %s assumes", c.name)
		}
	}
	for _, row := range brokenSessions {
		if !s.words.applies(row.check) {
			continue
		}
		t.Run(row.what, func(t *testing.T) {
			own := *s.words
			row.damage(&own)
			broken := &databaseSystem{database: s.database, opts: s.opts, words: &own}
			expect(t, broken, row.check, row.want)
		})
	}
}
