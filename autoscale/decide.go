package autoscale

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Resource is something that is scaled: its name, its metrics, its rule and its
// limits.
type Resource struct {
	Name    string
	Metrics []string // all metrics that the rule may use
	Rule    Rule
	Limits  Limits
}

// Decide makes the decision at the time now, from the resource's state alone: the
// same state, rule and time give the same record. It trims m's windows, and sets
// m.Pending to the action decided on, if there is one. sinceAction is the time
// since the last action by another clock, Never if that clock has seen none; the
// shorter of the two times counts. r's limits must have their defaults. Decide
// changes m and must not be called concurrently with the same m.
func (r *Resource) Decide(m *ResourceState, now time.Time, sinceAction time.Duration) Record {
	l := r.Limits
	m.clampFuture(now)
	at := m.windowEnd(now, l.Interval)
	s := Situation{
		Now:         at,
		Windows:     map[string]*Window{},
		Missing:     map[string]string{},
		Instances:   m.Instances,
		SinceAction: min(elapsed(m.LastAction(), now), sinceAction),
	}
	m.Records++
	record := Record{Resource: r.Name, Sequence: m.Records, Time: now, Kind: Hold, Instances: m.Instances, Wanted: m.Instances, Proposed: m.Instances}
	for _, name := range r.Metrics {
		w := m.window(name)
		w.Trim(now, now.Sub(at)+l.Window)
		missing := w.missing(now, l)
		if missing == "" {
			s.Windows[name] = w
		} else {
			s.Missing[name] = missing
		}
		record.Stats = append(record.Stats, w.stats(name, missing))
	}
	if text, ok := r.Rule.(fmt.Stringer); ok {
		record.Rule = text.String()
	}
	hold := func(cause Cause, format string, args ...any) Record {
		record.Cause, record.Reason = cause, fmt.Sprintf(format, args...)
		return record
	}

	switch reported := elapsed(m.Reported, now); {
	case m.Reported.IsZero():
		return hold(CauseUnknown, "the scaler has not reported the number of instances yet")
	case m.Pending != nil:
		return hold(CauseInProgress, "action %d, from %d to %d instances, is in progress", m.Pending.Number, m.Pending.From, m.Pending.To)
	case reported > l.StaleAfter:
		return hold(CauseUnknown, "the number of instances was last reported %v ago, and is stale after %v", reported.Round(time.Second), l.StaleAfter)
	}
	p := r.propose(s)
	wanted := min(max(p.Instances, l.Min), l.Max)
	record.Proposed = p.Instances
	reason, cause := p.Reason, CauseRule
	if wanted != p.Instances {
		reason += fmt.Sprintf("; proposed %d instances, limited to %d (min %d, max %d)", p.Instances, wanted, l.Min, l.Max)
		cause = CauseLimits
	}
	up := wanted > m.Instances
	switch {
	case wanted == m.Instances:
		return hold(cause, "%s", reason)
	case !up && len(s.Missing) > 0:
		return hold(CauseMissing, "%s; not scaled down while a metric is missing: %s", reason, s.missingList())
	case s.SinceAction <= l.cooldown(up):
		return hold(CauseCooldown, "%s; in cooldown: the last action succeeded %v ago, the cooldown is %v", reason, s.SinceAction.Round(time.Second), l.cooldown(up))
	}
	record.Kind = Down
	if up {
		record.Kind = Up
	}
	m.Actions++
	m.Pending = &Action{Resource: r.Name, Number: m.Actions, From: m.Instances, To: wanted, Decided: now, Reason: reason}
	record.Wanted, record.Action, record.Cause, record.Reason = wanted, m.Actions, cause, reason
	return record
}

// propose calls the rule. A panic becomes a proposal to change nothing.
func (r *Resource) propose(s Situation) (p Proposal) {
	defer func() {
		if r := recover(); r != nil {
			p = Proposal{s.Instances, fmt.Sprintf("the rule panicked, no change: %v", r)}
		}
	}()
	return r.Rule.Propose(s)
}

// windowEnd returns the time at which windows end: the newest value's time if it is
// less than an interval before now, otherwise now. So neither the delay between
// reading and deciding nor a collector's clock that is ahead pushes the oldest
// value out of its window.
func (m *ResourceState) windowEnd(now time.Time, every time.Duration) time.Time {
	var newest time.Time
	latest := now.Add(min(every, maxClockSkew))
	for _, w := range m.Windows {
		for _, v := range slices.Backward(w.Values) {
			if !v.Time.After(latest) {
				if v.Time.After(newest) {
					newest = v.Time
				}
				break
			}
		}
	}
	if now.Sub(newest) < every {
		return newest
	}
	return now
}

// ApplyReport updates the state from a scaler's report. It returns a record of the
// pending action's outcome if the report has it, otherwise nil.
func (m *ResourceState) ApplyReport(report Report, now time.Time) *Record {
	if report.Time.Before(m.Reported) && !m.Reported.After(now) {
		report.Instances, report.Time = m.Instances, m.Reported // an older report, delivered late
	}
	m.Instances, m.Reported = report.Instances, report.Time
	o := report.Outcome
	if o == nil {
		return nil
	}
	newest := m.Actions
	if m.Pending != nil {
		newest = max(newest, m.Pending.Number)
	}
	ahead := o.Number > newest && o.Number-newest <= maxNumberGap
	if ahead {
		// The logic's state was lost, or another program sends actions: the scaler would carry
		// out no action with a lower number.
		m.Actions = o.Number
	}
	if m.Pending == nil || o.Number != m.Pending.Number && !ahead {
		return nil
	}
	a := *m.Pending
	m.Pending = nil
	m.Records++
	record := &Record{Resource: m.Resource, Sequence: m.Records, Time: now, Kind: ActionSucceeded,
		Instances: m.Instances, Wanted: a.To, Proposed: a.To, Action: a.Number}
	switch took := o.Time.Sub(a.Decided).Round(time.Millisecond); {
	case ahead:
		record.Kind = ActionFailed
		record.Reason = fmt.Sprintf("scaling from %d to %d instances failed: the scaler has had action %d already, which this logic has not sent: check whether its state was lost, and who may send to the queue", a.From, a.To, o.Number)
	case !o.OK():
		record.Kind = ActionFailed
		record.Reason = fmt.Sprintf("scaling from %d to %d instances failed, abandoned after %s: %s", a.From, a.To, attempts(o.Attempts), o.Err)
	case a.To > a.From:
		m.LastUp = o.Time
		record.Reason = fmt.Sprintf("scaled from %d to %d instances, %v after the decision, in %s", a.From, a.To, took, attempts(o.Attempts))
	default:
		m.LastDown = o.Time
		record.Reason = fmt.Sprintf("scaled from %d to %d instances, %v after the decision, in %s", a.From, a.To, took, attempts(o.Attempts))
	}
	return record
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// clampFuture replaces times that lie ahead of the clock by now: the clock has been
// set back, and a cooldown then restarts instead of lasting until the clock has
// caught up.
func (m *ResourceState) clampFuture(now time.Time) {
	for _, t := range []*time.Time{&m.LastUp, &m.LastDown, &m.Reported} {
		if t.After(now.Add(maxClockSkew)) {
			*t = now
		}
	}
}

// elapsed returns the time from t to now, at least 0; Never if t is zero.
func elapsed(t, now time.Time) time.Duration {
	if t.IsZero() {
		return Never
	}
	return max(now.Sub(t), 0)
}

// window returns the window of a metric, and adds an empty one if there is none.
func (m *ResourceState) window(metric string) *Window {
	if m.Windows == nil {
		m.Windows = map[string]*Window{}
	}
	w := m.Windows[metric]
	if w == nil {
		w = &Window{}
		m.Windows[metric] = w
	}
	return w
}

// missing returns why a window does not count, or "" if it does.
func (w *Window) missing(now time.Time, l Limits) string {
	switch {
	case w.State == Disabled:
		return "disabled, read at " + timeOfDay(w.Since)
	case w.State == Failed:
		return fmt.Sprintf("reading failed at %s: %s", timeOfDay(w.Since), w.Cause)
	case len(w.Values) == 0:
		return "no value"
	case now.Sub(w.newest()) > l.StaleAfter:
		return "no value since " + timeOfDay(w.newest())
	case len(w.Values) < l.MinPoints:
		return fmt.Sprintf("%d of %d required values", len(w.Values), l.MinPoints)
	}
	return ""
}

func timeOfDay(t time.Time) string { return t.UTC().Format(time.TimeOnly + " UTC") }

func (w *Window) stats(metric, missing string) MetricStats {
	f := MetricStats{Metric: metric, Points: len(w.Values), Newest: w.newest(), Missing: missing}
	if all := w.All(); len(all) > 0 {
		f.Last, f.Average, f.Min, f.Max = all.Newest(), all.Average(), all.Min(), all.Max()
	}
	return f
}

// missingList returns the missing metrics with their reasons, sorted by name.
func (s Situation) missingList() string {
	list := make([]string, 0, len(s.Missing))
	for name, why := range s.Missing {
		list = append(list, name+" ("+why+")")
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
