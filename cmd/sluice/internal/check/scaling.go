package check

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// scalingChecks are the checks of a target of an autoscaler.
var scalingChecks = []check[*scalingSystem]{
	{"scaling.count", "The target says how many instances there are, and that is within the rule's limits: the scaler compares it with the decision.", 0, (*scalingSystem).checkCount},
	{"scaling.repeat", "Setting the number of instances that there are changes nothing: an action may be carried out twice.", scalingWithin, (*scalingSystem).checkRepeat},
	{"scaling.change", "After a change the target says the number that was requested, and takes less than five minutes: the scaler gives up an attempt then.", 2*scalingWithin + time.Minute, (*scalingSystem).checkChange},
}

// scalingWithin is the scaler's bound of an attempt.
const scalingWithin = 5 * time.Minute

// scalingSystem is a target that is checked.
type scalingSystem struct {
	opts   Options
	name   string
	target autoscale.Target
	limits autoscale.Limits
	made   *Ledger
}

// OpenScaling makes a [System] of an autoscaler's target, with the limits of its rule. It does not
// close the target.
func OpenScaling(name string, target autoscale.Target, limits autoscale.Limits, opts Options) System {
	return &scalingSystem{opts: opts, name: name, target: target, limits: limits}
}

// Name implements [System].
func (s *scalingSystem) Name() string { return "target of " + s.name }

func (s *scalingSystem) Checks() []Check       { return bind(s, scalingChecks) }
func (s *scalingSystem) Close(context.Context) {}

func (s *scalingSystem) Creates() []string {
	list := []string{"a request for the number of instances that there are, which changes nothing"}
	if s.opts.Scale {
		list = append(list, fmt.Sprintf("one instance more or less, between %d and %d, for some minutes; the number is set back at the end", s.limits.Min, s.limits.Max))
	}
	return list
}

// Rights implements [System]. Whether the number may be changed is known by scaling.repeat only.
func (s *scalingSystem) Rights(ctx context.Context) []Right {
	r := Right{Name: "read the number of instances"}
	_, err := s.target.Instances(ctx)
	r.grant(err, "correct what the error names; docs/autoscale.md says which role each target needs")
	return []Right{r}
}

// Prepare implements [System].
func (s *scalingSystem) Prepare(_ context.Context, made *Ledger) error {
	s.made = made
	return nil
}

func (s *scalingSystem) checkCount(ctx context.Context) Finding {
	n, err := s.target.Instances(ctx)
	switch {
	case err != nil:
		return failed("reading the number of instances", err)
	case n < s.limits.Min || n > s.limits.Max:
		return tolerated("there are %d instances, and the rule's limits are %d to %d", n, s.limits.Min, s.limits.Max).next("the autoscaler will bring the number within its limits: correct min and max if it should not")
	}
	return held("there are %d instances", n)
}

func (s *scalingSystem) checkRepeat(ctx context.Context) Finding {
	n, err := s.target.Instances(ctx)
	if err != nil {
		return failed("reading the number of instances", err)
	}
	if err := s.target.Scale(ctx, n); err != nil {
		return failed(fmt.Sprintf("setting the number of instances to %d, as it is", n), err)
	}
	return s.expect(ctx, n)
}

// expect compares the number of instances with what was requested.
func (s *scalingSystem) expect(ctx context.Context, want int) Finding {
	switch n, err := s.target.Instances(ctx); {
	case err != nil:
		return failed("reading the number of instances", err)
	case n != want:
		return differed("%d instances were requested, and there are %d", want, n).next("look whether something else scales the target too")
	}
	return held("there are %d instances, as requested", want)
}

func (s *scalingSystem) checkChange(ctx context.Context) Finding {
	if !s.opts.Scale {
		return skipped("without --scale the number of instances is not changed")
	}
	before, err := s.target.Instances(ctx)
	if err != nil {
		return failed("reading the number of instances", err)
	}
	other := before + 1
	if other > s.limits.Max {
		other = before - 1
	}
	if other < s.limits.Min || other > s.limits.Max {
		return undecided("there are %d instances, and the limits of %d to %d allow neither one more nor one less", before, s.limits.Min, s.limits.Max).next("widen min and max, or bring the number within them")
	}
	s.made.Add(fmt.Sprintf("the change of %s from %d instances", s.Name(), before), func(ctx context.Context) error { return s.restore(ctx, before) })
	var took [2]time.Duration
	for i, to := range []int{other, before} {
		attempt, cancel := context.WithTimeout(ctx, scalingWithin)
		began := time.Now()
		err := s.target.Scale(attempt, to)
		took[i] = time.Since(began)
		cancel()
		if err != nil {
			return failed(fmt.Sprintf("scaling from %d to %d instances", before, to), err)
		}
		if o := s.expect(ctx, to); o.State != OK {
			return o
		}
	}
	return held("%d instances, and then %d again", other, before).with(
		Measure{fmt.Sprintf("from %d to %d instances", before, other), took[0].Seconds(), "s"},
		Measure{fmt.Sprintf("from %d to %d instances", other, before), took[1].Seconds(), "s"},
	)
}

// restore sets the number of instances back. A change that Azure has accepted and that is not
// complete in time counts as done.
func (s *scalingSystem) restore(ctx context.Context, to int) error {
	if n, err := s.target.Instances(ctx); err == nil && n == to {
		return nil
	}
	err := s.target.Scale(ctx, to)
	if err == nil {
		return nil
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	if n, countErr := s.target.Instances(again); countErr == nil && n == to {
		return nil
	}
	return err
}
