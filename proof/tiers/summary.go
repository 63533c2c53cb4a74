//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// colour is the word for what became of a stage.
func (o *outcome) colour() string {
	switch {
	case len(o.red) > 0:
		return "RED"
	case len(o.flaky) > 0:
		return "flaky"
	case o.took == 0 && o.skipped != "":
		return "skipped"
	default:
		return "ok"
	}
}

// counts are the numbers of tests, if there are any.
func (o *outcome) counts() string {
	if o.tests+o.left == 0 {
		return ""
	}
	return fmt.Sprintf(", %d tests passed, %d skipped", o.tests, o.left)
}

// summary prints what became of each stage. A test that is flaky for the second time is red.
func (r *run) summary() {
	var flaky []flake
	for _, o := range r.outcomes {
		flaky = append(flaky, o.flaky...)
	}
	twice := r.flakes.repeated(flaky, time.Now())
	fmt.Fprintf(r.out, "\n%-16s %8s %8s  %-8s %7s %8s\n", "stage", "seconds", "budget", "result", "passed", "skipped")
	for _, name := range append([]string{"install"}, namesOf(r.stages)...) {
		o := r.outcomes[name]
		if o == nil {
			continue
		}
		for _, f := range o.flaky {
			for _, again := range twice {
				if f.name() == again {
					o.red = append(o.red, again+": flaky for the second time within "+fmt.Sprint(rememberedRuns)+" runs: mend it, or put it in quarantine (flaky.go) with a reason and a day")
				}
			}
		}
		budget := time.Duration(0)
		for _, s := range r.stages {
			if s.name == name {
				budget = s.budget
			}
		}
		over := ""
		if budget > 0 && o.took > budget {
			over = "  over its budget"
		}
		fmt.Fprintf(r.out, "%-16s %8.0f %8s  %-8s %7s %8s%s\n", name, o.took.Seconds(), seconds(budget), o.colour(), number(o.tests), number(o.left), over)
		for _, line := range o.red {
			fmt.Fprintf(r.out, "    RED    %s\n", line)
		}
		for _, f := range o.flaky {
			fmt.Fprintf(r.out, "    flaky  %s: failed, then passed alone (the %s time); pressure %s\n", f.name(), ordinal(f.Repeats), f.Pressure)
		}
		if o.skipped != "" {
			fmt.Fprintf(r.out, "    skipped %s\n", o.skipped)
		}
		if r.tier != "test" { // there the reason is always the same
			slices.Sort(o.skips)
			for _, line := range o.skips {
				fmt.Fprintf(r.out, "    skipped %s\n", line)
			}
		}
	}
	for _, q := range quarantine {
		fmt.Fprintf(r.out, "quarantine: %s until %s: %s\n", q.test, q.lastDay, q.reason)
	}
	fmt.Fprintf(r.out, "%-16s %8.0f\n", "all", time.Since(r.began).Seconds())
}

// save writes what became of each test, and the flaky ones.
func (r *run) save() error {
	var flaky []flake
	for _, o := range r.outcomes {
		flaky = append(flaky, o.flaky...)
	}
	rec := &record{Tree: r.tree, Packages: r.results}
	if tree() != r.tree {
		rec.Tree = "" // the source has changed meanwhile: nobody knows what passed
	}
	text, err := json.MarshalIndent(rec, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile("bin/"+r.tier+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	if len(flaky) == 0 && (r.tier != "proof" || !r.whole) {
		return nil // the other tiers and single stages would make a flaky test look old
	}
	return r.flakes.add(pastRun{Time: r.began, Tier: r.tier, Flaky: flaky})
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", d.Seconds())
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
