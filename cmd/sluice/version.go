package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of a release build, set with -ldflags "-X main.release=v1.2.3".
var release string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: a.runE(func(context.Context, []string) error {
			_, err := fmt.Fprintln(a.out, "sluice", version())
			return err
		}),
	}
}

// version describes what this binary was built from: the version, the commit and Go's version.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(release, "unknown")
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
	text := cmp.Or(release, info.Main.Version, "(devel)")
	if commit != "" {
		text += fmt.Sprintf(" (commit %s%s)", commit, changed)
	}
	return text + " " + info.GoVersion
}
