//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
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
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// keyed is how rows are written by key; empty: without one.
type keyed string

const (
	newRows keyed = "new"
	updates keyed = "updates"
)

var everything = regexp.MustCompile("")

// options are the flags.
type options struct {
	only     *regexp.Regexp
	rounds   int
	every    int           // how many rounds have one in which all peers take part
	events   int           // of a speed run
	limit    time.Duration // of a speed run, from its first row
	kills    int
	killed   int // events of a run with kills
	json     string
	docs     string
	profiles string
	programs string
	keyed    keyed
}

func run(ctx context.Context, args []string) error {
	o := options{only: everything}
	flag := flag.NewFlagSet("peers", flag.ExitOnError)
	flag.Func("only", "the peers whose name matches a `pattern`", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.IntVar(&o.rounds, "rounds", 9, "rounds of the comparison of speed; 0: none")
	flag.IntVar(&o.every, "every", 3, "in one round of so many all peers take part, in the others only Sluice and the loop")
	flag.IntVar(&o.events, "events", 800_000, "events of a run for speed")
	flag.DurationVar(&o.limit, "within", 20*time.Second, "how long a run for speed lasts at most, from its first row")
	flag.IntVar(&o.kills, "kills", 3, "how often each peer is killed; 0: no such runs")
	flag.IntVar(&o.killed, "killed", 120_000, "events of a run with kills")
	flag.StringVar(&o.json, "json", "", "`file` for the results in JSON")
	flag.StringVar(&o.docs, "docs", "", "`file` in Markdown whose tables, between two comments, are replaced by those of this run")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for CPU and allocation profiles of Sluice and the loop")
	flag.StringVar(&o.programs, "programs", ".dev/peers", "`directory` of the peers, as scripts/install-peers makes it")
	flag.Func("keyed", "write by the key (hub_partition, sequence_number): `new` rows, or updates of rows that are there; needs -only 'Sluice|Debezium' and -kills 0", func(text string) error {
		o.keyed = keyed(text)
		if o.keyed != newRows && o.keyed != updates {
			return errors.New("write new or updates")
		}
		return nil
	})
	_ = flag.Parse(args) // exits on an error
	if o.keyed != "" && (o.kills > 0 || o.docs != "") {
		return errors.New("-keyed is for speed, and not for the tables of the documentation: pass -kills 0")
	}
	if flag.NArg() > 0 || o.rounds < 0 || o.every < 1 || o.kills < 0 || o.events < partitions || o.killed < partitions {
		return fmt.Errorf("peers takes flags only, none negative, and at least %d events", partitions)
	}
	l, err := newLab(ctx, o)
	if err != nil {
		return err
	}
	defer l.close()
	err = l.run(ctx)
	l.report.print(os.Stdout) // what there is, also after an error
	return errors.Join(err, l.write(o, err == nil))
}

// write writes the report to the files of the flags, to the documentation only if it is complete.
func (l *lab) write(o options, complete bool) (errs error) {
	if o.json != "" {
		data, err := json.MarshalIndent(l.report, "", "  ")
		if err == nil {
			err = os.WriteFile(o.json, append(data, '\n'), 0o644)
		}
		errs = errors.Join(errs, err)
	}
	if o.docs != "" && complete {
		text, err := os.ReadFile(o.docs)
		if err == nil {
			text, err = l.report.replaceTables(text)
		}
		if err == nil {
			err = os.WriteFile(o.docs, text, 0o644)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}
