package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/guess"
	"github.com/sluice-go/sluice/cmd/sluice/internal/peek"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/trial"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

const aboutTry = `Say what a pipeline would do with real events: the rows, deletes and dead letters, what is
left out, and for each column how many values are there, missing or wrong. Nothing is written
and nothing is consumed. Events are the newest --events of the pipeline's own log, of all
partitions together, read as sluice peek reads them; with --start the first ones from there.
With --sample they are those of a file: lines of sluice peek --json, or records as sluice send
reads them, each the body of an event.

If the database answers, values are also tried against the columns of the tables that exist:
what these would change is refused. The command says whether it did so. --without-database
leaves that out. With --sample the file's variables need not be set. What a newer version of a
row does, a statement and the receiver of messages are not tried.

The exit code is 1 if an event would become a dead letter, or if the database's tables do not
fit the file, so that the pipeline would not start. --json prints a line of JSON for each
event: outcome is rows, deleted, cleared (all rows of the table are deleted), skipped,
dead_letter, or another kind of target; rows has the values, without those that are missing.`

type tryFlags struct {
	peek            peekFlags // the log, and which events
	sample          string
	destination     upload.Destination // how the sample is read
	input           inputFlags
	rows            int
	failed, json    bool
	decoded         bool
	withoutDatabase bool
}

// Bounds of flags of try.
const (
	defaultRows = 3
	maxRows     = 1_000_000
	databaseFor = 10 * time.Second // the check of its tables
)

func (a *app) try() *cobra.Command {
	var flags tryFlags
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "try PIPELINE.yaml [STAGE]",
		Short: "Say what a pipeline would do with real events, and write nothing",
		Long:  aboutTry,
		Example: `  sluice try flights.yaml
  sluice try stages.yaml clean --start "24h ago" --events 10000 --failed
  sluice try flights.yaml --sample flights.csv
  sluice peek flights.yaml --limit 1000 --json > events.ndjson
  sluice try flights.yaml --sample events.ndjson --decoded --json`,
		Args: cobra.MaximumNArgs(2),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			if err := flags.take(cmd, args); err != nil {
				return err
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			return a.runTry(ctx, &flags)
		}),
	}
	f := cmd.Flags()
	p := &flags.peek
	configFlag(f, &p.config)
	stageFlag(f, &p.stage)
	f.StringVar(&flags.sample, "sample", "", "`file` of events, or - for standard input, instead of the log")
	f.IntVar(&p.limit, "events", sampleEvents, "largest `number` of events")
	f.StringSliceVar(&p.partitions, "partition", nil, "a `partition`; can be repeated (default all)")
	f.StringVar(&p.start, "start", "", "`position` of the first event, as in sluice peek (default: the newest events)")
	f.StringVar(&p.group, "consumer-group", "", "`name` of the consumer group of the hub to read in")
	f.BoolVar(&flags.decoded, "decoded", false, "bodies of --sample are as the pipeline decodes them")
	f.BoolVar(&flags.withoutDatabase, "without-database", false, "do not look at the tables that exist")
	f.IntVar(&flags.rows, "rows", defaultRows, "`number` of rows to show")
	f.BoolVar(&flags.failed, "failed", false, "show only the events that would become dead letters, each with its body")
	f.BoolVar(&flags.json, "json", false, "print JSON, one line for each event")
	flags.input.add(f)
	return cmd
}

// take checks flags and arguments.
func (t *tryFlags) take(cmd *cobra.Command, args []string) error {
	f, p := cmd.Flags(), &t.peek
	if err := p.takeFile(f, args); err != nil {
		return err
	}
	if _, err := fileOf(p.config, nil); err != nil {
		return err
	}
	for _, names := range []struct {
		refused bool
		list    []string
		text    string
	}{
		{t.sample != "", []string{"partition", "start", "consumer-group"}, "is for events of the log: leave out --sample"},
		{t.sample == "", []string{"encoding", "delimiter", "decoded"}, "goes with --sample"},
		{t.json || t.failed, []string{"rows"}, "is for the summary: leave out --json and --failed"},
	} {
		if i := slices.IndexFunc(names.list, f.Changed); names.refused && i >= 0 {
			return usage.Errorf("--%s %s", names.list[i], names.text)
		}
	}
	most := maxPeekLimit
	if t.sample != "" {
		most = guess.MostRecords
		if !f.Changed("events") {
			p.limit = most
		}
	}
	switch {
	case f.Changed("sample") && t.sample == "", f.Changed("consumer-group") && p.group == "":
		return usage.Errorf("--sample and --consumer-group must not be empty")
	case p.limit < 1 || p.limit > most:
		return usage.Errorf("--events %d: must be 1 to %d", p.limit, most)
	case t.rows < 0 || t.rows > maxRows:
		return usage.Errorf("--rows %d: must be 0 to %d", t.rows, maxRows)
	}
	p.scan, p.limitGiven = maxScan, true
	return t.input.apply(cmd, &t.destination)
}

func (a *app) runTry(ctx context.Context, flags *tryFlags) error {
	stage, unset, err := flags.load(ctx)
	if err != nil {
		return err
	}
	checked, finding := flags.checkDatabase(ctx, stage, unset)
	run := &tryRun{tryFlags: flags, app: a, stage: stage, width: term.Columns(os.Stdout), summary: &trial.Summary{Keep: flags.rows}}
	from, err := run.each(ctx)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	s := run.summary
	if flags.json || flags.failed {
		fmt.Fprintf(a.screen, "%s: %s\n", from, humanize.Plural(s.Dead, "would become a dead letter", "would become dead letters"))
		fmt.Fprintln(a.screen, checked)
	} else {
		fmt.Fprintf(a.out, "Tried %s; nothing was written.\n", from)
		term.Wrap(a.out, "", checked, max(run.width, 80))
		fmt.Fprintln(a.out)
		s.Report(a.out, run.width)
	}
	switch {
	case finding != nil:
		return fmt.Errorf("the pipeline would not start with this database:\n%w", finding)
	case s.Dead > 0:
		return &verdictError{exitFailed, fmt.Sprintf("of %s %s would become dead letters", humanize.Plural(s.Events, "event", "events"), humanize.Count(s.Dead))}
	}
	return nil
}

// load reads the file, of which only those variables must be set that the events need.
func (t *tryFlags) load(ctx context.Context) (*pipeline.Pipeline, []pipeline.Unset, error) {
	f, unset, err := pipeline.LoadOffline(t.peek.config)
	if err != nil {
		return nil, nil, notThere(err, "check the path, or write a new file: sluice init "+t.peek.config)
	}
	if t.sample == "" {
		if err := f.Resolve(ctx); err != nil {
			return nil, nil, err
		}
	}
	stage, err := f.Stage(t.peek.stage)
	if err != nil {
		return nil, nil, usage.Errorf("--stage: %v", err)
	}
	for _, u := range unset {
		for _, key := range u.Keys {
			name, rest := keyOfStage(key, stage.Name)
			decodes := strings.HasPrefix(rest, "source.format") || strings.HasPrefix(rest, "source.claim_check")
			switch {
			case !name:
			case decodes && !t.decoded:
				return nil, nil, fmt.Errorf("%s: %s: the environment variable %s is not set: bodies cannot be decoded without it (--sample FILE --decoded takes bodies that are decoded)", t.peek.config, key, u.Variable)
			case !decodes && t.sample == "" && (strings.HasPrefix(rest, "source") || strings.HasPrefix(rest, "eventhub") || strings.HasPrefix(rest, "kafka")):
				return nil, nil, fmt.Errorf("%s: %s: the environment variable %s is not set: set it, or try events of a file: --sample FILE", t.peek.config, key, u.Variable)
			}
		}
	}
	return stage, unset, nil
}

// keyOfStage returns a key without the name of its stage, and whether it concerns a stage.
func keyOfStage(key, stage string) (concerns bool, rest string) {
	below, inStage := strings.CutPrefix(key, "stages.")
	if !inStage {
		return true, key
	}
	name, rest, _ := strings.Cut(below, ".")
	return name == stage || strings.HasPrefix(stage, name+"."), rest // of several topics, NAME.TOPIC is one
}

// checkDatabase lets the pipeline know the tables that exist, and says whether it does. The error
// is why the pipeline would not start with them.
func (t *tryFlags) checkDatabase(ctx context.Context, p *pipeline.Pipeline, unset []pipeline.Unset) (said string, err error) {
	const not = "The tables of the database were not looked at: "
	if p.AtLeastOnce() {
		return "The target is in no database, and was not asked.", nil
	}
	if t.withoutDatabase {
		return not + "--without-database.", nil
	}
	for _, u := range unset {
		for _, key := range u.Keys {
			if is, rest := keyOfStage(key, p.Name); is && strings.HasPrefix(rest, "database") {
				return fmt.Sprintf("%s%s is not set.", not, u.Variable), nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, databaseFor)
	defer cancel()
	if _, err := p.Schema(ctx); err != nil {
		return not + oneLine(err) + ".", nil
	}
	if err = p.CheckDatabase(ctx); ctx.Err() != nil {
		return fmt.Sprintf("%sno answer within %v.", not, databaseFor), nil
	}
	if err != nil {
		return "The tables of the database do not fit the file: see the end.", err
	}
	return "Values were tried against the tables that the database has, too.", nil
}

// tryRun is one run of try.
type tryRun struct {
	*tryFlags
	app     *app
	stage   *pipeline.Pipeline
	width   int
	summary *trial.Summary
	settle  func() // ends the status line
}

// each tries all events, and says which these are.
func (t *tryRun) each(ctx context.Context) (from string, err error) {
	var read atomic.Int64
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { t.app.watchPeek(watched, &read) })
	t.settle = sync.OnceFunc(func() { unwatch(); watching.Wait() })
	defer t.settle()
	if t.sample != "" {
		return t.eachOfFile(ctx, &read)
	}
	return t.eachOfLog(ctx, &read)
}

// errEnough ends the reading of a file.
var errEnough = errors.New("enough events")

func (t *tryRun) eachOfFile(ctx context.Context, read *atomic.Int64) (string, error) {
	file, err := guess.OpenFile(t.sample, os.Stdin, &t.destination.Input)
	if err != nil {
		return "", err
	}
	defer file.Close()
	file.Read = func(int) { read.Add(1) }
	err = file.Each(ctx, func(record *sluice.Event) error {
		if t.summary.Events == t.peek.limit {
			return errEnough
		}
		e, is := record, file.Whole
		if !is {
			if e, is, err = pipeline.ParseSample(record.Body, t.stage.System); err != nil {
				return fmt.Errorf("%s: %w", file.Place, err)
			}
		}
		s := &trial.Sample{Event: e}
		if !is {
			e.Sequence, s.Place = record.Sequence+1, file.Place.String()
			e.ContentType, e.Enqueued = record.ContentType, record.Enqueued
		}
		return t.one(ctx, s)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", notThere(err, "check the path")
	}
	if file.Rejected > 0 {
		t.settle()
		fmt.Fprintf(t.app.screen, "%s are no records: %v\n", humanize.Count(file.Rejected), file.Why)
	}
	if t.summary.Events == 0 {
		return "", fmt.Errorf("%s: has no events", file.Name)
	}
	return humanize.Plural(t.summary.Events, "event of ", "events of ") + file.Name, nil
}

func (t *tryRun) eachOfLog(ctx context.Context, read *atomic.Int64) (string, error) {
	log, err := t.peek.openStage(t.stage)
	if err != nil {
		return "", err
	}
	defer log.Close(ctx)
	cfg, err := t.peek.settings(t.stage.System)
	if err != nil {
		return "", err
	}
	cfg.Log, cfg.Searched = t.app.log, func() { read.Add(1) }
	cfg.Show = func(s peek.Seen) error { return t.one(ctx, &trial.Sample{Event: s.Event}) }
	result, err := peek.Run(ctx, log, cfg)
	if err != nil {
		return "", err
	}
	t.settle()
	for _, note := range result.Notes {
		fmt.Fprintln(t.app.screen, note)
	}
	which := "the newest "
	if cfg.Start != nil {
		which = "the first "
	}
	if n := int64(t.summary.Events); n == 0 {
		return "", fmt.Errorf("%s has no such events: pass --sample FILE, or another --start", log.Name())
	} else if !result.Sparse && n == result.Events {
		which = "all "
	}
	return which + humanize.Plural(t.summary.Events, "event of ", "events of ") + log.Name(), nil
}

// one tries an event.
func (t *tryRun) one(ctx context.Context, s *trial.Sample) (err error) {
	if t.decoded {
		s.Tried = t.stage.TryDecoded(s.Event)
	} else if s.Tried, err = t.stage.Try(ctx, s.Event); err != nil {
		return fmt.Errorf("%s: %w", s.Where(), err)
	}
	t.summary.Add(s)
	switch {
	case t.json && (s.Err != nil || !t.failed):
		t.settle()
		return trial.WriteJSON(t.app.out, s)
	case t.failed && s.Err != nil && !t.json:
		t.settle()
		trial.WriteFailed(t.app.out, s, t.width)
	}
	return nil
}
