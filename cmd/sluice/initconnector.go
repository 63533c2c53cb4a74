package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/connector"
	"github.com/sluice-go/sluice/cmd/sluice/internal/guess"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// connectorSampled are the flags of guessFlags that go with --from-connector.
var connectorSampled = []string{"sample", "encoding", "delimiter", "from-topic", "from", "events"}

// takeConnector checks the flags that go with --from-connector.
func (g *guessFlags) takeConnector(cmd *cobra.Command) error {
	f := cmd.Flags()
	for _, name := range []string{"source", "target", "database", "partitions", "table", "from-hub", "namespace", "websocket", "proxy", "consumer-group"} {
		if f.Changed(name) {
			return usage.Errorf("--%s does not go with --from-connector, whose configuration says it", name)
		}
	}
	for _, name := range connectorSampled {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return usage.Errorf("--%s: must not be empty", name)
		}
	}
	switch {
	case f.Changed("from") && g.peek.source.Topic == "":
		return usage.Errorf("--from goes with --from-topic")
	case f.Changed("from") && g.sample != "":
		return usage.Errorf("--sample and --from exclude each other")
	case f.Changed("events") && !f.Changed("from"):
		return usage.Errorf("--events goes with --from")
	case g.peek.limit < 1 || g.peek.limit > maxPeekLimit:
		return usage.Errorf("--events %d: must be 1 to %d", g.peek.limit, maxPeekLimit)
	}
	if err := g.input.apply(cmd, &g.destination); err != nil || !f.Changed("from") {
		return err
	}
	return g.peek.checkLog(f, "from-hub", "from-topic")
}

// initConnector writes a file that does what a sink of Kafka Connect does.
func (a *app) initConnector(ctx context.Context, cmd *cobra.Command, path, from string, force bool, flags *guessFlags) error {
	if err := flags.takeConnector(cmd); err != nil {
		return err
	}
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	sink, err := readConnector(from)
	if err != nil {
		return err
	}
	cfg := &connector.Config{Topic: flags.peek.source.Topic}
	sampled := flags.sample != "" || cmd.Flags().Changed("from")
	if n := len(sink.Topics()); sampled && cfg.Topic == "" && n > 1 {
		return usage.Errorf("--sample has records of one topic, the connector reads %d: pass --from-topic NAME too", n)
	}
	var samples guess.Samples
	if sampled {
		if samples, err = a.connectorSamples(ctx, cmd, flags, cfg); err != nil {
			return interruptedOr(ctx, err)
		}
		if file, ok := samples.(*guess.File); ok {
			defer file.Close()
		}
	}
	out, err := sink.Translate(cfg)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	var tried *guess.Tried
	if samples != nil {
		known := &guess.Config{Name: pipelineName(path), System: pipeline.Kafka, Lookup: connector.Lookup}
		if tried, err = guess.Try(ctx, samples, known, out.Text); err != nil {
			return interruptedOr(ctx, err)
		}
	}
	if err := writeNew(path, out.Text, force); err != nil {
		return err
	}
	return a.reportConnector(path, out, tried)
}

// readConnector reads a configuration, - is standard input.
func readConnector(path string) (*connector.Sink, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	data, err := io.ReadAll(io.LimitReader(file, connector.MaxSize+1))
	if err != nil {
		return nil, err
	}
	sink, err := connector.Read(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sink, nil
}

// connectorSamples looks at records, and fills in the fields that they have.
func (a *app) connectorSamples(ctx context.Context, cmd *cobra.Command, flags *guessFlags, cfg *connector.Config) (guess.Samples, error) {
	choice := newfile.Choice{Source: "kafka", Target: "insert", Database: "sqlite", Partitions: "all"}
	var read atomic.Int64
	samples, err := a.samples(ctx, flags, &choice, &read)
	if err != nil {
		return nil, err
	}
	g, err := guess.Make(ctx, samples, &guess.Config{Name: "samples", Choice: choice, System: pipeline.Kafka})
	if err != nil {
		return nil, err
	}
	tables := g.Choice.Filled.Tables
	if len(tables) != 1 {
		return nil, errors.New("the samples have records of several shapes: pass those of one table")
	}
	cfg.Fields = tables[0].Columns
	if !slices.ContainsFunc(cfg.Fields, func(c newfile.Column) bool { return len(c.From) > len("body") && c.From[:len("body")] == "body" }) {
		return nil, errors.New("the samples have no fields that can be read without a schema registry: leave them out, and write the columns")
	}
	return samples, nil
}

// reportConnector says what the file has, what it has not, and what is next.
func (a *app) reportConnector(path string, out *connector.Translation, tried *guess.Tried) error {
	width := term.Columns(os.Stdout)
	for _, part := range []struct {
		title string
		notes []connector.Note
	}{
		{"Translated:", out.Done},
		{"Not there, or in another way:", out.Different},
		{"Without a counterpart and without an effect on rows:", out.Needless},
		{"To do first, the file does not run before:", out.Todo},
	} {
		if len(part.notes) == 0 {
			continue
		}
		fmt.Fprintln(a.out, part.title)
		for _, n := range part.notes {
			term.Wrap(a.out, "  "+humanize.Shorten(n.Key, 60)+"  ", n.Text, max(width, 80))
		}
		fmt.Fprintln(a.out)
	}
	if tried != nil {
		tried.Report(a.out, width)
	}
	fmt.Fprintf(a.out, "%s is written. Next:\n", path)
	for _, v := range out.Variables {
		if os.Getenv(v) == "" && v != "TODO" {
			fmt.Fprintf(a.out, "  export %s=…\n", v)
		}
	}
	stages := out.Stages
	if len(stages) == 0 {
		stages = []string{""}
	}
	fmt.Fprintf(a.out, "  sluice check %s --connect\nand, once the connector is stopped, so that nothing is lost and nothing is written twice:\n", path)
	for _, stage := range stages {
		if stage != "" {
			stage = " --stage " + stage
		}
		fmt.Fprintf(a.out, "  sluice move --from-group %s --config %s%s --apply\n", humanize.Shorten(out.Group, 200), path, stage)
	}
	_, err := fmt.Fprintf(a.out, "  sluice run %s\n", path)
	return err
}
