package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	terminal "golang.org/x/term"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/check"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/pipeline"
)

// reportTo is where reports are sent.
const reportTo = "https://github.com/sluice-go/sluice/issues/new"

type checkFlags struct {
	config, stage              string
	source, hub, consumerGroup string
	stores                     []string
	autoscale                  string

	withoutSecrets, connect, write bool
	send                           int
	load, scale, yes, json         bool
	report                         string
}

func (a *app) check() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check {PIPELINE.yaml | --source … | --store … | --autoscale AUTOSCALER.yaml}",
		Short: "Check whether a pipeline, or what it connects to, will work: the file, its parts, the assumptions",
		Long: `Check whether a pipeline will work, or a hub, a database, a storage account, a Cosmos DB
container or an autoscaler without one. Each line of the result is ok, warning, failed,
undecided or skipped; it names the thing and the cause, and below it the next step.
docs/reference/checks.md lists all checks.

Without a flag, only the file is read.

With --connect also the parts are examined, in 15 seconds at most, while the pipeline runs
or not: whether each answers, what the credentials allow, clocks, certificates, Sluice's
tables, who owns which partition, retention, lag, dead letters, and other readers in the
same consumer group. Nothing is changed and no event is read in the pipeline's consumer
group. Two requests have a trace on the other side: an HTTP endpoint gets a POST without
events, and a HEAD.

With --write also the assumptions of Sluice are tested, in minutes, by writing into names
of its own. The command first asks which rights are missing, and changes nothing if one is.
Then it prints what it will create and asks whether to continue. It removes all that it
created, also after ^C or a failed check. Events that --send sends to a hub cannot be
removed. The hub is read in a consumer group that no other program uses. Create it first:
  az eventhubs eventhub consumer-group create --name sluice-check …

In a file with several stages, all are checked, or the one that --stage names; --write
checks one. With --without-secrets, environment variables may be missing, as in a build that
has no secrets: of values with such variables only the key is checked.

A store is one of
  sqlite:PATH
  postgres://user:password@host/database
  mysql:// or mariadb://user:password@host/database
  sqlserver://user:password@host?database=name, also with credential=default for Entra ID
  https://ACCOUNT.blob.core.windows.net/CONTAINER, with a signature, or with the
    connection string in ` + check.StorageVariable + `, or with Entra ID
  https://ACCOUNT.documents.azure.com:443/dbs/DATABASE/colls/CONTAINER, with the key in
    ` + check.CosmosKeyVariable + `, or with Entra ID
  env:NAME, for one of these in an environment variable

Exit codes: 0 if nothing failed, 1 if something did, 2 if the flags or arguments were wrong,
3 if something could not be checked.`,
		Example: `  sluice check flights.yaml
  sluice check stages.yaml --stage clean --connect --json
  sluice check flights.yaml --write --send 100 --load
  sluice check --source env:EVENTHUB_CONNECTION_STRING --hub flights --write --send 100
  sluice check --store env:DATABASE_URL --write --yes
  sluice check --autoscale orders.yaml --write --scale`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			if len(args) == 1 {
				flags.config = args[0]
			}
			if err := flags.mistake(); err != nil {
				return err
			}
			return undecided(ctx, a.runCheck(ctx, &flags))
		}),
	}
	f := cmd.Flags()
	configFlag(f, &flags.config)
	stageFlag(f, &flags.stage)
	f.BoolVar(&flags.connect, "connect", false, "also examine the parts, which changes nothing")
	f.BoolVar(&flags.write, "write", false, "also test the assumptions, by writing into names of its own")
	f.BoolVar(&flags.withoutSecrets, "without-secrets", false, "check only the file, whose environment variables may be missing")
	f.StringVar(&flags.source, "source", "", "the `hub`'s connection string, env:NAME for that in an environment variable,\nor the namespace's host name for Entra ID")
	f.StringVar(&flags.hub, "hub", "", "`name` of the hub of --source (default the connection string's EntityPath)")
	f.StringVar(&flags.consumerGroup, "consumer-group", "sluice-check", "`name` of the consumer group to read in")
	f.StringArrayVar(&flags.stores, "store", nil, "a `store`, see above; can be repeated")
	f.StringVar(&flags.autoscale, "autoscale", "", "an `AUTOSCALER.yaml`, whose metrics and target are checked")
	f.IntVar(&flags.send, "send", 0, "with --write: `number` of events to send to the hub, which stay there")
	f.BoolVar(&flags.load, "load", false, "with --write: also check throttling, which uses up the quota of the hub and the container for seconds")
	f.BoolVar(&flags.scale, "scale", false, "with --write: also check scaling, which changes the target's number of instances by one, and back")
	f.BoolVarP(&flags.yes, "yes", "y", false, "don't ask before something is created")
	f.BoolVar(&flags.json, "json", false, "print JSON")
	f.StringVar(&flags.report, "report", "sluice-check.json", "with --write: `file` for a report without names and secrets; empty: none")
	return cmd
}

// bare reports whether systems are named without a pipeline file.
func (c *checkFlags) bare() bool { return c.source != "" || len(c.stores) > 0 || c.autoscale != "" }

// mistake is what is wrong with the flags.
func (c *checkFlags) mistake() error {
	const mostSent = 10_000
	switch {
	case c.config == "" && !c.bare():
		return usage.Errorf("name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml, or --source, --store or --autoscale; sluice init writes a new file")
	case c.withoutSecrets && (c.connect || c.write || c.bare()):
		return usage.Errorf("--without-secrets checks only a pipeline file: leave out the other flags")
	case c.withoutSecrets && c.stage != "":
		return usage.Errorf("--without-secrets checks all stages of the file: leave out --stage")
	case c.hub != "" && c.source == "":
		return usage.Errorf("--hub names the hub of --source: pass that too")
	case c.scale && c.autoscale == "":
		return usage.Errorf("--scale is for the target of an autoscaler: pass --autoscale too")
	case c.send < 0 || c.send > mostSent:
		return usage.Errorf("--send %d: write a number from 0 to %d", c.send, mostSent)
	case !c.write && (c.send > 0 || c.load || c.scale):
		return usage.Errorf("--send, --load and --scale go with --write")
	}
	return nil
}

// runCheck goes as deep as the flags say, and stops where something failed.
func (a *app) runCheck(ctx context.Context, flags *checkFlags) error {
	began := time.Now()
	list, stages, err := checkFiles(ctx, flags)
	if err != nil {
		return err
	}
	if list.Count(check.Failed) == 0 && (flags.connect || flags.write) && len(stages) > 0 {
		list = append(list, check.Examiner{}.Examine(ctx, flags.config, stages)...)
	}
	if list.Count(check.Failed) == 0 && (flags.write || flags.bare()) {
		targets, err := checkTargets(ctx, flags, stages)
		if err != nil {
			return err
		}
		defer targets.Close()
		more, err := a.checkSystems(ctx, flags, targets)
		if err != nil {
			return err
		}
		for _, f := range more {
			if !slices.ContainsFunc(list, func(other check.Finding) bool {
				return f.Check == "rights" && f.Thing == other.Thing && f.Found == other.Found
			}) {
				list = append(list, f)
			}
		}
	}
	if flags.json {
		err = results.JSON(a.out, check.NewReport(flags.config, version(), began, list))
	} else {
		err = list.WriteText(a.out)
	}
	return checked(flags.config, list, err)
}

// checkFiles reads the files that the flags name. The error is one of usage.
func checkFiles(ctx context.Context, flags *checkFlags) (list check.List, stages []*pipeline.Pipeline, err error) {
	var mistake *usage.Error
	ok := check.Finding{Check: "file", State: check.OK}
	switch {
	case flags.withoutSecrets:
		missing, err := pipeline.CheckFile(flags.config)
		if err != nil {
			return check.OfFile(err, "sluice help pipeline"), nil, nil
		}
		ok.Thing, ok.Found = flags.config, "valid, and all variables are set"
		if len(missing) > 0 {
			ok.Found = "valid; not checked, because not set: " + strings.Join(missing, ", ")
		}
		return check.List{ok}, nil, nil
	case flags.config != "":
		stages, err = loadStages(ctx, flags.config, flags.stage)
		if errors.As(err, &mistake) {
			return nil, nil, err
		}
		if err != nil {
			return check.OfFile(err, "sluice help pipeline"), nil, nil
		}
		for _, p := range stages {
			ok.Thing, ok.Found = flags.config, fmt.Sprintf("valid: %s %s, consumer group %s", p.System.Noun(), p.Group.Topic, p.Group.Name)
			if len(stages) > 1 {
				ok.Stage = p.Name
			}
			list = append(list, ok)
		}
		if flags.write && len(stages) > 1 {
			return nil, nil, usage.Errorf("--write checks one stage of the file: pass --stage")
		}
	}
	if flags.autoscale != "" {
		if _, err := config.Load(flags.autoscale); err != nil {
			return append(list, check.OfFile(err, "sluice help autoscale-file")...), stages, nil
		}
		ok.Stage, ok.Thing, ok.Found = "", flags.autoscale, "valid"
		list = append(list, ok)
	}
	return list, stages, nil
}

// checkSystems tests the assumptions about systems, or what the credentials allow, or only their
// addresses.
func (a *app) checkSystems(ctx context.Context, flags *checkFlags, targets *check.Targets) (check.List, error) {
	switch {
	case !flags.connect && !flags.write:
		return targets.Addresses(), nil
	case !flags.write:
		return check.Examiner{}.Reach(ctx, targets), nil
	}
	runner := &check.Runner{
		Systems: targets.Systems,
		Confirm: func(plan []string) error { return a.confirmPlan(ctx, plan, flags.yes) },
		Progress: func(system, check string, number, of int) {
			a.screen.Status(fmt.Sprintf("%d of %d  %s  %s", number, of, check, system))
		},
	}
	began := time.Now()
	list, err := runner.Run(ctx)
	a.screen.Status("")
	if err != nil {
		return nil, err
	}
	list = list.Redact(targets.Secrets)
	if flags.report != "" {
		report := check.NewReport("", version(), began, list.Anonymous(targets.Names))
		if err := create(flags.report, func(w io.Writer) error { return results.JSON(w, report) }); err != nil {
			return nil, err
		}
		fmt.Fprintf(a.screen, "The report is in %s, without secrets and names. Sluice's authors have no Azure of their own: please read the file and attach it to an issue, %s\n", flags.report, reportTo)
	}
	return list, nil
}

// checked is the verdict as the command's error. failed is why the list could not be printed.
func checked(file string, list check.List, failed error) error {
	if file != "" {
		file += ": "
	}
	switch code := list.ExitCode(); {
	case failed != nil:
		return &verdictError{cmp.Or(code, check.ExitUndecided), failed.Error()}
	case code == check.ExitFailed:
		return &verdictError{code, fmt.Sprintf("%sfailed checks: %d", file, list.Count(check.Failed))}
	case code == check.ExitUndecided:
		return &verdictError{code, fmt.Sprintf("%sundecided checks: %d", file, list.Count(check.Undecided))}
	}
	return nil
}

// checkTargets reads the addresses.
func checkTargets(ctx context.Context, flags *checkFlags, stages []*pipeline.Pipeline) (targets *check.Targets, err error) {
	targets = check.NewTargets(check.Options{ID: strings.ToLower(rand.Text()[:10]), Send: flags.send, Load: flags.load, Scale: flags.scale}, nil)
	defer func() {
		if err != nil {
			targets.Close()
		}
	}()
	if flags.write && len(stages) == 1 {
		p := stages[0]
		if p.System == pipeline.EventHubs && strings.EqualFold(flags.consumerGroup, p.Group.Name) { // Azure ignores the case
			return targets, usage.Errorf("--consumer-group %s is the pipeline's own consumer group, whose readers would be disconnected: name another group", flags.consumerGroup)
		}
		if err := targets.AddPipeline(p.Connections(), flags.consumerGroup); err != nil {
			return targets, err
		}
	}
	if flags.source != "" {
		if err := targets.AddSource(flags.source, flags.hub, flags.consumerGroup); err != nil {
			return targets, usage.Errorf("--source: %v", err)
		}
	}
	for _, store := range flags.stores {
		if err := targets.AddStore(store); err != nil {
			return targets, usage.Errorf("--store: %v", err)
		}
	}
	if flags.autoscale != "" && (flags.connect || flags.write) {
		err = targets.AddAutoscaler(ctx, flags.autoscale)
	}
	return targets, err
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
