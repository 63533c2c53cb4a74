//go:build unix

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
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
	profiles string
	json     string
	batch    int // events of the largest transaction; 0: each contender's default
}

// commands are the measurements other than the comparison of rates.
var commands = map[string]func(ctx context.Context, args []string) error{
	"cosmos": runCosmos, "writing": runWriting, "latency": runLatency, "recovery": runRecovery, "endurance": runEndurance,
}

func run(ctx context.Context) error {
	if role, ok := os.LookupEnv(roleVariable); ok {
		return runChild(ctx, role)
	}
	args := os.Args[1:]
	if len(args) > 0 {
		if command, ok := commands[args[0]]; ok {
			return command(ctx, args[1:])
		}
	}
	return runCompare(ctx, args)
}

// runCompare measures Sluice and the loop by hand in turns.
func runCompare(ctx context.Context, args []string) error {
	flag := flag.NewFlagSet("bench", flag.ExitOnError)
	flag.Usage = func() {
		fmt.Fprintln(flag.Output(), "Usage: bench [flags]            Sluice beside a loop by hand\n       bench writing [flags]    what the databases take, and what is written to them\n       bench latency [flags]    publishing to the commit, and idle processes, beside a loop by hand\n       bench recovery [flags]   after an outage of the database\n       bench endurance [flags]  hours with faults\n       bench cosmos [flags]     a hub into Cosmos DB\n\nFlags (-help after a command lists its own):")
		flag.PrintDefaults()
	}
	o := options{only: regexp.MustCompile("")}
	o.define(flag)
	_ = flag.Parse(args) // exits on an error
	if err := o.check(flag); err != nil {
		return err
	}
	r, err := measureAll(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	return writeJSON(o.json, r)
}

// define defines the flags that the comparisons share.
func (o *options) define(flag *flag.FlagSet) {
	flag.IntVar(&o.runs, "runs", 5, "runs of each contender, of which the median counts")
	flag.IntVar(&o.events, "events", 300_000, "events of a run")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for CPU, allocation and blocking profiles of the consumers")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	flag.Func("only", "run what matches a `pattern`: postgres/1000B/4/sluice, none/1000B", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
}

func (o *options) check(flag *flag.FlagSet) error {
	if flag.NArg() > 0 || o.runs < 1 || o.batch < 0 || o.events < eventsPerBatch*maxPartitions*4 {
		return fmt.Errorf("%s takes flags only, at least one run and at least %d events", flag.Name(), eventsPerBatch*maxPartitions*4)
	}
	return nil
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
	switch role {
	case hubRole:
		return serveHub(ctx, p, line)
	case soakRole:
		return soak(ctx, p, line)
	}
	return consume(ctx, p, line)
}
