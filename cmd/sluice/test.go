package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

const aboutTest = `Run the tests in pipeline files: each names an event, and what becomes of it. See the key
tests: sluice help pipeline tests. No server, no database and no secret is needed: variables
that are not set get a value that is valid in their place.

A value in a test is compared as the type of its column reads it: 5 and 5.0 are the same
number, times are compared as moments (without an offset in UTC), JSON without regard to spaces
and the order of keys, bytes as text or base64. null is NULL or no value. Columns that a test
does not name are not compared.

The exit code is 1 if a test fails, if a file is invalid, or if there are no tests. --json
prints a line of JSON for each test.`

// testFlags are the flags and the totals of test.
type testFlags struct {
	json          bool
	width         int
	tests, failed int
	invalid       []string
}

func (a *app) test() *cobra.Command {
	flags := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test PIPELINE.yaml...",
		Short: "Run the tests in pipeline files, without any server",
		Long:  aboutTest,
		Example: `  sluice test flights.yaml
  sluice test pipelines/*.yaml --json`,
		Args: needs(1, 0, "name the files: pass PIPELINE.yaml"),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			return a.runTest(ctx, flags, args)
		}),
	}
	cmd.Flags().BoolVar(&flags.json, "json", false, "print JSON, one line for each test")
	return cmd
}

func (a *app) runTest(ctx context.Context, flags *testFlags, files []string) error {
	flags.width = term.Columns(os.Stdout)
	if flags.width == 0 {
		flags.width = 120
	}
	for _, path := range files {
		f, _, err := pipeline.LoadOffline(path)
		if err != nil {
			fmt.Fprintln(a.screen, notThere(err, "check the path"))
			flags.invalid = append(flags.invalid, path)
			continue
		}
		before := flags.tests
		for _, p := range f.Stages {
			if err := a.testStage(ctx, flags, p, len(f.Stages) > 1); err != nil {
				return err
			}
		}
		if flags.tests == before {
			fmt.Fprintf(a.screen, "%s: has no tests\n", path)
		}
	}
	if !flags.json && flags.tests > 0 {
		fmt.Fprintf(a.out, "%s: %s ok, %s failed\n", humanize.Plural(flags.tests, "test", "tests"), humanize.Count(flags.tests-flags.failed), humanize.Count(flags.failed))
	}
	switch {
	case len(flags.invalid) > 0:
		return &verdictError{exitFailed, "invalid files: " + strings.Join(flags.invalid, ", ")}
	case flags.failed > 0:
		return &verdictError{exitFailed, fmt.Sprintf("failed tests: %d", flags.failed)}
	case flags.tests == 0:
		return &verdictError{exitFailed, "no tests: write them below the key tests of a pipeline file, see sluice help pipeline tests"}
	}
	return nil
}

func (a *app) testStage(ctx context.Context, flags *testFlags, p *pipeline.Pipeline, several bool) error {
	for _, t := range p.Tests() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		list, err := t.Run(ctx)
		flags.tests++
		if err != nil || len(list) > 0 {
			flags.failed++
		}
		stage := ""
		if several {
			stage = p.Name
		}
		if flags.json {
			err = results.TestJSON(a.out, t, stage, list, err)
		} else {
			a.printTest(t, stage, list, err, flags.width)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mostDifferences is how many differences of a test are printed.
const mostDifferences = 20

// printTest prints one line for a test, and one for each difference.
func (a *app) printTest(t *pipeline.Test, stage string, list []pipeline.Difference, failed error, width int) {
	name := t.Name
	if stage != "" {
		name = stage + ": " + name
	}
	verdict := "ok    "
	if failed != nil || len(list) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(a.out, "%s  %s:%d  %s\n", verdict, t.File, t.Line, name)
	const indent = "        "
	if failed != nil {
		term.Wrap(a.out, indent, "cannot run: "+failed.Error(), width)
	}
	left := len(list) - mostDifferences
	list = list[:min(len(list), mostDifferences)]
	longest := 0
	for i := range list {
		longest = max(longest, utf8.RuneCountInString(results.Subject(&list[i])))
	}
	for i := range list {
		d := &list[i]
		subject := results.Subject(d)
		text := fmt.Sprintf("want %s, got %s", d.Want, d.Got)
		if d.Source != "" {
			text += " (" + d.Source + ")"
		}
		begin := indent
		if longest > 0 {
			begin += subject + strings.Repeat(" ", longest-utf8.RuneCountInString(subject)) + "  "
		}
		term.Wrap(a.out, begin, text, width)
	}
	if left > 0 {
		fmt.Fprintf(a.out, "%s%s\n", indent, humanize.Plural(left, "more difference", "more differences"))
	}
}
