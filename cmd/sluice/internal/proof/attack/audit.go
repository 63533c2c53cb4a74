//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// auditing runs the program's own audit, which operators rely on, and checks what it says.
type auditing struct {
	binary, pipeline, dir string
	env                   []string
	runs                  int
	find                  func(string, ...any)
}

// audited is the report of an audit.
type audited struct {
	code  int
	Total struct{ Held, Missing, Doubled, Expired, Stray int64 }
	// Faults are runs of events.
	Faults []struct {
		Kind, Partition string
		First, Last     int64
	}
	Partitions []struct{ Partition, Began, Doubt string }
}

func (a *audited) String() string {
	return fmt.Sprintf("exit status %d, %d missing, %d doubled, %d expired, %d stray, of %d", a.code, a.Total.Missing, a.Total.Doubled, a.Total.Expired, a.Total.Stray, a.Total.Held)
}

// names reports whether the audit calls an event missing.
func (a *audited) names(partition string, sequence int64) bool {
	for _, f := range a.Faults {
		if f.Kind == "missing" && f.Partition == partition && f.First <= sequence && sequence <= f.Last {
			return true
		}
	}
	return false
}

func (a *auditing) run(ctx context.Context) (*audited, error) {
	name := fmt.Sprintf("audit-%d", a.runs)
	a.runs++
	p, err := launch(a.dir, name, a.env, a.binary, "audit", "hub", "--config", a.pipeline, "--json")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("%s did not end within 5 minutes", name))
	defer cancel()
	if err := p.wait(ctx); err != nil {
		p.end(syscall.SIGKILL)
		return nil, err
	}
	r := &audited{code: p.code()}
	if err := json.Unmarshal([]byte(p.stdout()), r); err != nil {
		return nil, fmt.Errorf("%s in %s: %w: %s", name, filepath.Base(a.dir), err, tail(p.stderr()))
	}
	return r, nil
}

// checkAudit audits the attack, and then with one loss, with that loss before the beginning, and
// without a beginning: no audit may say that nothing is lost.
func (w *world) checkAudit(ctx context.Context, done *effects, r *Report) error {
	a := &auditing{binary: w.Binary, pipeline: w.pipeline(), dir: w.Dir, env: w.env(w.clean), find: r.find}
	defer func() { r.detail("audits", "%d", a.runs) }()
	if w.Posts {
		return a.checkPosted(ctx)
	}
	found, err := a.run(ctx)
	if err != nil {
		return err
	}
	duplicated, lost := r.Duplicated > 0, r.Lost > 0
	want := 0
	if duplicated || lost {
		want = 1
	}
	if found.code != want && !r.late || (found.Total.Missing > 0) != lost && !r.late || (found.Total.Doubled > 0) != duplicated || found.Total.Expired > 0 || found.Total.Stray > 0 {
		r.find("the audit says: %v, and %d events are lost and %d duplicated", found, r.Lost, r.Duplicated)
	}
	for _, p := range found.Partitions {
		if p.Began != "start" || p.Doubt != "" {
			r.find("the audit says that partition %s began by %q, and doubts: %q", p.Partition, p.Began, p.Doubt)
		}
	}
	if lost || duplicated || r.late {
		return nil // what is planted would hide among others
	}
	partition, sequence := done.middle()
	if partition == "" {
		r.lack("no row whose loss an audit could be asked for")
		return nil
	}
	steps := []struct {
		what, statement string
		code            int
		named           bool
	}{
		{"the row is gone", fmt.Sprintf("DELETE FROM flights WHERE hub_partition = '%s' AND sequence_number = %d", partition, sequence), 1, true},
		{"the record begins behind it", fmt.Sprintf("UPDATE sluice_checkpoints SET began_sequence = %d WHERE %s = '%s'", sequence, w.Engine.partition, partition), 3, false},
		{"no record", "UPDATE sluice_checkpoints SET began_how = ''", 3, false},
	}
	for _, s := range steps {
		if _, err := w.db.ExecContext(ctx, s.statement); err != nil {
			return err
		}
		if found, err = a.run(ctx); err != nil {
			return err
		}
		if found.code != s.code || found.names(partition, sequence) != s.named {
			r.find("event %d of partition %s was made lost: %s, and the audit says: %v", sequence, partition, s.what, found)
		}
	}
	return nil
}

// checkPosted audits a pipeline of which only the receiver's database shows what became of the
// events.
func (a *auditing) checkPosted(ctx context.Context) error {
	found, err := a.run(ctx)
	if err == nil && (found.code != 3 || len(found.Faults) > 0) {
		a.find("the audit of posted events says: %v, want exit status 3", found)
	}
	return err
}

// middle returns the event of a row from the middle of a partition.
func (e *effects) middle() (partition string, sequence int64) {
	for p, rows := range e.rows {
		if len(rows) > 2 && (partition == "" || p < partition) {
			partition, sequence = p, rows[len(rows)/2].sequence
		}
	}
	return partition, sequence
}
