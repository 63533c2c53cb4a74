package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// app is shared by all commands.
type app struct {
	out    io.Writer    // results
	screen *term.Screen // everything else
	log    *slog.Logger
	begun  bool // a command's own work has begun, so its flags and arguments were right
}

func execute(ctx context.Context, args []string) int {
	out := &output{writer: os.Stdout}
	a := &app{out: out, screen: term.NewScreen(os.Stderr)}
	a.log = slog.New(slog.NewTextHandler(a.screen, nil))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(a.screen)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.failed()
	}
	if err == nil {
		return 0
	}
	var mistake *usage.Error
	if !a.begun || errors.As(err, &mistake) {
		fmt.Fprintf(a.screen, "%s: %s; see %s --help\n", cmd.CommandPath(), oneLine(err), cmd.CommandPath())
		return exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(a.screen, "sluice: %s\n", line)
	}
	var verdict *verdictError
	if errors.As(err, &verdict) {
		return verdict.code
	}
	return exitFailed
}

// oneLine puts cobra's suggestions on the line of its message.
func oneLine(err error) string {
	text := strings.TrimSpace(err.Error())
	text = strings.Replace(text, "\n\nDid you mean this?\n\t", ", did you mean ", 1)
	return strings.Join(strings.Fields(text), " ")
}

// plainFlagError says what value a flag needs, where the parser's message is about Go's types.
func plainFlagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || errors.Is(err, strconv.ErrRange) {
		return err
	}
	wanted := ""
	switch invalid.GetFlag().Value.Type() {
	case "int", "int64":
		wanted = "a whole number"
	case "float64":
		wanted = "a number"
	case "duration":
		wanted = "a duration such as 30s, 10m or 1h30m"
	default:
		return err
	}
	return fmt.Errorf("--%s %s: write %s", invalid.GetFlag().Name, invalid.GetValue(), wanted)
}

// output is where results go. What producers send cannot act on a terminal: control
// characters are escaped, see [term.Escape]. A command fails if its results cannot be
// written.
type output struct {
	writer io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character
	err  error  // the first
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	whole := append(o.rest, text...)
	n := len(whole) - term.Unfinished(whole)
	_, err := o.writer.Write(term.Escape(nil, whole[:n]))
	o.rest = slices.Clone(whole[n:])
	if err != nil {
		o.err = cmp.Or(o.err, err)
		return 0, err
	}
	return len(text), nil
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (a *app) root() *cobra.Command {
	var format, level string
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Consume event hubs into SQL databases, so that each event takes effect exactly once",
		Long: `Consume event hubs into SQL databases, so that each event takes effect exactly once; or
into Cosmos DB, another hub, a queue or a topic, at least once.

Exit codes: 0 if the command did all that was asked for, 1 if it failed, 2 if its flags
or arguments were wrong, 3 if an audit or a check cannot decide. Results go to
standard output, everything else to standard error.

Each flag can be set by an environment variable: --log-level by SLUICE_LOG_LEVEL. A flag on
the command line wins. Not by variables: --all, --force and --yes, which must be written each
time, --help and --version.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := setByEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return a.setLog(format, level)
		},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // as the command version prints it
	root.SetFlagErrorFunc(plainFlagError)
	root.PersistentFlags().StringVar(&format, "log-format", "text", "format of log lines: `text` or json")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "lowest `level` to log: debug, info, warn or error")
	root.AddCommand(a.demo(), a.emulator(), a.run(), a.initCommand(), a.check(), a.schema(), a.send(), a.peek(), a.try(), a.test(), a.deadLetters(), a.checkpoints(), a.migrate(), a.move(), a.audit(), a.autoscale(), a.versionCommand(), a.manPages())
	a.refuseUnknownHelp(root)
	complete(root)
	return root
}

// refuseUnknownHelp makes help fail for a command that does not exist.
func (a *app) refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return fmt.Errorf("unknown command %q", strings.Join(args, " "))
		}
		return nil
	}
	a.helpFiles(root, help)
}

// variableOf is the variable that sets a flag.
func variableOf(flag string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setByEnvironment sets the flags that the command line leaves out and that a variable
// SLUICE_FLAG_NAME sets. An empty variable sets nothing.
func setByEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	never := append(otherWay(flags, lookup), "all", "force", "yes", "help", "version")
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(never, f.Name) {
			return
		}
		variable := variableOf(f.Name)
		value, _ := lookup(variable)
		if f.Changed || value == "" || err != nil {
			return
		}
		if failed := flags.Set(f.Name, value); failed != nil {
			err = fmt.Errorf("%s: %w", variable, plainFlagError(nil, failed))
		}
	})
	return err
}

// configFlag adds --config to a command that takes the file as its argument too.
func configFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "config", "", "the `PIPELINE.yaml`, as in all other commands; instead of the argument")
}

// fileOf returns the pipeline file of a command: its argument, or --config.
func fileOf(config string, args []string) (string, error) {
	switch {
	case len(args) == 1: // wins over SLUICE_CONFIG too
		return args[0], nil
	case config == "":
		return "", usage.Errorf("name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml; sluice init writes a new file")
	}
	return config, nil
}

// needs accepts least to most arguments, or any number from least on if most is 0; missing says
// what to pass.
func needs(least, most int, missing string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage.Errorf("%s", missing)
		case most > 0:
			return cobra.MaximumNArgs(most)(cmd, args)
		}
		return nil
	}
}

// durationAsText lets a line of JSON have 30.5s, as one of text has, and not a number of
// nanoseconds.
func durationAsText(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	}
	return attr
}

func (a *app) setLog(format, level string) error {
	var opts slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level %s: write debug, info, warn or error", level)
	}
	opts.Level = l
	switch format {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.screen, &opts))
	case "json":
		opts.ReplaceAttr = durationAsText
		a.log = slog.New(slog.NewJSONHandler(a.screen, &opts))
	default:
		return fmt.Errorf("--log-format %s: write text or json", format)
	}
	return nil
}

// runE adapts fn to cobra, and notes that the command has begun.
func (a *app) runE(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.begun = true
		return fn(cmd.Context(), args)
	}
}

// group is a command that only has subcommands.
func (a *app) group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			names := make([]string, len(members))
			for i, m := range members {
				names[i] = m.Name()
			}
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q: use one of %s", args[0], strings.Join(names, ", "))
			}
			return fmt.Errorf("choose one of %s", strings.Join(names, ", "))
		},
		RunE: a.runE(func(context.Context, []string) error { return nil }),
	}
	cmd.AddCommand(members...)
	return cmd
}
