//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are those of the comparison with a loop by hand.
type options struct {
	runs     int
	events   int // of a run
	only     *regexp.Regexp
	live     time.Duration
	rate     int
	profiles string
	json     string
}

func run(ctx context.Context) error {
	if role, ok := os.LookupEnv(roleVariable); ok {
		return runChild(ctx, role)
	}
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "cosmos" {
		return runCosmos(ctx, args[1:])
	}
	return runCompare(ctx, args)
}

// runCompare measures Sluice and the loop by hand in turns.
func runCompare(ctx context.Context, args []string) error {
	flag := flag.NewFlagSet("bench", flag.ExitOnError)
	flag.Usage = func() {
		fmt.Fprintln(flag.Output(), "Usage: bench [flags]         Sluice beside a loop by hand\n       bench cosmos [flags]  a hub into Cosmos DB (-help lists its flags)\n\nFlags:")
		flag.PrintDefaults()
	}
	o := options{only: regexp.MustCompile("")}
	flag.IntVar(&o.runs, "runs", 5, "runs of each contender, of which the median counts")
	flag.IntVar(&o.events, "events", 300_000, "events of a run")
	flag.DurationVar(&o.live, "live", 20*time.Second, "how long the latency is measured")
	flag.IntVar(&o.rate, "rate", 10_000, "events a second while the latency is measured")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for CPU, allocation and blocking profiles of the consumers")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	flag.Func("only", "run what matches a `pattern`: postgres/1000B/4/sluice, latency/by hand", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	_ = flag.Parse(args) // exits on an error
	if flag.NArg() > 0 || o.runs < 1 || o.rate < 1 || o.events < eventsPerBatch*maxPartitions*4 {
		return fmt.Errorf("bench takes flags only, at least one run, a positive rate and at least %d events", eventsPerBatch*maxPartitions*4)
	}
	r, err := measureAll(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if o.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(data, '\n'), 0o644)
}

// runChild is a process that another process of this program has started.
func runChild(ctx context.Context, role string) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	p := &parent{confirmations: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		p.listen(in)
	}()
	if role == hubRole {
		return serveHub(ctx, p, line)
	}
	return consume(ctx, p, line)
}
