package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

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

// app is what all commands share.
type app struct {
	out    io.Writer    // results
	screen *term.Screen // everything else
	log    *slog.Logger
	begun  bool // a command's own work has begun: its usage was right
}

func execute(ctx context.Context, args []string) int {
	out := &output{to: os.Stdout}
	a := &app{out: out, screen: term.NewScreen(os.Stderr)}
	a.log = slog.New(slog.NewTextHandler(a.screen, nil))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(os.Stdout)
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

// oneLine puts cobra's proposals behind its message.
func oneLine(err error) string {
	text := strings.TrimSpace(err.Error())
	text = strings.Replace(text, "\n\nDid you mean this?\n\t", ", did you mean ", 1)
	return strings.Join(strings.Fields(text), " ")
}

// plainly says what a flag wants, where the parser's own words are Go's.
func plainly(_ *cobra.Command, err error) error {
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
		wanted = "a time such as 30s, 10m or 1h30m"
	default:
		return err
	}
	return fmt.Errorf("--%s %s: write %s", invalid.GetFlag().Name, invalid.GetValue(), wanted)
}

// output is where results go. No command ends well whose results could not be
// written.
type output struct {
	to io.Writer

	mu  sync.Mutex
	err error // the first
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	if err != nil {
		o.mu.Lock()
		o.err = cmp.Or(o.err, err)
		o.mu.Unlock()
	}
	return n, err
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
		Short: "Event hubs into SQL, every event's effect exactly once",
		Long: `Event hubs into SQL, every event's effect exactly once; or into Cosmos DB, the next
hub, a queue or a topic, each at least once.

Every command exits with 0 if all that it was asked for is done, with 1 if not,
and with 2 if it was called wrongly; audits also exit with 2 if they can't tell.
Results go to standard output, all else to standard error.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return a.setLog(format, level)
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // as the command version prints it
	root.SetFlagErrorFunc(plainly)
	root.PersistentFlags().StringVar(&format, "log-format", "text", "log lines as `text` or json")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "log from this `level` on: debug, info, warn or error")
	root.AddCommand(a.demo(), a.emulator(), a.run(), a.validate(), a.send(), a.deadLetters(), a.checkpoints(), a.audit(), a.autoscale(), a.versionCommand())
	helpKnows(root)
	return root
}

// helpKnows has help refuse commands that there are none of.
func helpKnows(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return fmt.Errorf("there is no command %q", strings.Join(args, " "))
		}
		return nil
	}
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
		a.log = slog.New(slog.NewJSONHandler(a.screen, &opts))
	default:
		return fmt.Errorf("--log-format %s: write text or json", format)
	}
	return nil
}

// does makes a command's work of fn.
func (a *app) runE(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.begun = true
		return fn(cmd.Context(), args)
	}
}

// family is a command that only holds others.
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
				return fmt.Errorf("unknown command %q: there are %s", args[0], strings.Join(names, ", "))
			}
			return fmt.Errorf("say which: %s", strings.Join(names, ", "))
		},
		RunE: a.runE(func(context.Context, []string) error { return nil }),
	}
	cmd.AddCommand(members...)
	return cmd
}

// untilInterrupted is ctx until SIGINT or SIGTERM; a second signal ends the
// process at once.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
