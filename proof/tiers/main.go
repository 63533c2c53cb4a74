//go:build unix

// Command tiers runs the project's tests in tiers: what a newcomer runs, everything else, and what
// takes hours.
//
//	go run ./proof/tiers test                      make test
//	go run ./proof/tiers proof                     make proof
//	go run ./proof/tiers proof -stage kafka,race   make proof STAGE=kafka,race
//	go run ./proof/tiers soak                      make soak
//	go run ./proof/tiers list                      the stages of all
//	go run ./proof/tiers install                   what make proof needs beyond Go
//
// stages.go has the stages as data. Each stage runs to its end whatever becomes of the others, and
// one summary follows. verdict.go says which failures are repeated, flaky.go what becomes of a test
// that then passes. Output goes to bin/TIER/STAGE.log, results to bin/TIER.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	red, err := dispatch(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tiers:", err)
		os.Exit(2)
	}
	if red {
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) (red bool, err error) {
	if len(args) == 0 {
		return false, errors.New("say what to run: test, proof, soak, list or install")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	only := flags.String("stage", "", "names of stages, separated by commas")
	if err := flags.Parse(args[1:]); err != nil {
		return false, err
	}
	switch name := args[0]; name {
	case "list":
		list(os.Stdout)
		return false, nil
	case "install":
		r, err := newRun("proof", tiers["proof"], true)
		if err != nil {
			return false, err
		}
		r.install(ctx)
		return len(r.outcomes["install"].red) > 0, nil
	case "test", "proof", "soak":
		stages, err := selected(tiers[name], *only)
		if err != nil {
			return false, err
		}
		r, err := newRun(name, stages, *only == "")
		if err != nil {
			return false, err
		}
		return r.all(ctx)
	default:
		return false, fmt.Errorf("%q is unknown: test, proof, soak, list or install", name)
	}
}

// selected returns the stages with these names, or all.
func selected(stages []stage, names string) ([]stage, error) {
	if names == "" {
		return stages, nil
	}
	var found []stage
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no stage %q: there are %s", name, strings.Join(namesOf(stages), ", "))
		}
		found = append(found, stages[i])
	}
	return found, nil
}

func namesOf(stages []stage) []string {
	names := make([]string, len(stages))
	for i, s := range stages {
		names[i] = s.name
	}
	return names
}
