package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/feed"
	"github.com/sluice-go/sluice/internal/records"
	"github.com/sluice-go/sluice/internal/terminal"
)

// connectionVariable is where connection strings are looked for.
const connectionVariable = "EVENTHUB_CONNECTION_STRING"

func (a *app) send() *cobra.Command {
	var to, hub string
	var cfg feed.Config
	var made generateFlags
	cmd := &cobra.Command{
		Use:   "send --hub NAME [FILE… | --generate N]",
		Short: "Send files of records, or made-up documents, to an event hub",
		Long: `Send records to an event hub: newline-delimited JSON, a JSON array, or CSV with
a header, whose rows become JSON objects. The first character tells which. With
"-" or no file the records come from standard input.

Records of one key keep their order. Without --key-field records have no key and
go to the partitions in turn.

` + aboutGenerate,
		Example: `  sluice send --hub flights --key-field origin flights.csv
  sluice send --hub docs --generate 4200000 --replicas 4 --batch 500`,
	}
	cmd.RunE = a.does(func(ctx context.Context, files []string) error {
		switch err := made.check(cmd, files); {
		case err != nil:
			return err
		case cfg.Rate < 0:
			return misused("--rate %v: must be positive", cfg.Rate)
		}
		connection, err := connectionString(to)
		if err != nil {
			return err
		}
		if made.count > 0 {
			return a.sendGenerated(ctx, connection, hub, &made, cfg.Rate)
		}
		return a.sendFiles(ctx, connection, hub, files, &cfg)
	})
	f := cmd.Flags()
	f.StringVar(&to, "to", "env:"+connectionVariable, "`connection` string, or env:NAME for that of an environment variable")
	f.StringVar(&hub, "hub", "", "`name` of the hub (default that of the connection string's EntityPath)")
	f.StringVar(&cfg.KeyField, "key-field", "", "`field` whose value is the partition key")
	f.Float64Var(&cfg.Rate, "rate", 0, "`number` of records a second (default as many as the hub takes)")
	made.add(f)
	return cmd
}

// connectionString resolves env:NAME, which keeps keys out of the list of
// processes.
func connectionString(to string) (string, error) {
	name, ok := strings.CutPrefix(to, "env:")
	if !ok {
		return to, nil
	}
	value := os.Getenv(name)
	if value == "" {
		return "", misused("the environment variable %s is not set: put the connection string there, or state --to", name)
	}
	return value, nil
}

// sendFiles sends the files one after the other.
func (a *app) sendFiles(ctx context.Context, connection, hub string, files []string, cfg *feed.Config) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if info, err := os.Stat(name); name != "-" && (err != nil || info.IsDir()) {
			return fmt.Errorf("%s: not a file that can be read", name)
		}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	clients, partitions, hangUp, err := dial(ctx, connection, hub, 1)
	if err != nil {
		return err
	}
	defer hangUp()
	cfg.Refused = func(e *records.TooLargeError) { a.log.Error("record not sent", "error", e.Error()) }
	f, err := feed.New(clients[0], partitions, cfg)
	if err != nil {
		return err
	}
	return a.reportSending(ctx, f.Acknowledged, func() error {
		for _, name := range files {
			if err := sendFile(ctx, f, name); err != nil {
				return err
			}
		}
		if refused := f.Refused(); refused > 0 {
			return fmt.Errorf("%s too large for the hub: all others were sent", terminal.Plural(refused, "record was", "records were"))
		}
		return nil
	})
}

// reportSending shows how the sending gets on and prints how much was
// acknowledged, whatever happens.
func (a *app) reportSending(ctx context.Context, acknowledged func() int64, send func() error) error {
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	began := time.Now()
	watching.Go(func() { a.watchSending(watched, acknowledged, began) })
	err := send()
	unwatch()
	watching.Wait()
	took := time.Since(began)
	noun := "records"
	if acknowledged() == 1 {
		noun = "record"
	}
	// Scripts read the number, so it has no separators.
	fmt.Fprintf(a.out, "%d %s acknowledged in %s\n", acknowledged(), noun, terminal.Span(took))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// dial makes clients of a hub, each with a connection of its own. It finds out
// what the hub is before anything is sent, so that what is wrong with the
// connection shows clearly.
func dial(ctx context.Context, connection, hub string, n int) (clients []*azeventhubs.ProducerClient, partitions []string, hangUp func(), err error) {
	source, err := eventhub.New(connection, hub, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	defer source.Close(ctx)
	topic, err := source.Describe(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	props, err := azeventhubs.ParseConnectionString(connection)
	if err != nil {
		return nil, nil, nil, errors.New("connection string: not understood")
	}
	if props.EntityPath != nil {
		hub = "" // the SDK wants it in one place only
	}
	hangUp = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		for _, c := range clients {
			_ = c.Close(ctx)
		}
	}
	for range n {
		c, err := azeventhubs.NewProducerClientFromConnectionString(connection, hub, &azeventhubs.ProducerClientOptions{
			ApplicationID: "sluice",
			RetryOptions:  azeventhubs.RetryOptions{MaxRetries: 5, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 5 * time.Second},
		})
		if err != nil {
			hangUp()
			return nil, nil, nil, errors.New("connection string: not understood")
		}
		clients = append(clients, c)
	}
	return clients, topic.Partitions, hangUp, nil
}

func sendFile(ctx context.Context, f *feed.Feed, name string) error {
	var in io.Reader = os.Stdin
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	return f.Send(ctx, records.NewReader(in, name))
}

func (a *app) watchSending(ctx context.Context, acknowledged func() int64, began time.Time) {
	var speed terminal.Speed
	speed.At(began, 0)
	a.screen.Follow(ctx, func() string {
		now, n := time.Now(), acknowledged()
		return fmt.Sprintf("%s acknowledged  %s/s  %s", terminal.Plural(n, "record", "records"),
			terminal.Count(speed.At(now, n)), now.Sub(began).Truncate(time.Second))
	}, func() {
		n := acknowledged()
		a.log.Info("progress", "acknowledged", n, "per_second", speed.At(time.Now(), n))
	})
}
