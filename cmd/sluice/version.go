package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: a.runE(func(context.Context, []string) error {
			_, err := fmt.Fprintln(a.out, "sluice", build())
			return err
		}),
	}
}

// build describes what this binary was built from.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var commit, changed string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				changed = ", changed"
			}
		}
	}
	text := cmp.Or(info.Main.Version, "(devel)")
	if commit != "" {
		text += fmt.Sprintf(" (commit %s%s)", commit, changed)
	}
	return text + " " + info.GoVersion
}
