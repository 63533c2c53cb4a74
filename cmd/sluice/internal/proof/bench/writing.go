//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

// writingBatch is the largest transaction of all contenders: the default of Sluice.
const writingBatch = 4000

// runWriting measures what a database takes, and what is written to it.
func runWriting(ctx context.Context, args []string) error {
	o := options{only: regexp.MustCompile("")}
	flag := flag.NewFlagSet("bench writing", flag.ExitOnError)
	flag.IntVar(&o.batch, "batch", writingBatch, "events of the largest transaction")
	o.define(flag)
	_ = flag.Parse(args) // exits on an error
	if err := o.check(flag); err != nil {
		return err
	}
	r, err := measureWriting(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	r.printWriting(os.Stdout)
	return writeJSON(o.json, r)
}

// measureWriting runs the trials of writing, and writes a line of progress after each run.
func measureWriting(ctx context.Context, o options, progress io.Writer) (*report, error) {
	db := &databases{}
	defer db.close()
	r := newReport()
	return r, measureTrials(ctx, o, db, r, writingTrials, progress)
}

// writingContenders are in the order of the columns.
var writingContenders = []contender{{Name: aloneContender}, {Name: memoryContender}, {Name: sluiceContender}, {Name: handContender}}

func writingTrials(body, partitions int) (list []trial) {
	for _, kind := range []string{"postgres", "mariadb", "sqlite", "sqlserver"} {
		list = append(list, trial{kind, body, partitions, writingContenders})
	}
	return list
}

// printWriting writes a table in Markdown with a line for each trial.
func (r *report) printWriting(w io.Writer) {
	r.printMachine(w)
	fmt.Fprintln(w, "| database | body | connections | database alone, events/s | Sluice from memory | Sluice | by hand | CPU µs an event, consumer: alone, from memory, Sluice, by hand | server: the same | rows a transaction: the same |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|---|---|---|")
	seen := map[string]bool{}
	for _, res := range r.Results {
		if seen[res.trial.String()] {
			continue
		}
		seen[res.trial.String()] = true
		alone := r.find(res.trial, writingContenders[0])
		fmt.Fprintf(w, "| %s | %d B | %d |", res.Database, res.Body, res.Partitions)
		var own, server, rows []string
		for _, c := range writingContenders {
			of := r.find(res.trial, c)
			if of == nil {
				fmt.Fprint(w, " |")
				continue
			}
			fmt.Fprintf(w, " %s", measure.Thousands(of.PerSecond))
			if alone != nil && of != alone {
				fmt.Fprintf(w, ", **%.2f**", of.ratioTo(alone))
			}
			fmt.Fprint(w, " |")
			own = append(own, fmt.Sprintf("%.1f", of.median(func(o *outcome) float64 { return o.ConsumerCPU })))
			server = append(server, fmt.Sprintf("%.1f", of.median(func(o *outcome) float64 { return o.DatabaseCPU })))
			rows = append(rows, fmt.Sprintf("%.0f", of.median(func(o *outcome) float64 { return o.Batch })))
		}
		fmt.Fprintf(w, " %s | %s | %s |\n", strings.Join(own, ", "), strings.Join(server, ", "), strings.Join(rows, ", "))
	}
}

// ratioTo is the median of the ratios of each round, whose runs follow each other.
func (res *result) ratioTo(other *result) float64 {
	list := make([]float64, min(len(res.Runs), len(other.Runs)))
	for i := range list {
		list[i] = res.Runs[i].PerSecond / other.Runs[i].PerSecond
	}
	return measure.Median(list)
}
