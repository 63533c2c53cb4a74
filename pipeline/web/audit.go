package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/audit"
)

// faultsShown is how many runs of events with faults a page names.
const faultsShown = 100

// audits holds the latest audit of one pipeline. One runs at a time.
type audits struct {
	mu     sync.Mutex
	latest auditJSON
}

// auditJSON is the latest audit.
type auditJSON struct {
	Began   int64       `json:"began,omitempty"` // Unix milliseconds, as all times here; none before the first
	Ended   int64       `json:"ended,omitempty"`
	Running bool        `json:"running"`
	Events  int64       `json:"events"` // read so far
	Error   string      `json:"error,omitempty"`
	Report  *reportJSON `json:"report,omitempty"`
}

// reportJSON is an [audit.Report] as the page shows it.
type reportJSON struct {
	Level      string           `json:"level"` // good, warn, bad
	Headline   string           `json:"headline"`
	Partitions []accountJSON    `json:"partitions"`
	Total      accountJSON      `json:"total"`
	Skipped    int64            `json:"skipped"`
	Removed    int64            `json:"removed"`
	Repeats    int64            `json:"repeats"`
	Unclear    int64            `json:"unclear"`
	Ahead      int64            `json:"ahead"`
	Faults     []auditFaultJSON `json:"faults"`
	More       int64            `json:"more"` // events with faults that are in none of them
}

// accountJSON is what became of a partition's events.
type accountJSON struct {
	ID         string `json:"id"`
	Held       int64  `json:"held"`
	Checkpoint *int64 `json:"checkpoint,omitempty"` // none if there is none
	Written    int64  `json:"written"`
	Letters    int64  `json:"letters"`
	Waiting    int64  `json:"waiting"`
	Missing    int64  `json:"missing"`
	Doubled    int64  `json:"doubled"`
	Expired    int64  `json:"expired"`
	Stray      int64  `json:"stray"`
}

type auditFaultJSON struct {
	Kind      audit.FaultKind `json:"kind"`
	Partition string          `json:"partition"`
	First     int64           `json:"first"`
	Last      int64           `json:"last"`
	From      int64           `json:"from,omitempty"` // when the first was enqueued
	Until     int64           `json:"until,omitempty"`
}

func account(id string, c *audit.Count) accountJSON {
	return accountJSON{
		ID: id, Held: c.Held, Written: c.Written, Letters: c.DeadLetters, Waiting: c.Waiting,
		Missing: c.Faults[audit.Lost], Doubled: c.Faults[audit.Duplicated], Expired: c.Faults[audit.Expired], Stray: c.Faults[audit.Stray],
	}
}

func reported(r *audit.Report) *reportJSON {
	c := &r.Total
	out := &reportJSON{
		Level: "bad", Headline: r.Headline(), Partitions: []accountJSON{}, Total: account("", c), Faults: []auditFaultJSON{},
		Skipped: c.Skipped, Removed: c.Removed, Repeats: c.Deduplicated, Unclear: c.Unclear, Ahead: c.Ahead, More: r.UnlistedEvents,
	}
	switch {
	case r.Exact():
		out.Level = "good"
	case r.Undecided():
		out.Level = "warn"
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		a := account(p.ID, &p.Count)
		if p.Checkpoint >= 0 {
			a.Checkpoint = &p.Checkpoint
		}
		out.Partitions = append(out.Partitions, a)
	}
	for i, f := range r.Faults {
		if i >= faultsShown {
			out.More += f.Events()
			continue
		}
		out.Faults = append(out.Faults, auditFaultJSON{Kind: f.Kind, Partition: f.Partition, First: f.First, Last: f.Last, From: stamp(f.From), Until: stamp(f.Until)})
	}
	return out
}

// begin begins an audit unless one is under way.
func (a *audits) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest.Running {
		return false
	}
	a.latest = auditJSON{Began: time.Now().UnixMilli(), Running: true}
	return true
}

func (a *audits) now() auditJSON {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest
}

// read notes how many events were read. Partitions are read at once, so a
// smaller number may come after a larger one.
func (a *audits) read(events int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest.Events = max(a.latest.Events, events)
}

func (a *audits) end(r *audit.Report, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest.Running, a.latest.Ended = false, time.Now().UnixMilli()
	if err != nil {
		a.latest.Error = strings.Join(strings.Fields(reason(err)), " ")
		return
	}
	a.latest.Report = reported(r)
}

// audit runs the audit that has begun.
func (d *Dashboard) audit(ctx context.Context, s *shown) {
	r, err := s.Audit(ctx, s.audits.read)
	s.audits.end(r, err)
	if err != nil {
		d.cfg.Log.Warn("dashboard: audit failed", "pipeline", s.Name, "error", err)
		return
	}
	d.cfg.Log.Info("dashboard: audit finished", "pipeline", s.Name, "result", r.Headline())
}

func (s *shown) auditable(w http.ResponseWriter) bool {
	if s.Audit == nil {
		fail(w, http.StatusNotFound, errors.New(cmp.Or(s.Unaudited, "this pipeline can't be audited here")))
	}
	return s.Audit != nil
}

// serveAudit answers with the latest audit.
func (d *Dashboard) serveAudit(w http.ResponseWriter, _ *http.Request, s *shown) {
	if s.auditable(w) {
		answer(w, s.audits.now())
	}
}

// serveAuditNow starts an audit. It ends with [Dashboard.Run] at the latest.
func (d *Dashboard) serveAuditNow(w http.ResponseWriter, r *http.Request, s *shown) {
	switch {
	case !s.auditable(w):
	case !d.running.Load():
		fail(w, http.StatusServiceUnavailable, errors.New("the dashboard does not run"))
	case !s.audits.begin():
		fail(w, http.StatusConflict, errors.New("an audit is under way already"))
	default:
		d.cfg.Log.Info("dashboard: audit started", "pipeline", s.Name, "from", remote(r))
		now := s.audits.now()
		d.toAudit <- s // which has room for each pipeline once
		answer(w, now)
	}
}
