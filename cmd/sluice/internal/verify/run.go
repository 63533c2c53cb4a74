package verify

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"
)

const (
	rightsWithin  = time.Minute
	prepareWithin = time.Minute
	checkWithin   = time.Minute
	// giveUpAfter is how long a check that ignores the end of its context is waited for.
	giveUpAfter = 10 * time.Second
)

// Runner runs the checks of some systems.
type Runner struct {
	Systems []System
	// Confirm is called with what will be created, before anything is. An error ends the run.
	// Default: nothing is asked.
	Confirm func(plan []string) error
	// Progress is called before each check, with its number from 1. Default: nothing.
	Progress func(system, check string, number, of int)
}

// Run runs the checks and removes what they made. It does so also when ctx ends: then the checks that
// did not run are undecided. The only error is that of Confirm.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	report := &Report{Began: time.Now().UTC().Truncate(time.Second)}
	var plan []string
	for _, s := range r.Systems {
		limited, cancel := context.WithTimeout(ctx, rightsWithin)
		part := SystemReport{System: s.Name(), Rights: s.Rights(limited)}
		cancel()
		report.Systems = append(report.Systems, part)
		for _, line := range s.Creates() {
			plan = append(plan, s.Name()+": "+line)
		}
	}
	switch {
	case report.unreachable():
		r.skipAll(report, "another system cannot be reached", "")
	case report.missing():
		r.skipAll(report, "a right is missing", "get the rights that are listed as missing, and run the command again")
	case ctx.Err() != nil:
		r.skipAll(report, "interrupted", "run the command again")
	default:
		if r.Confirm != nil {
			if err := r.Confirm(plan); err != nil {
				return nil, err
			}
		}
		made := &Ledger{}
		r.checks(ctx, report, made)
		report.left(made.Remove(ctx))
	}
	report.Took = time.Since(report.Began).Round(time.Millisecond)
	return report, nil
}

func (r *Runner) skipAll(report *Report, why, next string) {
	for i, s := range r.Systems {
		outcome := undecided("%s", why).next("%s", next)
		if unreached := report.Systems[i].unreached(); unreached != nil {
			outcome = undecided("cannot be reached").next("%s", unreached.Next)
		}
		for _, c := range s.Checks() {
			report.Systems[i].add(c, outcome, 0)
		}
	}
}

func (r *Runner) checks(ctx context.Context, report *Report, made *Ledger) {
	of, number := 0, 0
	for _, s := range r.Systems {
		of += len(s.Checks())
	}
	for i, s := range r.Systems {
		unprepared := bounded(ctx, prepareWithin, func(ctx context.Context) Outcome {
			if err := s.Prepare(ctx, made); err != nil {
				return failed("preparation", err)
			}
			return Outcome{}
		})
		for _, c := range s.Checks() {
			number++
			began, outcome := time.Now(), unprepared
			switch {
			case ctx.Err() != nil:
				outcome = undecided("interrupted").next("run the command again")
			case unprepared.Verdict == "":
				if r.Progress != nil {
					r.Progress(s.Name(), c.Name, number, of)
				}
				outcome = bounded(ctx, cmp.Or(c.Bound, checkWithin), c.Run)
			}
			report.Systems[i].add(c, outcome, time.Since(began))
		}
	}
}

// bounded runs fn on a goroutine of its own. An outcome of a check whose time is up says so, whatever
// it made of the errors that followed from it. A check that does not return at all is left behind:
// then the process is about to end, and the outcome reports it.
func bounded(ctx context.Context, within time.Duration, fn func(context.Context) Outcome) Outcome {
	limited, cancel := context.WithTimeoutCause(ctx, within, errBound)
	defer cancel()
	done := make(chan Outcome, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- undecided("the check itself failed: %v at %s", v, oneLine(errors.New(string(debug.Stack()))))
			}
		}()
		done <- fn(limited)
	}()
	var outcome Outcome
	select {
	case outcome = <-done:
	case <-limited.Done():
		select {
		case outcome = <-done:
		case <-time.After(giveUpAfter):
			return undecided("no answer within %v, and the check did not end", within)
		}
	}
	if limited.Err() == nil || outcome.Verdict == Held || outcome.Verdict == Skipped {
		return outcome
	}
	if ctx.Err() != nil {
		return undecided("interrupted").next("run the command again")
	}
	if outcome.Verdict == Differed || outcome.Verdict == Tolerated {
		return outcome
	}
	return undecided("not finished within %v: %s", within, outcome.Found).next("run the command again; if it stays so, look at the system's health and at the network between")
}

// closeWithin closes a system's connections, for a bounded time.
func closeWithin(s System) {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
	defer cancel()
	s.Close(ctx)
}

var errBound = errors.New("the check's time is up")
