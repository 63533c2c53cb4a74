package demo

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Print prints the audit of [Stages]. Repeats is [Stages.Repeats], took the time from the start of
// the process to the last event.
func (a *StagesAudit) Print(w io.Writer, once bool, repeats int64, took time.Duration) error {
	var s flights.Summary
	s.Count(a.Sent, "flights in the first hub")
	s.Count(a.Counted, "flights counted in the table")
	s.Count(a.DeadLetters, "dead letters")
	s.Count(a.Rows, "rows in the table airports, one for each airport and hour")
	switch {
	case a.Exact():
		fmt.Fprintf(&s, "\n%s = %s + %s, and every row is the one computed directly from the flights.\n",
			humanize.Count(a.Sent), humanize.Count(a.Counted), humanize.Count(a.DeadLetters))
	case !once:
		s.WriteString("\nStopped before the end: start the demo again to continue.\n")
	}
	if repeats > 0 {
		fmt.Fprintf(&s, "%s between the stages, and skipped.\n", humanize.Plural(repeats, "flight was duplicated", "flights were duplicated"))
	}
	fmt.Fprintf(&s, "The last event was processed after %s.\n", humanize.Span(took))
	return s.Print(w)
}

// atFullRate is how long a demo must last at the configured rate before its share of the
// throughput means anything: at the start, partitions are acquired one per second.
const atFullRate = 5 * time.Second

// PrintDocuments prints the audit of [Cosmos], whose account has ru RU per second.
func PrintDocuments(w io.Writer, a *flights.Audit, t Throughput, ru int) error {
	var s flights.Summary
	s.Count(a.Sent, "events in the hub")
	s.Count(a.Written, "documents in the container, each read back")
	s.Count(a.DeadLetters, "dead letters")
	if a.Waiting > 0 {
		s.Count(a.Waiting, "not processed yet: start the demo again to continue")
	}
	printExact(&s, a)
	if seconds := t.Took.Seconds(); seconds > 0 {
		fmt.Fprintf(&s, "%s RU in %s", humanize.Count(int64(math.Round(t.RU))), humanize.Span(t.Took))
		if t.RU > atFullRate.Seconds()*float64(ru) {
			fmt.Fprintf(&s, ", %.1f %% of the %s RU/s of the account, %s documents/s",
				100*t.RU/seconds/float64(ru), humanize.Count(ru), humanize.Count(int64(float64(a.Written)/seconds)))
		}
		fmt.Fprintf(&s, "; %s throttled (429).\n", humanize.Plural(t.Throttled, "request was", "requests were"))
	}
	return s.Print(w)
}

// printExact prints that all documents are right, if they are.
func printExact(s *flights.Summary, a *flights.Audit) {
	if a.Exact() && a.DeadLetters == 0 {
		fmt.Fprintf(s, "\n%s = %s, each exactly once: every document was compared with what was sent.\n",
			humanize.Count(a.Sent), humanize.Count(a.Written))
	}
}

// Verdict is an error if a document is wrong or written twice, and with once also if one is
// missing, or there is a dead letter.
func Verdict(a *flights.Audit, once bool) error {
	err := a.Verdict(once, "document is not written", "documents are not written")
	if err == nil && once && a.DeadLetters > 0 {
		err = fmt.Errorf("%s, and there must be none", humanize.Plural(a.DeadLetters, "dead letter", "dead letters"))
	}
	return err
}

// PrintScaling prints the audit and the decision log of [Autoscale].
func PrintScaling(w io.Writer, a *flights.Audit, log []autoscale.Record, state State, second time.Time) error {
	var s flights.Summary
	s.Count(a.Sent, "events in the hub")
	s.Count(a.Written, "documents in the container, each read back")
	if a.Waiting > 0 {
		s.Count(a.Waiting, "not written when the demo was stopped")
	}
	if state.Rewritten > 0 {
		s.Count(state.Rewritten, "written again with the same contents, after a worker had lost its partition")
	}
	f := summarize(log)
	s.Count(int64(len(log)), "decisions and outcomes in the log")
	s.Count(int64(f.ups), "times scaled up, by one worker")
	s.Count(int64(f.downs), "times scaled down")
	s.Count(int64(f.most), "workers at most")
	s.Count(int64(f.worst), "events of lag at most")
	printExact(&s, a)
	if !f.exceeded.IsZero() && second.After(f.decided) {
		fmt.Fprintf(&s, "From the first lag above the threshold to the decision, with a reading every 500 ms: %s; to a second worker with partitions of its own: %s more.\n",
			humanize.Span(f.decided.Sub(f.exceeded)), humanize.Span(second.Sub(f.decided)))
	}
	return s.Print(w)
}

// scaling is the summary of a decision log.
type scaling struct {
	ups, downs, most  int
	worst             float64
	exceeded, decided time.Time // of the first lag above the threshold, and of the decision to scale; zero: there was none
}

func summarize(log []autoscale.Record) (s scaling) {
	for _, r := range log {
		s.most = max(s.most, r.Instances)
		switch r.Kind {
		case autoscale.Up:
			if s.ups++; s.ups == 1 {
				s.decided = r.Time
			}
		case autoscale.Down:
			s.downs++
		}
		for _, f := range r.Stats {
			if f.Metric != LagMetric {
				continue
			}
			s.worst = max(s.worst, f.Last)
			if s.exceeded.IsZero() && f.Last > UpperLag {
				s.exceeded = f.Newest
			}
		}
	}
	return s
}

// BacktestResult converts a decision log to what a plot can show.
func BacktestResult(log []autoscale.Record) *backtest.Result {
	r := &backtest.Result{Backlog: LagMetric, Thresholds: []float64{UpperLag, LowerLag}}
	lag := 0.0
	for _, d := range log {
		if d.Kind == autoscale.Up || d.Kind == autoscale.Down {
			r.Rule, r.Decisions = d.Rule, append(r.Decisions, d)
		}
		for _, f := range d.Stats {
			if f.Metric == LagMetric {
				lag = f.Last
			}
		}
		r.Steps = append(r.Steps, backtest.Step{Time: d.Time, Backlog: lag, Instances: d.Instances})
	}
	return r
}
