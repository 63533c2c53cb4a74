//go:build linux

package attack

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

func TestPlan(t *testing.T) {
	p := Plan{Seed: 1, Strike: map[Fault]int{Unplug: 3}}
	if err := p.Set("seed=7 kills=30  commits=61 pauses=14 events=5"); err != nil {
		t.Fatal(err)
	}
	want := map[Fault]int{Kill: 25, KillHub: 5, CutBefore: 21, LoseReply: 20, DeliverLate: 20, PauseBegin: 9, PauseWrite: 2, PauseCommit: 2, PauseAny: 1, Unplug: 3}
	for _, f := range Faults {
		if p.Strike[f] != want[f] {
			t.Errorf("%s: %d, want %d", f, p.Strike[f], want[f])
		}
	}
	if p.Seed != 7 || p.Events != 5 {
		t.Errorf("seed %d, %d events", p.Seed, p.Events)
	}
	for _, bad := range []string{"kills", "kills=", "kills=many", "kills=-1", "murders=3"} {
		if err := p.Set(bad); err == nil || !strings.HasPrefix(err.Error(), bad+":") {
			t.Errorf("%s: error is %v", bad, err)
		}
	}
}

// TestTally draws every fault as often as planned, and once more after it found
// nothing to strike; then pauses until there are enough refusals.
func TestTally(t *testing.T) {
	p := Plan{Fenced: 2}
	if err := p.Set("kills=12 resets=3 crashes=1"); err != nil {
		t.Fatal(err)
	}
	tally := newTally(&p)
	random := rand.New(rand.NewPCG(1, 1))
	for i := 0; tally.fenced < p.Fenced; i++ {
		f, ok := tally.draw(random, onConsumers...)
		switch {
		case !ok || !tally.any(onConsumers...):
			t.Fatal("nothing is left, and yet refusals are owed")
		case f == PauseBegin:
			tally.sawFenced(1)
		case !tally.underWay(onConsumers...):
			t.Fatalf("%s was drawn, and yet nothing is under way", f)
		case i%3 == 0:
			tally.putBack(f)
		default:
			tally.strike(f)
		}
	}
	if f, ok := tally.draw(random, onConsumers...); ok {
		t.Errorf("%s was drawn, though all is done", f)
	}
	r := Report{Plan: p}
	r.Struck, r.Fenced = tally.counts()
	missing := r.Missing()
	if len(missing) != 3 || !strings.HasPrefix(missing[0], string(KillHub)+": 0 of 2") || !strings.HasPrefix(missing[1], string(Crash)+": 0 of 1") {
		t.Errorf("missing %q", missing)
	}
}

// TestBroken: programs that are slow break no promise, and what they have not done yet is not lost.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		slow, late bool
		faults     []history.Fault
		want       bool
	}{
		"no finding":               {},
		"slow to end":              {slow: true},
		"behind, and so lost":      {slow: true, late: true, faults: []history.Fault{history.Lost}},
		"behind, and doubled":      {slow: true, late: true, faults: []history.Fault{history.Duplicated}, want: true},
		"behind, and out of order": {slow: true, late: true, faults: []history.Fault{history.Lost, history.OutOfOrder}, want: true},
		"behind, and invented":     {slow: true, late: true, faults: []history.Fault{history.Invented}, want: true},
		"lost":                     {faults: []history.Fault{history.Lost}, want: true},
		"out of order":             {faults: []history.Fault{history.OutOfOrder}, want: true},
		"slow to end, and old":     {slow: true, faults: []history.Fault{history.Stale}, want: true},
	} {
		r := Report{late: c.late}
		if c.slow {
			r.Findings, r.slow = []string{"did not catch up"}, 1
		}
		for _, f := range c.faults {
			r.count(history.Finding{Fault: f})
		}
		if got := r.Broken(); got != c.want {
			t.Errorf("%s: broken %v", name, got)
		}
	}
}

// TestMoments finds the statements of a step, and not those of similar ones.
func TestMoments(t *testing.T) {
	const (
		lock = "\nSELECT pg_current_xact_id()::text FROM \"public\".sluice_checkpoints\nWHERE … \nFOR NO KEY UPDATE"
		move = "\nWITH moved AS (\nUPDATE \"public\".sluice_checkpoints … pg_current_xact_id()::text = $10 …) FROM moved"
	)
	for _, c := range []struct {
		engine     *Engine
		statements [][]string // of one connection
		want       []moment
	}{
		{PostgreSQL, [][]string{{"begin", "SELECT set_config('lock_timeout', $1, true)", lock, "SET LOCAL lock_timeout TO DEFAULT"}}, []moment{begins}},
		{PostgreSQL, [][]string{{move, "COMMIT"}}, []moment{commits}},
		{PostgreSQL, [][]string{{`EXPLAIN INSERT INTO "flights" DEFAULT VALUES; SELECT CASE … END; COPY "flights" ("delay") FROM STDIN (FORMAT binary)`}}, []moment{writes}},
		{PostgreSQL, [][]string{{"SELECT 1 / (pg_current_xact_id()::text = $1)::int", "COMMIT"}}, []moment{commits}},
		{PostgreSQL, [][]string{{"INSERT INTO sluice_dead_letters", "SELECT 1 / (pg_current_xact_id()::text = $1)::int", "COMMIT"}}, []moment{commits}},
		{PostgreSQL, [][]string{{"begin", "UPDATE \"public\".sluice_leases SET expires_at = now()", "COMMIT"}}, []moment{never}},
		{PostgreSQL, [][]string{{"begin", "INSERT INTO \"public\".sluice_checkpoints AS c … DO UPDATE SET … RETURNING epoch", "COMMIT"}}, []moment{never}},
		{MariaDB, [][]string{
			{"START TRANSACTION"}, {"SELECT 1 FROM sluice_checkpoints WHERE namespace = 'n' FOR UPDATE"}, {"SAVEPOINT sluice_A"},
			{"INSERT INTO `flights` (`delay`) VALUES (1)"}, {"UPDATE sluice_checkpoints SET\n sequence_number = 7, event_offset = '', claims = 1,"}, {"COMMIT"},
			{"START TRANSACTION"}, {"\n\tUPDATE sluice_checkpoints SET\n\tclaims = claims + CASE"}, {"COMMIT"},
		}, []moment{never, begins, never, writes, never, commits, never, never, never}},
		{SQLServer, [][]string{
			{"BEGIN"}, {"\n\t\tUPDATE sluice_checkpoints SET updated_at = @p9 WHERE group_key = @p1;\n\t\tDECLARE @found int = @@ROWCOUNT"}, {"INSERT BULK [flights] ([delay] int)"},
			{"\n\t\tDECLARE @level int = @@TRANCOUNT; IF @level = 1 UPDATE sluice_checkpoints SET\n sequence_number = @p2, event_offset = @p3, claims = 1,"}, {"COMMIT"}, {"COMMIT"},
		}, []moment{never, begins, writes, never, commits, never}},
	} {
		momentOf := c.engine.moments()
		for i, statements := range c.statements {
			if got := momentOf(statements); got != c.want[i] {
				t.Errorf("%s: %q: moment %d, want %d", c.engine.Name, statements, got, c.want[i])
			}
		}
	}
}
