package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	terminal "golang.org/x/term"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/cmd/sluice/internal/verify"
	"github.com/sluice-go/sluice/internal/term"
	"github.com/sluice-go/sluice/pipeline"
)

// reportTo is where reports are sent.
const reportTo = "https://github.com/sluice-go/sluice/issues/new"

type verifyFlags struct {
	source, hub, consumerGroup string
	stores                     []string
	config, stage, autoscale   string
	send                       int
	load, scale, yes, json     bool
	report                     string
}

func (a *app) verify() *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify {--source … | --store … | --config PIPELINE.yaml | --autoscale AUTOSCALER.yaml}",
		Short: "Check whether a hub, a database or a container behaves as Sluice assumes",
		Long: `Check whether a hub, a database, a storage account, a Cosmos DB container, the HTTP
endpoint of a pipeline, or the metrics and the target of an autoscaler behave as Sluice
assumes. Each check tests one assumption; docs/verify.md lists them.

The command first asks which rights are missing, and changes nothing if one is. Then it
prints what it will create and asks whether to continue. It removes all that it created,
also after ^C or a failed check. Events that --send sends to a hub cannot be removed.

The hub is read in a consumer group that no other program uses. Create it first:
  az eventhubs eventhub consumer-group create --name sluice-verify …

A store is one of
  sqlite:PATH
  postgres://user:password@host/database
  mysql:// or mariadb://user:password@host/database
  sqlserver://user:password@host?database=name, also with credential=default for Entra ID
  https://ACCOUNT.blob.core.windows.net/CONTAINER, with a signature, or with the
    connection string in ` + verify.StorageVariable + `, or with Entra ID
  https://ACCOUNT.documents.azure.com:443/dbs/DATABASE/colls/CONTAINER, with the key in
    ` + verify.CosmosKeyVariable + `, or with Entra ID
  env:NAME, for one of these in an environment variable

Exit codes: 0 if all that was checked is as assumed, or differs in a way that Sluice
allows for, 1 if something differs, 3 if something could not be checked.`,
		Example: `  sluice verify --source env:EVENTHUB_CONNECTION_STRING --hub flights --send 100
  sluice verify --store env:DATABASE_URL --yes --json
  sluice verify --config flights.yaml --send 100 --load
  sluice verify --autoscale orders.yaml --scale`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			return unverified(a.runVerify(ctx, &flags))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&flags.source, "source", "", "the `hub`'s connection string, env:NAME for that in an environment variable,\nor the namespace's host name for Entra ID")
	f.StringVar(&flags.hub, "hub", "", "`name` of the hub (default the connection string's EntityPath)")
	f.StringVar(&flags.consumerGroup, "consumer-group", "sluice-verify", "`name` of the consumer group to read in")
	f.StringArrayVar(&flags.stores, "store", nil, "a `store`, see above; can be repeated")
	f.StringVar(&flags.config, "config", "", "a `PIPELINE.yaml`, whose hub, database, containers and\nHTTP endpoints are checked")
	stageFlag(f, &flags.stage)
	f.IntVar(&flags.send, "send", 0, "`number` of events to send to the hub, which stay there")
	f.BoolVar(&flags.load, "load", false, "also check throttling, which uses up the quota of the hub and the container for seconds")
	f.StringVar(&flags.autoscale, "autoscale", "", "an `AUTOSCALER.yaml`, whose metrics and target are checked")
	f.BoolVar(&flags.scale, "scale", false, "also check scaling, which changes the target's number of instances by one, and back")
	f.BoolVarP(&flags.yes, "yes", "y", false, "don't ask before something is created")
	f.BoolVar(&flags.json, "json", false, "print the report as JSON")
	f.StringVar(&flags.report, "report", "sluice-verify.json", "`file` for a report without names and secrets; empty: none")
	return cmd
}

// unverified gives an error that prevented a verdict the exit code for "could not be checked", since
// exit code 1 means that something differs.
func unverified(err error) error {
	var found *verdictError
	var mistake *usage.Error
	if err == nil || errors.As(err, &found) || errors.As(err, &mistake) {
		return err
	}
	return &verdictError{verify.ExitUndecided, err.Error()}
}

// verifyTargets reads the addresses.
func verifyTargets(ctx context.Context, flags *verifyFlags, opts verify.Options) (*verify.Targets, error) {
	targets := verify.NewTargets(opts, nil)
	if flags.config != "" {
		p, err := loadStage(flags.config, flags.stage)
		if err != nil {
			return nil, err
		}
		if p.System == pipeline.EventHubs && strings.EqualFold(flags.consumerGroup, p.Group.Name) { // Azure ignores the case
			return nil, usage.Errorf("--consumer-group %s is the pipeline's own consumer group, whose readers would be disconnected: name another group", flags.consumerGroup)
		}
		if err := targets.AddPipeline(p.Connections(), flags.consumerGroup); err != nil {
			return nil, err
		}
	}
	if flags.source != "" {
		if err := targets.AddSource(flags.source, flags.hub, flags.consumerGroup); err != nil {
			return nil, usage.Errorf("--source: %v", err)
		}
	}
	for _, store := range flags.stores {
		if err := targets.AddStore(store); err != nil {
			return nil, usage.Errorf("--store: %v", err)
		}
	}
	if flags.autoscale != "" {
		if err := targets.AddAutoscaler(ctx, flags.autoscale); err != nil {
			targets.Close()
			return nil, err
		}
	}
	return targets, nil
}

func (a *app) runVerify(ctx context.Context, flags *verifyFlags) error {
	const mostSent = 10_000
	switch {
	case flags.config == "" && flags.source == "" && len(flags.stores) == 0 && flags.autoscale == "":
		return usage.Errorf("nothing to check: pass --source, --store, --config or --autoscale")
	case flags.scale && flags.autoscale == "":
		return usage.Errorf("--scale is for the target of an autoscaler: pass --autoscale too")
	case flags.send < 0 || flags.send > mostSent:
		return usage.Errorf("--send %d: write a number from 0 to %d", flags.send, mostSent)
	case flags.hub != "" && flags.source == "":
		return usage.Errorf("--hub names the hub of --source: pass that too")
	}
	targets, err := verifyTargets(ctx, flags, verify.Options{ID: strings.ToLower(rand.Text()[:10]), Send: flags.send, Load: flags.load, Scale: flags.scale})
	if err != nil {
		return err
	}
	defer targets.Close()
	runner := &verify.Runner{
		Systems: targets.Systems,
		Confirm: func(plan []string) error { return a.confirmPlan(ctx, plan, flags.yes) },
		Progress: func(system, check string, number, of int) {
			a.screen.Status(fmt.Sprintf("%d of %d  %s  %s", number, of, check, system))
		},
	}
	report, err := runner.Run(ctx)
	a.screen.Status("")
	if err != nil {
		return err
	}
	report.Version = version()
	report.Redact(targets.Secrets)
	if err := a.printVerified(report, targets.Names, flags); err != nil {
		return &verdictError{cmp.Or(report.ExitCode(), verify.ExitUndecided), err.Error()}
	}
	switch report.ExitCode() {
	case verify.ExitDiffered:
		return &verdictError{verify.ExitDiffered, "something differs from what Sluice assumes"}
	case verify.ExitUndecided:
		return &verdictError{verify.ExitUndecided, "something could not be checked"}
	}
	return nil
}

// confirmPlan prints what will be created, and asks whether to continue.
func (a *app) confirmPlan(ctx context.Context, plan []string, yes bool) error {
	fmt.Fprintln(a.screen, "This will create, and remove at the end unless stated otherwise:")
	for _, line := range plan {
		fmt.Fprintf(a.screen, "  %s\n", line)
	}
	if yes {
		return nil
	}
	if !terminal.IsTerminal(int(os.Stdin.Fd())) {
		return usage.Errorf("there is no terminal to ask on: pass --yes")
	}
	fmt.Fprint(a.screen, "Continue? [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with the process if nothing is typed
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return errors.New("nothing was created or changed")
}

// printVerified prints the report, writes the file, and says how to send it.
func (a *app) printVerified(report *verify.Report, names []string, flags *verifyFlags) error {
	write := report.WriteText
	if flags.json {
		write = report.WriteJSON
	}
	if err := write(a.out); err != nil || flags.report == "" {
		return err
	}
	var text bytes.Buffer
	if err := report.Anonymous(names).WriteJSON(&text); err != nil {
		return err
	}
	err := create(flags.report, func(w io.Writer) error { _, err := w.Write(text.Bytes()); return err })
	if err == nil {
		fmt.Fprintf(a.screen, "The report is in %s, without secrets and names. Sluice's authors have no Azure of their own: please read the file and attach it to an issue, %s\n", flags.report, reportTo)
	}
	return err
}
