package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/web"
)

// ledger is what has become of partition 0's events, in memory: SQL ledgers
// are tested where they are.
type ledger struct {
	checkpoint int64
	entries    []audit.Entry
}

type ledgerView struct {
	ledger
	incarnation string
}

func (l ledger) Open(_ context.Context, topic sluice.Topic, partition string) (audit.View, error) {
	if partition != "0" {
		l = ledger{checkpoint: -1}
	}
	return ledgerView{l, topic.Incarnation}, nil
}

func (v ledgerView) Checkpoint(context.Context) (sluice.Checkpoint, bool, error) {
	c := sluice.Checkpoint{Incarnation: v.incarnation, Position: sluice.Position{Sequence: v.checkpoint}}
	if v.checkpoint >= 0 {
		c.Began = driver.Beginning{After: driver.Origin.Sequence, How: driver.HowStart}
	}
	return c, v.checkpoint >= 0, nil
}

func (v ledgerView) Entries(context.Context) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for _, e := range v.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (ledgerView) Close() error { return nil }

// audited has the dashboard audit by fn.
func (w *world) audited(fn func(context.Context, func(int64)) (*audit.Report, error)) {
	w.t.Helper()
	d, err := web.New([]web.Pipeline{
		{Name: "flights", Group: group, Source: w.hub, Leases: w.leases, Audit: fn},
		{Name: "<b>other</b>", Group: group, Source: w.hub, Leases: w.leases},
	}, &web.Config{Dir: w.t.TempDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.dashboard = d
}

type account struct {
	ID                                                                        string
	Held, Written, Letters, Waiting, Missing, Doubled, Expired, Stray, Events int64
	Checkpoint                                                                *int64
}

type auditAnswer struct {
	Began, Ended, Events int64
	Running              bool
	Error                string
	Report               *struct {
		Level, Headline string
		Partitions      []account
		Total           account
		Faults          []struct {
			Kind, Partition          string
			First, Last, From, Until int64
		}
		More int64
	}
}

const auditPath = "/api/audit?pipeline=flights"

// whole waits for the audit's end.
func (w *world) whole() (so auditAnswer) {
	w.t.Helper()
	await(w.t, "the audit's end", func() bool {
		so = auditAnswer{}
		w.answer(&so, "GET", auditPath, "")
		return !so.Running
	})
	return so
}

func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.hub.Append("0", events("a", "b", "c", "d", "e", "f")...)
	books := ledger{checkpoint: 4, entries: []audit.Entry{{Sequence: 0}, {Sequence: 3}, {Sequence: 3}, {Sequence: 4, DeadLetter: true}}}
	reading, proceed := make(chan struct{}, 4), make(chan struct{})
	w.audited(func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
		progress(3)
		progress(2)
		reading <- struct{}{}
		select {
		case <-proceed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return audit.Run(ctx, w.hub, books, group, &audit.Config{Progress: progress})
	})
	if rec := w.ask("POST", auditPath, "", nil); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("before it runs: %d %s", rec.Code, rec.Body)
	}
	w.serve()
	var so auditAnswer
	await(t, "an audit that begins", func() bool { return w.ask("POST", auditPath, "{}", nil).Code == http.StatusOK })
	<-reading
	if w.answer(&so, "GET", auditPath, ""); !so.Running || so.Events != 3 || so.Began == 0 || so.Report != nil {
		t.Errorf("under way: %+v", so)
	}
	// A second click, here or in another browser, begins nothing.
	if rec := w.ask("POST", auditPath, "{}", nil); rec.Code != http.StatusConflict || !strings.Contains(rec.Body.String(), "under way") {
		t.Errorf("a second at once: %d %s", rec.Code, rec.Body)
	}
	close(proceed)
	so = w.whole()
	r := so.Report
	if r == nil || so.Error != "" || so.Ended < so.Began || so.Events != 6 {
		t.Fatalf("ended: %+v", so)
	}
	if r.Level != "bad" || r.Headline != "Not exact: 2 lost, 1 duplicated, of 6 events." || len(r.Partitions) != 2 || r.More != 0 {
		t.Errorf("report %+v", r)
	}
	p := r.Partitions[0]
	if p.Checkpoint == nil || *p.Checkpoint != 4 || r.Partitions[1].Checkpoint != nil {
		t.Errorf("checkpoints %v, %v", p.Checkpoint, r.Partitions[1].Checkpoint)
	}
	p.Checkpoint = nil
	if want := (account{ID: "0", Held: 6, Written: 2, Letters: 1, Waiting: 1, Missing: 2, Doubled: 1}); p != want {
		t.Errorf("partition 0: %+v, want %+v", p, want)
	}
	if r.Total.Held != 6 || r.Total.Waiting != 1 {
		t.Errorf("in all %+v", r.Total)
	}
	if len(r.Faults) != 2 || r.Faults[0].Kind != "missing" || r.Faults[0].First != 1 || r.Faults[0].Last != 2 || r.Faults[0].From == 0 ||
		r.Faults[1].Kind != "doubled" || r.Faults[1].First != 3 || r.Faults[1].Until == 0 {
		t.Errorf("faults %+v", r.Faults)
	}
	// And once more.
	w.answer(&so, "POST", auditPath, "{}")
	if so = w.whole(); so.Report == nil {
		t.Errorf("again: %+v", so)
	}
}

// TestAuditThatCannotDecide: a partition without a checkpoint is not shown as one without a loss.
func TestAuditThatCannotDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.hub.Append("1", events("a")...)
	w.audited(func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
		return audit.Run(ctx, w.hub, ledger{checkpoint: -1}, group, &audit.Config{Progress: progress})
	})
	w.serve()
	await(t, "an audit that begins", func() bool { return w.ask("POST", auditPath, "{}", nil).Code == http.StatusOK })
	if r := w.whole().Report; r == nil || r.Level != "warn" || !strings.HasPrefix(r.Headline, "Can't tell: partition 1 has no checkpoint: ") {
		t.Errorf("report %+v", r)
	}
}

func TestAuditNamesTheFirstFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	var books ledger
	for n := range int64(400) {
		w.hub.Append("0", events("x")...)
		if n%2 == 0 {
			books.entries = append(books.entries, audit.Entry{Sequence: n})
		}
	}
	books.checkpoint = 399
	w.audited(func(ctx context.Context, progress func(int64)) (*audit.Report, error) {
		return audit.Run(ctx, w.hub, books, group, &audit.Config{Progress: progress, MaxFaults: 150})
	})
	w.serve()
	await(t, "an audit that begins", func() bool { return w.ask("POST", auditPath, "{}", nil).Code == http.StatusOK })
	if r := w.whole().Report; r == nil || len(r.Faults) != 100 || r.Faults[99].First != 199 || r.More != 100 {
		t.Errorf("report %+v", r)
	}
}

func TestAuditThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	w.audited(func(context.Context, func(int64)) (*audit.Report, error) {
		return nil, errors.New("the consumer group <b>x</b>\nis not\tthere")
	})
	w.serve()
	await(t, "an audit that begins", func() bool { return w.ask("POST", auditPath, "{}", nil).Code == http.StatusOK })
	if so := w.whole(); so.Error != "the consumer group <b>x</b> is not there" || so.Report != nil {
		t.Errorf("got %+v", so)
	}
	if rec := w.ask("GET", auditPath, "", nil); strings.ContainsAny(rec.Body.String(), "<>") {
		t.Errorf("markup on the way: %s", rec.Body)
	}
}

// TestAuditEndsWithTheServer: the audit never ends by itself, and the server's
// end waits for it.
func TestAuditEndsWithTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	ended := make(chan struct{})
	t.Cleanup(func() { // after that of serve
		select {
		case <-ended:
		default:
			t.Error("the audit outlives the server")
		}
	})
	w.audited(func(ctx context.Context, _ func(int64)) (*audit.Report, error) {
		defer close(ended)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	w.serve()
	await(t, "an audit that begins", func() bool { return w.ask("POST", auditPath, "{}", nil).Code == http.StatusOK })
}

func TestAuditOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	w.audited(func(context.Context, func(int64)) (*audit.Report, error) { return nil, errors.New("not to be called") })
	for _, method := range []string{"GET", "POST"} {
		rec := w.ask(method, "/api/audit?pipeline=%3Cb%3Eother%3C/b%3E", "", nil)
		var so struct{ Error string }
		if err := json.Unmarshal(rec.Body.Bytes(), &so); err != nil || rec.Code != http.StatusNotFound || !strings.Contains(so.Error, "can't be audited") {
			t.Errorf("%s: %d %s", method, rec.Code, rec.Body)
		}
	}
	rec := w.ask("POST", auditPath, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	if rec.Code != http.StatusForbidden {
		t.Errorf("from another site: %d %s", rec.Code, rec.Body)
	}
	page := w.ask("GET", "/audit", "", nil).Body.String()
	if strings.Count(page, "data-auditable") != 1 || strings.Contains(page, "<b>other") || !strings.Contains(page, `id="audit-now"`) {
		t.Errorf("the page: %s", page)
	}
}

var _ audit.Ledger = ledger{}
