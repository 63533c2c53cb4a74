package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/internal/terminal"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// app is what all commands share.
type app struct {
	out    io.Writer        // results
	screen *terminal.Screen // everything else
	log    *slog.Logger
	begun  bool // a command's own work has begun: its usage was right
}

func execute(ctx context.Context, args []string) int {
	a := &app{out: os.Stdout, screen: terminal.NewScreen(os.Stderr)}
	a.log = slog.New(slog.NewTextHandler(a.screen, nil))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(os.Stdout)
	root.SetErr(a.screen)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var usage *usageError
	if !a.begun || errors.As(err, &usage) {
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

// usageError is a mistake in how a command was called.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func misused(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

func (a *app) root() *cobra.Command {
	var format, level string
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "Event hubs into SQL, every event's effect exactly once",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return a.setLog(format, level)
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.PersistentFlags().StringVar(&format, "log-format", "text", "log lines as `text` or json")
	root.PersistentFlags().StringVar(&level, "log-level", "info", "log from this `level` on: debug, info, warn or error")
	root.AddCommand(a.demo(), a.emulator(), a.run(), a.validate(), a.send(), a.deadLetters(), a.checkpoints(), a.audit(), a.autoscale(), a.version())
	return root
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
func (a *app) does(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.begun = true
		return fn(cmd.Context(), args)
	}
}

// family is a command that only holds others.
func (a *app) family(use, short string, members ...*cobra.Command) *cobra.Command {
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
		RunE: a.does(func(context.Context, []string) error { return nil }),
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
