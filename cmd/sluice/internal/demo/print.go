package demo

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/internal/humanize"
)

// summary is the text at the end of a demo: counts, then sentences.
type summary struct{ strings.Builder }

// count adds a line with a number.
func (s *summary) count(n int64, what string) {
	fmt.Fprintf(s, "%12s  %s\n", humanize.Count(n), what)
}

// print writes the summary below an empty line.
func (s *summary) print(w io.Writer) error {
	_, err := io.WriteString(w, "\n"+s.String())
	return err
}

// Print prints the audit of [Demo]. First and took are the times from the start of the process to
// the first commit and to the last event. Retry says how to retry the dead letters.
func (a *Audit) Print(w io.Writer, first, took time.Duration, retry string) error {
	var s summary
	s.count(a.Sent, "events in the "+a.Noun)
	s.count(a.Written, "rows in the table flights")
	s.count(a.DeadLetters, "dead letters")
	if a.Waiting > 0 {
		s.count(a.Waiting, "not processed yet: start the demo again to continue")
	}
	if a.Exact() {
		fmt.Fprintf(&s, "\n%s = %s + %s, each exactly once: checked by partition and sequence number.\n",
			humanize.Count(a.Sent), humanize.Count(a.Written), humanize.Count(a.DeadLetters))
	}
	if first > 0 {
		fmt.Fprintf(&s, "The first event was committed after %s, the last one after %s.\n", humanize.Span(first), humanize.Span(took))
	}
	if a.DeadLetters > 0 {
		s.WriteString(retry)
	}
	return s.print(w)
}

// Print prints the audit of [Stages]. Repeats is [Stages.Repeats], took the time from the start of
// the process to the last event.
func (a *StagesAudit) Print(w io.Writer, once bool, repeats int64, took time.Duration) error {
	var s summary
	s.count(a.Sent, "flights in the first hub")
	s.count(a.Counted, "flights counted in the table")
	s.count(a.DeadLetters, "dead letters")
	s.count(a.Rows, "rows in the table airports, one for each airport and hour")
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
	return s.print(w)
}

// atFullRate is how long a demo must last at the configured rate before its share of the
// throughput means anything: at the start, partitions are acquired one per second.
const atFullRate = 5 * time.Second

// PrintDocuments prints the audit of [Cosmos], whose account has ru RU per second.
func (a *Audit) PrintDocuments(w io.Writer, t Throughput, ru int) error {
	var s summary
	s.count(a.Sent, "events in the hub")
	s.count(a.Written, "documents in the container, each read back")
	s.count(a.DeadLetters, "dead letters")
	if a.Waiting > 0 {
		s.count(a.Waiting, "not processed yet: start the demo again to continue")
	}
	a.printExact(&s)
	if seconds := t.Took.Seconds(); seconds > 0 {
		fmt.Fprintf(&s, "%s RU in %s", humanize.Count(int64(math.Round(t.RU))), humanize.Span(t.Took))
		if t.RU > atFullRate.Seconds()*float64(ru) {
			fmt.Fprintf(&s, ", %.1f %% of the %s RU/s of the account, %s documents/s",
				100*t.RU/seconds/float64(ru), humanize.Count(ru), humanize.Count(int64(float64(a.Written)/seconds)))
		}
		fmt.Fprintf(&s, "; %s throttled (429).\n", humanize.Plural(t.Throttled, "request was", "requests were"))
	}
	return s.print(w)
}

// printExact prints that all documents are right, if they are.
func (a *Audit) printExact(s *summary) {
	if a.Exact() && a.DeadLetters == 0 {
		fmt.Fprintf(s, "\n%s = %s, each exactly once: every document was compared with what was sent.\n",
			humanize.Count(a.Sent), humanize.Count(a.Written))
	}
}

// Verdict is an error if a document is wrong or written twice, and with once also if one is
// missing.
func (a *Audit) Verdict(once bool) error {
	switch {
	case a.Faults > 0:
		return fmt.Errorf("not exactly once: %s", a.First)
	case once && a.DeadLetters > 0:
		return fmt.Errorf("%s, and there must be none", humanize.Plural(a.DeadLetters, "dead letter", "dead letters"))
	case once && !a.Exact():
		return fmt.Errorf("%s not written", humanize.Plural(a.Waiting, "document is", "documents are"))
	}
	return nil
}

// PrintScaling prints the audit and the decision log of [Autoscale].
func (a *Audit) PrintScaling(w io.Writer, log []autoscale.Record, state State, second time.Time) error {
	var s summary
	s.count(a.Sent, "events in the hub")
	s.count(a.Written, "documents in the container, each read back")
	if a.Waiting > 0 {
		s.count(a.Waiting, "not written when the demo was stopped")
	}
	if state.Rewritten > 0 {
		s.count(state.Rewritten, "written again with the same contents, after a worker had lost its partition")
	}
	f := summarize(log)
	s.count(int64(len(log)), "decisions and outcomes in the log")
	s.count(int64(f.ups), "times scaled up, by one worker")
	s.count(int64(f.downs), "times scaled down")
	s.count(int64(f.most), "workers at most")
	s.count(int64(f.worst), "events of lag at most")
	a.printExact(&s)
	if !f.above.IsZero() && second.After(f.decided) {
		fmt.Fprintf(&s, "From the first lag above the threshold to the decision, with a reading every 500 ms: %s; to a second worker with partitions of its own: %s more.\n",
			humanize.Span(f.decided.Sub(f.above)), humanize.Span(second.Sub(f.decided)))
	}
	return s.print(w)
}

// scaling is the summary of a decision log.
type scaling struct {
	ups, downs, most int
	worst            float64
	above, decided   time.Time // of the first lag above the threshold, and of the decision to scale; zero: there was none
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
			if s.above.IsZero() && f.Last > UpperLag {
				s.above = f.Newest
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
