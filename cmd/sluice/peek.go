package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/peek"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

const aboutPeek = `Look at the events of a hub or a topic. Nothing is consumed and nothing is written: no lease,
no checkpoint, no offset of a consumer group. Of a pipeline file the source is read, and
bodies are decoded as the pipeline decodes them; neither its database nor its target is
needed. Without a file, name a hub or a topic as in sluice send, with --from in place of
--to; the same variables hold the credentials.

The newest --limit events of all partitions together are shown, in the order of their
times. With --start they are the first ones from there: earliest, a time such as
2026-01-31T08:00:00Z, "24h ago", "sequence N" or "offset O". Where retention has removed
events after it, the command says which and begins with the oldest; a pipeline would halt.
--follow then waits for new events until ^C.

--where selects events as the key only of a pipeline file does, written as YAML:
  --where 'body.type: order'
  --where '{body.type: [order, refund], properties.kind: {not: test}}'
Without --start the newest --scan events of each partition are searched for matches.

A reader in an event hub has no epoch, so it disconnects no consumer. Event Hubs refuses it in
a consumer group in which a consumer reads. The groups $Default, the pipeline's own and
` + flights.AuditGroup + ` are tried one after the other, or only that of --consumer-group.

A body that cannot be decoded is shown as it was sent, with the reason; one that is no text
as bytes, with what it may be. Control characters are escaped. --json prints a line of JSON
for each event: the body is in body if it is JSON, in body_text if it is other text, else in
body_base64; decode_error says why it is as it was sent.`

type peekFlags struct {
	config, stage string
	source        upload.Destination
	group         string
	partitions    []string
	start         string
	limit         int
	scan          int64
	follow        bool
	where         string
	json, full    bool
	limitGiven    bool
}

// Bounds of flags of peek.
const (
	maxPeekLimit = 100_000
	defaultScan  = 10_000
	maxScan      = 1_000_000_000
)

func (a *app) peek() *cobra.Command {
	flags := peekFlags{source: upload.Destination{Flag: "--from"}}
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "peek {PIPELINE.yaml [STAGE] | --hub NAME | --topic NAME}",
		Short: "Look at events of a hub or a topic without consuming them",
		Long:  aboutPeek,
		Example: `  sluice peek flights.yaml
  sluice peek stages.yaml clean --partition 3 --start "sequence 1200" --limit 1
  sluice peek flights.yaml --follow --where 'body.origin: LAX'
  sluice peek --hub flights --start "1h ago" --limit 1000 --json
  sluice peek --from kafka://127.0.0.1:9092 --topic flights`,
		Args: cobra.MaximumNArgs(2),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			flags.limitGiven = cmd.Flags().Changed("limit")
			if err := flags.take(cmd.Flags(), args); err != nil {
				return err
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			return a.runPeek(ctx, &flags)
		}),
	}
	f := cmd.Flags()
	configFlag(f, &flags.config)
	stageFlag(f, &flags.stage)
	f.StringVar(&flags.source.Connection, "from", "", "`connection` string, address of Kafka, or env:NAME for one in an environment variable\n(default env:"+upload.EventHubVariable+")")
	f.StringVar(&flags.source.Namespace, "namespace", "", "`host` name of a namespace, to sign in with Entra ID instead of --from")
	f.BoolVar(&flags.source.WebSocket.Enabled, "websocket", false, "connect over WebSockets on port 443")
	f.StringVar(&flags.source.WebSocket.Proxy, "proxy", "", "`URL` of a proxy for --websocket, or env:NAME (default that of HTTPS_PROXY)")
	f.StringVar(&flags.source.Hub, "hub", "", "`name` of the hub (default the connection string's EntityPath)")
	f.StringVar(&flags.source.Topic, "topic", "", "`name` of the topic of Kafka")
	f.StringVar(&flags.group, "consumer-group", "", "`name` of the consumer group of the hub to read in")
	f.StringSliceVar(&flags.partitions, "partition", nil, "a `partition`; can be repeated (default all)")
	f.StringVar(&flags.start, "start", "", "`position` of the first event (default: the newest events are shown)")
	f.IntVar(&flags.limit, "limit", 10, "largest `number` of events; with --follow and --start no limit unless it is given")
	f.Int64Var(&flags.scan, "scan", defaultScan, "`number` of events of each partition to search without --start")
	f.BoolVar(&flags.follow, "follow", false, "then wait for new events")
	f.StringVar(&flags.where, "where", "", "show only events with these `values`, as below the key only of a pipeline file")
	f.BoolVar(&flags.json, "json", false, "print JSON, one line for each event")
	f.BoolVar(&flags.full, "full", false, "print whole bodies and values")
	return cmd
}

// sourceFlags name a log without a pipeline file.
var sourceFlags = []string{"from", "namespace", "hub", "topic", "websocket", "proxy"}

// take checks flags and arguments, and takes the file and the stage.
func (p *peekFlags) take(f *pflag.FlagSet, args []string) error {
	if err := p.takeFile(f, args); err != nil {
		return err
	}
	i := slices.IndexFunc(sourceFlags, f.Changed)
	switch {
	case p.config == "" && i < 0:
		return usage.Errorf("name what to look at: pass PIPELINE.yaml, or --hub NAME, or --from kafka://HOST:9092 --topic NAME")
	case p.config != "" && i >= 0:
		return usage.Errorf("--%s and a pipeline file exclude each other: the file names its source", sourceFlags[i])
	case p.config == "" && p.stage != "":
		return usage.Errorf("--stage goes with a pipeline file")
	case p.limit < 1 || p.limit > maxPeekLimit:
		return usage.Errorf("--limit %d: must be 1 to %d", p.limit, maxPeekLimit)
	case p.scan < 1 || p.scan > maxScan:
		return usage.Errorf("--scan %d: must be 1 to %d", p.scan, maxScan)
	case f.Changed("scan") && p.start != "":
		return usage.Errorf("--scan and --start exclude each other: from a start on all events are searched")
	case f.Changed("where") && strings.TrimSpace(p.where) == "":
		return usage.Errorf("--where: must not be empty: write values as in --where 'body.type: order'")
	case p.json && p.full:
		return usage.Errorf("--full: --json prints whole bodies always: leave it out")
	case f.Changed("consumer-group") && p.group == "":
		return usage.Errorf("--consumer-group: must not be empty")
	case p.config == "":
		return p.checkLog(f, "hub", "topic")
	}
	return nil
}

// takeFile takes the file and the stage that arguments name.
func (p *peekFlags) takeFile(f *pflag.FlagSet, args []string) error {
	if len(args) > 0 {
		p.config = args[0]
	}
	if len(args) > 1 {
		if f.Changed("stage") && p.stage != args[1] {
			return usage.Errorf("--stage %s: the argument names another stage, %s", p.stage, args[1])
		}
		p.stage = args[1]
	}
	return nil
}

// checkLog checks the flags that name a log, of which two name the hub and the topic.
func (p *peekFlags) checkLog(f *pflag.FlagSet, hub, topic string) error {
	for _, name := range []string{hub, topic} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return usage.Errorf("--%s: must not be empty", name)
		}
	}
	if f.Changed("namespace") {
		if p.source.Connection != "" {
			return usage.Errorf("--from and --namespace exclude each other: a connection string holds the namespace and its key")
		}
		if err := upload.CheckNamespace(p.source.Namespace); err != nil {
			return err
		}
	}
	switch {
	case p.source.Hub != "" && p.source.Topic != "":
		return usage.Errorf("--%s and --%s exclude each other", hub, topic)
	case p.source.Topic != "" && !p.source.IsKafka():
		return usage.Errorf("--%s is of Kafka: pass its address in --from, like kafka://127.0.0.1:9092; for an event hub pass --%s", topic, hub)
	case p.source.Hub != "" && p.source.IsKafka():
		return usage.Errorf("--%s is of Event Hubs: for a topic of Kafka pass --%s", hub, topic)
	case p.source.WebSocket.Enabled && p.source.IsKafka():
		return usage.Errorf("--websocket: Kafka has no WebSockets")
	}
	return p.source.WebSocket.Check()
}

// open returns the log, and how its bodies are decoded: nil without a file.
func (p *peekFlags) open(ctx context.Context) (*peek.Log, pipeline.System, *peek.Decoder, error) {
	if p.config != "" {
		stage, err := loadStage(ctx, p.config, p.stage)
		if err != nil {
			return nil, "", nil, err
		}
		log, err := p.openStage(stage)
		return log, stage.System, &peek.Decoder{Pipeline: stage}, err
	}
	open, err := p.source.Logs(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	system := pipeline.EventHubs
	if p.source.IsKafka() {
		system = pipeline.Kafka
	}
	log := &peek.Log{Noun: system.Noun(), Groups: []string{flights.AuditGroup}}
	log.Open = func(group string) (peek.Source, error) { return open(group) }
	return log, system, nil, p.chooseGroups(log, system)
}

// openStage returns the log of a stage.
func (p *peekFlags) openStage(stage *pipeline.Pipeline) (*peek.Log, error) {
	log := &peek.Log{Noun: stage.System.Noun(), Groups: []string{stage.Group.Name}}
	log.Open = func(group string) (peek.Source, error) { return stage.SourceAs(group) }
	return log, p.chooseGroups(log, stage.System)
}

// chooseGroups sets the consumer groups to read in.
func (p *peekFlags) chooseGroups(log *peek.Log, system pipeline.System) error {
	switch {
	case system != pipeline.EventHubs && p.group != "":
		return usage.Errorf("--consumer-group %s: a topic of Kafka is looked at outside of any consumer group, and so is an outbox: leave it out", p.group)
	case system != pipeline.EventHubs:
	case p.group != "":
		log.Groups = []string{p.group}
	default:
		all := append([]string{"$Default"}, append(log.Groups, flights.AuditGroup)...)
		log.Groups = nil
		for _, group := range all {
			if !slices.ContainsFunc(log.Groups, func(g string) bool { return strings.EqualFold(g, group) }) {
				log.Groups = append(log.Groups, group)
			}
		}
	}
	return nil
}

// settings are the settings of a look, without what it shows.
func (p *peekFlags) settings(system pipeline.System) (*peek.Config, error) {
	cfg := &peek.Config{Partitions: p.partitions, Limit: p.limit, Scan: p.scan, Follow: p.follow}
	if p.start != "" {
		start, err := sluice.ParseStart(p.start)
		if err != nil {
			return nil, usage.Errorf("--start: %v", err)
		}
		if start == sluice.Latest() && !p.follow {
			return nil, usage.Errorf("--start latest: no event is after it yet: add --follow, or leave out --start for the newest events")
		}
		cfg.Start = &start
		if p.follow && !p.limitGiven {
			cfg.Limit = 0
		}
	}
	if p.where != "" {
		filter, err := pipeline.ParseFilter("--where", p.where, system)
		if err != nil {
			return nil, usage.Errorf("%s (values are written as in --where 'body.type: order')", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		cfg.Match = &peek.Match{Filter: filter}
	}
	return cfg, nil
}

func (a *app) runPeek(ctx context.Context, flags *peekFlags) error {
	log, system, decoder, err := flags.open(ctx)
	if err != nil {
		return err
	}
	defer log.Close(ctx)
	cfg, err := flags.settings(system)
	if err != nil {
		return err
	}
	var read atomic.Int64
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.watchPeek(watched, &read) })
	settle := sync.OnceFunc(func() { unwatch(); watching.Wait() }) // a status line would be among the events
	defer settle()
	printer := &peek.Printer{Out: a.out, Width: term.Columns(os.Stdout), Full: flags.full}
	cfg.Decode, cfg.Log = decoder, a.log
	cfg.Searched = func() { read.Add(1) }
	cfg.Waiting = func() {
		settle()
		fmt.Fprintf(a.screen, "waiting for new events of %s: ^C ends\n", log.Name())
	}
	cfg.Show = func(s peek.Seen) error {
		settle()
		if flags.json {
			return peek.WriteJSON(a.out, s)
		}
		return printer.WriteEvent(s, time.Now())
	}
	result, err := peek.Run(ctx, log, cfg)
	settle()
	if result != nil && (err == nil || result.Shown > 0) {
		for _, line := range result.Summary(log.Name(), cfg) {
			fmt.Fprintln(a.screen, line)
		}
	}
	return err
}

func (a *app) watchPeek(ctx context.Context, read *atomic.Int64) {
	a.screen.Follow(ctx, func() string {
		return humanize.Plural(read.Load(), "event", "events") + " read"
	}, func() { a.log.Info("progress", "read", read.Load()) })
}
