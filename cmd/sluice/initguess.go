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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/guess"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/cmd/sluice/internal/peek"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// guessFlags say which events init looks at.
type guessFlags struct {
	sample, table string
	input         inputFlags
	peek          peekFlags // the log

	destination upload.Destination // how the sample is read
	address     string             // of the database, as --database has it
}

// sampleEvents is how many events of a log are looked at by default.
const sampleEvents = 1000

func (g *guessFlags) add(f *pflag.FlagSet) {
	from := &g.peek.source
	from.Flag = "--from"
	f.StringVar(&g.sample, "sample", "", "`file` of records to guess columns from, or - for standard input")
	f.StringVar(&from.Hub, "from-hub", "", "`name` of a hub with events to guess columns from")
	f.StringVar(&from.Topic, "from-topic", "", "`name` of a topic of Kafka with events to guess columns from")
	f.StringVar(&from.Connection, "from", "", "`connection` string, address of Kafka, or env:NAME for one in an environment variable\n(default env:"+upload.EventHubVariable+")")
	f.StringVar(&from.Namespace, "namespace", "", "`host` name of a namespace, to sign in with Entra ID instead of --from")
	f.BoolVar(&from.WebSocket.Enabled, "websocket", false, "connect over WebSockets on port 443")
	f.StringVar(&from.WebSocket.Proxy, "proxy", "", "`URL` of a proxy for --websocket, or env:NAME (default that of HTTPS_PROXY)")
	f.StringVar(&g.peek.group, "consumer-group", "", "`name` of the consumer group of the hub to read in, also in the file")
	f.IntVar(&g.peek.limit, "events", sampleEvents, "`number` of events of --from-hub or --from-topic to look at")
	f.StringVar(&g.table, "table", "", "`name` of the table; with an address in --database one that may exist")
	g.input.add(f)
}

// enabled reports whether there are events to look at.
func (g *guessFlags) enabled() bool { return g.sample != "" || g.fromLog() }

func (g *guessFlags) fromLog() bool { return g.peek.source.Hub+g.peek.source.Topic != "" }

// sampleFlags go with --from-hub or --from-topic.
var sampleFlags = []string{"from", "namespace", "websocket", "proxy", "consumer-group", "events"}

// take checks the flags, and answers the questions that they answer. It returns the address of the
// database.
func (g *guessFlags) take(cmd *cobra.Command, given []string) (address string, err error) {
	f := cmd.Flags()
	for _, name := range []string{"sample", "from-hub", "from-topic", "table"} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return "", usage.Errorf("--%s: must not be empty", name)
		}
	}
	source, target, database := &given[0], &given[1], &given[2]
	if i := slices.IndexFunc(sampleFlags, f.Changed); i >= 0 && !g.fromLog() {
		return "", usage.Errorf("--%s goes with --from-hub or --from-topic", sampleFlags[i])
	}
	for _, name := range []string{"encoding", "delimiter"} {
		if f.Changed(name) && g.sample == "" {
			return "", usage.Errorf("--%s goes with --sample", name)
		}
	}
	switch {
	case g.sample != "" && g.fromLog(), g.peek.source.Hub != "" && g.peek.source.Topic != "":
		return "", usage.Errorf("--sample, --from-hub and --from-topic exclude each other")
	case !g.enabled() && g.table != "":
		return "", usage.Errorf("--table goes with --sample, --from-hub or --from-topic")
	case g.enabled() && *target != "" && *target != "insert":
		return "", usage.Errorf("--target %s: columns are guessed for --target insert", *target)
	case g.peek.limit < 1 || g.peek.limit > maxPeekLimit:
		return "", usage.Errorf("--events %d: must be 1 to %d", g.peek.limit, maxPeekLimit)
	}
	if strings.Contains(*database, ":") {
		if !g.enabled() {
			return "", usage.Errorf("--database: an address goes with --sample, --from-hub or --from-topic; else write one of %s", strings.Join(newfile.Databases, ", "))
		}
		g.address = *database
		if address, *database, err = takeDatabase(*database); err != nil {
			return "", err
		}
	}
	if !g.enabled() {
		return address, nil
	}
	*target = "insert"
	if err := g.input.apply(cmd, &g.destination); err != nil || !g.fromLog() {
		return address, err
	}
	if err := g.peek.checkLog(f, "from-hub", "from-topic"); err != nil {
		return "", err
	}
	is := "eventhub"
	if g.peek.source.IsKafka() {
		is = "kafka"
	}
	if *source != "" && *source != is {
		return "", usage.Errorf("--source %s: the events are from a %s", *source, map[string]string{"eventhub": "hub", "kafka": "topic of Kafka"}[is])
	}
	*source = is
	return address, nil
}

// databaseKinds are the words for the schemes of addresses.
var databaseKinds = map[string]string{"sqlite": "sqlite", "postgres": "postgres", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlserver": "sqlserver"}

// takeDatabase returns how a file names the database with an address, and its kind.
func takeDatabase(text string) (address, kind string, err error) {
	value := text
	name, variable := strings.CutPrefix(text, "env:")
	if variable {
		if value = os.Getenv(name); value == "" {
			return "", "", usage.Errorf("--database: the environment variable %s is not set", name)
		}
	}
	scheme, _, _ := strings.Cut(value, ":")
	kind = databaseKinds[scheme]
	switch {
	case kind == "":
		return "", "", usage.Errorf("--database: write sqlite:PATH, a URL such as postgres://user@host/database, or env:NAME")
	case variable:
		return "${" + name + "}", kind, nil
	case kind == "sqlite":
		return newfile.Quoted(text), kind, nil
	}
	return "${DATABASE_URL}", kind, nil
}

// initGuessed writes a file for events.
func (a *app) initGuessed(ctx context.Context, path string, force bool, c newfile.Choice, flags *guessFlags, address string) error {
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	c.Address = address
	cfg := &guess.Config{Name: pipelineName(path), System: pipeline.EventHubs, Table: flags.table}
	if c.Source == "kafka" {
		cfg.System = pipeline.Kafka
	}
	var read atomic.Int64
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watchPeek(watched, &read) })
	settle := sync.OnceFunc(func() { unwatch(); watching.Wait() })
	defer settle()
	samples, err := a.samples(ctx, flags, &c, &read)
	if err != nil {
		return err
	}
	if file, ok := samples.(*guess.File); ok {
		defer file.Close()
	}
	cfg.Choice = c
	if address != "" {
		cfg.Database, cfg.Lookup = flags.database(address)
	}
	g, err := guess.Make(ctx, samples, cfg)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	text := newfile.Text(cfg.Name, g.Choice)
	tried, err := guess.Try(ctx, samples, cfg, text)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	settle()
	if err := writeNew(path, text, force); err != nil {
		return err
	}
	return a.reportGuess(path, g, tried, samples, guess.Variables(cfg, text))
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	return err
}

// database returns the address that flags name, and a function that returns it for its variable.
func (g *guessFlags) database(inFile string) (address string, lookup func(string) (string, bool)) {
	name, variable := strings.CutPrefix(g.address, "env:")
	address = g.address
	if variable {
		address = os.Getenv(name)
	}
	return address, func(name string) (string, bool) { return address, inFile == "${"+name+"}" }
}

// samples returns the events to look at, and fills in the log that they are of.
func (a *app) samples(ctx context.Context, flags *guessFlags, c *newfile.Choice, read *atomic.Int64) (guess.Samples, error) {
	if flags.sample != "" {
		file, err := guess.OpenFile(flags.sample, os.Stdin, &flags.destination.Input)
		if err == nil {
			file.Read = func(n int) { read.Store(int64(n)) }
		}
		return file, err
	}
	log, _, _, err := flags.peek.open(ctx)
	if err != nil {
		return nil, err
	}
	defer log.Close(ctx)
	samples := &guess.Log{}
	_, err = peek.Run(ctx, log, &peek.Config{
		Limit: flags.peek.limit, Scan: maxScan, Log: a.log,
		Searched: func() { read.Add(1) },
		Show:     func(s peek.Seen) error { samples.Events = append(samples.Events, s.Event); return nil },
	})
	if err != nil {
		return nil, err
	}
	if samples.Name = log.Name(); len(samples.Events) == 0 {
		return nil, fmt.Errorf("%s has no events: send some first, or pass --sample FILE", samples.Name)
	}
	name := strings.TrimPrefix(samples.Name, log.Noun+" ")
	known, err := flags.peek.source.InFile(name)
	if err != nil {
		return nil, err
	}
	if known.Group = flags.peek.group; known.Group == "" {
		known.Group = "$Default"
	}
	c.Filled = &newfile.Filled{Log: known}
	return samples, nil
}

// reportGuess says what was guessed, what became of the samples, and what is next.
func (a *app) reportGuess(path string, g *guess.Guess, tried *guess.Tried, samples guess.Samples, variables []string) error {
	width := term.Columns(os.Stdout)
	fmt.Fprintf(a.out, "Looked at %s.\n", samples.Description())
	if f, ok := samples.(*guess.File); ok && f.Rejected > 0 {
		fmt.Fprintf(a.out, "%s are no records: %v\n", humanize.Count(f.Rejected), f.Why)
	}
	if err := g.Report(a.out, width); err != nil {
		return err
	}
	tried.Report(a.out, width)
	g.Left(a.out, width)
	fmt.Fprintf(a.out, "\n%s is written. Next:\n", path)
	for _, v := range variables {
		if os.Getenv(v) == "" {
			fmt.Fprintf(a.out, "  export %s=…\n", v)
		}
	}
	_, err := fmt.Fprintf(a.out, "  sluice check %s --connect\n  sluice run %s\n", path, path)
	return err
}
