package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
)

// Exit codes of `sluice autoscale run --once --detailed-exit-code`, beside 0 if there was
// nothing to scale, and 1 if something failed.
const (
	exitScaled     = 3
	exitInProgress = 4
	exitLeased     = 5
)

// onceFlags are the flags of --once.
type onceFlags struct {
	wait     time.Duration
	detailed bool
}

var onceDefaults = onceFlags{wait: 5 * time.Minute}

func (o *onceFlags) add(f *pflag.FlagSet) {
	f.DurationVar(&o.wait, "wait", onceDefaults.wait, "with --once: how long actions may take; one that takes longer is continued by the next run")
	f.BoolVar(&o.detailed, "detailed-exit-code", false, "with --once: exit with 3 if it has scaled, 4 if an action is still in progress, 5 if another process works on the resource; otherwise all of these are 0")
}

// scaleOnce shows what the rounds have done, and returns what the exit code must say: of
// several files, the first that applies of failed, in progress, scaled, and leased.
func (a *app) scaleOnce(rounds []config.Round, detailed bool) error {
	var errs []error
	scaled, pending, leased := false, false, false
	for _, r := range rounds {
		errs = append(errs, r.Err)
		if r.Leased != nil {
			leased = true
			fmt.Fprintf(a.out, "%s: nothing done: %v\n", r.Resource, r.Leased)
		}
		if r.Done == nil {
			continue
		}
		for _, p := range r.Done.Unread {
			errs = append(errs, fmt.Errorf("%s: metric %s could not be read: %s", r.Resource, p.Metric, p.Cause))
		}
		for _, record := range r.Done.Records {
			fmt.Fprintf(a.out, "%s: %s, %s instances: %s\n", r.Resource, record.Kind, change(record), record.Reason)
			switch record.Kind {
			case autoscale.ActionSucceeded:
				scaled = true
			case autoscale.ActionFailed:
				errs = append(errs, fmt.Errorf("%s: %s", r.Resource, record.Reason))
			}
		}
		if p := r.Done.Pending; p != nil {
			pending = true
			fmt.Fprintf(a.out, "%s: in progress: action %d, from %d to %d instances, decided %s ago; the next run continues it\n",
				r.Resource, p.Number, p.From, p.To, time.Since(p.Decided).Round(time.Second))
		}
	}
	err := errors.Join(errs...)
	switch {
	case err != nil || !detailed:
		return err
	case pending:
		return &verdictError{exitInProgress, "an action is in progress: the next run continues it"}
	case scaled:
		return &verdictError{exitScaled, "scaled"}
	case leased:
		return &verdictError{exitLeased, "another process works on the resource"}
	}
	return nil
}
