package web

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

const (
	// snapshotEvery is the time between two snapshots.
	snapshotEvery = time.Second
	// rateSeconds is how many seconds a rate is an average of.
	rateSeconds = 5
)

// snapshot is the state of a pipeline at one moment, rendered once for all browsers
// that watch.
type snapshot struct {
	number  int64
	shape   int64 // the snapshot in which partitions were last added or removed
	summary []byte
	rows    []renderedRow
}

// renderedRow is a row in JSON, and the snapshot in which it last changed.
type renderedRow struct {
	row
	text    []byte
	changed int64
}

// row is a partition. It is comparable: what has not changed is not sent again.
type row struct {
	ID           string  `json:"id"`
	State        string  `json:"state"` // reading, paused, stopped, stalled, elsewhere, free, unknown
	Owner        string  `json:"owner,omitempty"`
	Epoch        int64   `json:"epoch"`
	Renewed      int64   `json:"renewed,omitempty"` // Unix milliseconds
	Position     int64   `json:"position"`          // -1 before the first event, -2 before there is one, -3 while not known
	Checkpointed int64   `json:"checkpointed,omitempty"`
	Lag          int64   `json:"lag"` // -1 while not known
	Rate         float64 `json:"rate"`
	InFlight     int64   `json:"inFlight,omitempty"`
	Letters      int     `json:"letters,omitempty"`
	Error        string  `json:"error,omitempty"`
}

// summary is the rest of a snapshot: what is not about a single partition.
type summary struct {
	Now       int64          `json:"now"` // Unix milliseconds
	Streaming bool           `json:"streaming"`
	Done      int64          `json:"done"`
	Rate      float64        `json:"rate"`
	Lag       int64          `json:"lag"`  // -1 while not known
	Seen      int            `json:"seen"` // partitions of which it is known
	InFlight  int64          `json:"inFlight"`
	Cost      float64        `json:"cost"`    // RU a second
	Charged   bool           `json:"charged"` // the store charges RU
	Retries   int64          `json:"retries"`
	Redriven  int64          `json:"redriven"`
	Parked    int64          `json:"parked"`
	Dead      int            `json:"dead"` // -1 while not known
	Retrying  int            `json:"retrying"`
	Here      int            `json:"here"`
	Elsewhere int            `json:"elsewhere"`
	Free      int            `json:"free"`
	Unknown   int            `json:"unknown"` // partitions whose owner could not be read
	Paused    int            `json:"paused"`
	Known     bool           `json:"known"` // the stores were read
	Seconds   *columns       `json:"seconds,omitempty"`
	Trouble   []trouble      `json:"trouble"`
	Events    []journalEntry `json:"events"`
	Runs      []runJSON      `json:"runs"`
}

// columns are a meter's seconds in the form that the charts need.
type columns struct {
	Start    int64     `json:"from"` // Unix seconds
	Done     []int64   `json:"done"`
	Bytes    []int64   `json:"bytes"`
	Letters  []int64   `json:"letters"`
	Retries  []int64   `json:"retries"`
	Lag      []int64   `json:"lag"`
	InFlight []int64   `json:"inFlight"`
	Cost     []float64 `json:"cost"`
	Took     []float64 `json:"took"` // mean of the commits, in ms
	Longest  []float64 `json:"longest"`
}

// history makes columns of the newest n seconds of a meter.
func history(m *Meter, n int64) *columns {
	list, from := m.past(n)
	c := &columns{Start: from.Unix()}
	for i := range list {
		s := &list[i]
		c.Done, c.Bytes, c.Letters, c.Retries = append(c.Done, s.Done), append(c.Bytes, s.Bytes), append(c.Letters, s.DeadLetters), append(c.Retries, s.Retries)
		c.Lag, c.InFlight, c.Cost = append(c.Lag, s.Lag), append(c.InFlight, s.InFlight), append(c.Cost, s.Cost)
		mean := time.Duration(0)
		if s.Commits > 0 {
			mean = s.Took / time.Duration(s.Commits)
		}
		c.Took, c.Longest = append(c.Took, milliseconds(mean)), append(c.Longest, milliseconds(s.Longest))
	}
	return c
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// render makes the next snapshot.
func (v *view) render(s *shown, now time.Time) {
	k := v.newest()
	t := summary{Now: now.UnixMilli(), Lag: -1, Dead: -1, Retrying: k.deadLetters.retry, Known: !k.firstRead.IsZero(), Runs: s.retries.list(now)}
	if k.deadLetters.perPartition != nil {
		t.Dead = k.deadLetters.dead
	}
	stats := meterStats{events: []journalEntry{}}
	if s.Meter != nil {
		stats = s.Meter.stats()
		t.Seconds = history(s.Meter, rateSeconds)
		for i := range t.Seconds.Done {
			t.Rate += float64(t.Seconds.Done[i]) / rateSeconds
			t.Cost += t.Seconds.Cost[i] / rateSeconds
		}
	}
	t.Streaming, t.Done, t.InFlight, t.Events = stats.AtLeastOnce, stats.Done(), int64(stats.InFlight), stats.events
	t.Retries, t.Redriven, t.Parked, t.Charged = stats.Retries, stats.Redriven, stats.DeadLetters, stats.Cost > 0
	rows := k.rows(&s.Pipeline, &stats, now)
	for i := range rows {
		r := &rows[i]
		if r.Lag >= 0 {
			t.Lag = max(t.Lag, 0) + r.Lag
			t.Seen++
		}
		switch r.State {
		case "elsewhere":
			t.Elsewhere++
		case "free":
			t.Free++
		case "unknown":
			t.Unknown++
		case "paused":
			t.Paused++
			t.Here++
		default:
			t.Here++
		}
	}
	var recent share
	if s.Meter != nil {
		last, _ := s.Meter.past(60)
		recent = shareOf(last, stats.AtLeastOnce)
	}
	t.Trouble = troubles(&k, rows, v.warnings(), recent)
	text, err := json.Marshal(t)
	if err != nil { // plain data always can be
		panic(err)
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	v.snapshot = v.snapshot.next(rows, text)
	close(v.next)
	v.next = make(chan struct{})
}

// next makes the snapshot that follows; rows that have not changed are reused.
func (f *snapshot) next(rows []row, tick []byte) *snapshot {
	next := &snapshot{number: 1, shape: 1, summary: tick, rows: make([]renderedRow, len(rows))}
	if f != nil {
		next.number, next.shape = f.number+1, f.shape
		if !slices.EqualFunc(f.rows, rows, func(a renderedRow, b row) bool { return a.ID == b.ID }) {
			next.shape = next.number
		}
	}
	for i, r := range rows {
		if f != nil && i < len(f.rows) && f.rows[i].row == r {
			next.rows[i] = f.rows[i]
			continue
		}
		text, err := json.Marshal(r)
		if err != nil { // plain data always can be
			panic(err)
		}
		next.rows[i] = renderedRow{row: r, text: text, changed: next.number}
	}
	return next
}

// unknown is the position of a partition until it has been read.
const unknown = -3

// rows are the partitions, in order.
func (k *known) rows(p *Pipeline, stats *meterStats, now time.Time) []row {
	ids := slices.Clone(k.topic.Partitions)
	if len(ids) == 0 {
		for id := range stats.Partitions { // the log has not answered yet
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, byNumber)
	paused := p.paused()
	rows := make([]row, len(ids))
	for i, id := range ids {
		l, c := k.leases[id], k.progress[id]
		h, held := stats.Partitions[id]
		r := row{ID: id, Owner: l.Owner, Epoch: max(l.Epoch, c.Epoch), State: "free", Position: driver.Unset.Sequence, Lag: -1, Letters: k.deadLetters.perPartition[id]}
		if k.progress == nil {
			r.Position = unknown
		}
		if c.Partition != "" {
			r.Position, r.Checkpointed = c.Position.Sequence, c.Updated.UnixMilli()
		}
		if !l.Renewed.IsZero() {
			r.Renewed = l.Renewed.UnixMilli()
		}
		switch {
		case held:
			r.State, r.Epoch, r.Error = "reading", h.Epoch, reason(h.Stopped)
			r.Renewed = max(r.Renewed, h.Renewed.UnixMilli())
			r.Position = max(r.Position, h.Checkpoint.Sequence)
			r.Rate, r.InFlight = h.Rate, int64(h.InFlight)
			switch {
			case h.Stopped != nil:
				r.State = "stopped"
			case paused[id]:
				r.State = "paused"
			case h.Stall.Stalled():
				r.State, r.Error = "stalled", reason(h.Stall.Err)
			}
		case l.expires.After(now):
			r.State = "elsewhere"
		case k.leases == nil || k.failed[leaseStore] != "":
			r.State = "unknown"
		default:
			r.Owner = ""
		}
		switch {
		case c.Partition != "" && !k.described.IsZero() && c.Incarnation != k.topic.Incarnation:
			// What was done is of a topic that is gone: all that this one holds waits.
			r.Lag = k.lag(id, driver.Unset.Sequence, &h, false, p.Meter)
		case r.Position != unknown:
			r.Lag = k.lag(id, r.Position, &h, held && !paused[id], p.Meter)
		}
		rows[i] = r
	}
	return rows
}

// lag is how far a partition is behind: as the consumer here reports it, or by
// the log's bounds, whichever is newer.
func (k *known) lag(id string, position int64, h *partitionstate.Partition, reading bool, m *Meter) int64 {
	b := k.bounds[id]
	if reading && h.Lag >= 0 && !b.time.After(h.LagAt) {
		return h.Lag
	}
	if b.time.IsZero() {
		if h.LagAt.IsZero() {
			return -1
		}
		return h.Lag
	}
	lag := b.Lag(sluice.Position{Sequence: position})
	if m != nil && !h.LagAt.After(b.time) {
		m.state.SetLag(id, lag)
	}
	return lag
}

// byNumber sorts "10" after "9".
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

func oldestFirst(ids []string, at func(string) time.Time) {
	slices.SortStableFunc(ids, func(a, b string) int { return at(a).Compare(at(b)) })
}
