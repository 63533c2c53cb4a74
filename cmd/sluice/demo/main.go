// Command demo sends real flight records to an embedded hub and writes each one into a SQLite
// table, exactly once. It is the command `sluice demo` as a program of its own, with less than half
// of the packages to compile: go run ./cmd/sluice/demo --once.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
)

func main() {
	screen := term.NewScreen(os.Stderr)
	c := flights.Command{Started: time.Now(), Out: os.Stdout, Screen: screen, Log: slog.New(slog.NewTextHandler(screen, nil)), Program: "go run ./cmd/sluice"}
	flag.Int64Var(&c.Events, "events", 20_000, "`number` of records to send; after 20,000 the records repeat")
	flag.StringVar(&c.Dir, "data", "sluice-data", "`directory` for the hub's events and the database")
	flag.BoolVar(&c.Once, "once", false, "exit when all events are processed; fail unless each has exactly one effect")
	address := flag.String("web", "", "serve a dashboard over HTTPS at this `address` of this machine, such as 127.0.0.1:8443")
	flag.Parse()
	if err := flights.CheckEvents(c.Events); err != nil || flag.NArg() > 0 {
		if err == nil {
			err = fmt.Errorf("unknown argument %q", flag.Arg(0))
		}
		fmt.Fprintf(screen, "demo: %v; see demo --help\n", err)
		os.Exit(2)
	}
	if path, err := exec.LookPath("sluice"); err == nil {
		c.Program = flights.ShellWord(path)
	}
	c.Open = func(ctx context.Context) (*flights.Demo, error) { return flights.OpenDemo(ctx, c.Dir, c.Log) }
	c.View = func(ctx context.Context, d *flights.Demo) (*flights.View, error) {
		if *address == "" {
			return nil, nil
		}
		return flights.Serve(ctx, d, *address, c.Log)
	}
	if err := c.Run(context.Background()); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(screen, "demo: %s\n", line)
		}
		os.Exit(1)
	}
}
