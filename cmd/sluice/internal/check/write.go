package check

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
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

// Run runs the checks and removes what they made. It does so also when ctx ends: then the checks
// that did not run are undecided. The only error is that of Confirm.
func (r *Runner) Run(ctx context.Context) (list List, err error) {
	var plan []string
	for _, s := range r.Systems {
		limited, cancel := context.WithTimeout(ctx, rightsWithin)
		list = append(list, rightFindings(s.Name(), s.Rights(limited), Undecided)...)
		cancel()
		for _, line := range s.Creates() {
			plan = append(plan, s.Name()+": "+line)
		}
	}
	switch {
	case list.Count(Failed) > 0:
		return r.notRun(list, "another system cannot be reached", ""), nil
	case list.Count(Undecided) > 0:
		return r.notRun(list, "a right is missing", "get the rights that are listed as missing, and run the command again"), nil
	case ctx.Err() != nil:
		return r.notRun(list, "interrupted", rerun), nil
	case r.Confirm != nil:
		if err := r.Confirm(plan); err != nil {
			return nil, err
		}
	}
	made := &Ledger{}
	list = append(list, r.checks(ctx, made)...)
	if err := made.Remove(ctx); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			list = append(list, found(Undecided, "removal", "%s", line).next("remove it by hand"))
		}
	}
	return list, nil
}

// notRun adds that the checks did not run, of each system that does not say it itself.
func (r *Runner) notRun(list List, why, next string) List {
	for _, s := range r.Systems {
		if !slices.ContainsFunc(list, func(f Finding) bool { return f.Check == "reached" && f.Thing == s.Name() }) {
			list = append(list, found(Undecided, "assumptions", "not checked: %s", why).next("%s", next).subject(s.Name()))
		}
	}
	return list
}

func (r *Runner) checks(ctx context.Context, made *Ledger) (list List) {
	of, number := 0, 0
	for _, s := range r.Systems {
		of += len(s.Checks())
	}
	for _, s := range r.Systems {
		unprepared := judged(ctx, prepareWithin, func(ctx context.Context) Finding {
			if err := s.Prepare(ctx, made); err != nil {
				return failed("preparation", err)
			}
			return Finding{}
		})
		for _, c := range s.Checks() {
			number++
			began, f := time.Now(), unprepared
			switch {
			case ctx.Err() != nil:
				f = undecided("interrupted").next(rerun)
			case unprepared.State == "":
				if r.Progress != nil {
					r.Progress(s.Name(), c.Name, number, of)
				}
				f = judged(ctx, cmp.Or(c.Bound, checkWithin), c.Run)
			}
			if f.State == "" {
				f = undecided("the check gave no verdict")
			}
			f.Thing, f.Check, f.Assumes, f.Seconds = s.Name(), c.Name, c.Assumes, time.Since(began).Round(time.Millisecond).Seconds()
			list = append(list, f)
		}
	}
	return list
}

const rerun = "run the command again"

// judged runs a check. A finding of one whose time is up says so, whatever it made of the errors
// that followed from it.
func judged(ctx context.Context, within time.Duration, fn func(context.Context) Finding) Finding {
	limited, cancel := context.WithTimeoutCause(ctx, within, errBound)
	defer cancel()
	f, returned := bounded(limited, giveUpAfter, func(ctx context.Context) (f Finding) {
		defer func() {
			if v := recover(); v != nil {
				f = undecided("the check itself failed: %v at %s", v, debug.Stack())
			}
		}()
		return fn(ctx)
	})
	switch {
	case !returned:
		return undecided("no answer within %v, and the check did not end", within)
	case limited.Err() == nil, f.State == OK, f.State == Skipped:
		return f
	case ctx.Err() != nil:
		return undecided("interrupted").next(rerun)
	case f.State == Failed, f.State == Warning:
		return f
	}
	return undecided("not finished within %v: %s", within, f.Found).next("run the command again; if it stays so, look at the system's health and at the network between")
}

// closeWithin closes a system's connections, for a bounded time.
func closeWithin(s System) {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
	defer cancel()
	s.Close(ctx)
}

var errBound = errors.New("the check's time is up")
