package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of a release build, set with -ldflags "-X main.release=v1.2.3".
var release string

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version, the commit and its time, Go's version and the platform. The commit is
missing in a binary that go install built from a module of a proxy.`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(context.Context, []string) error {
			b := built()
			if !asJSON {
				_, err := fmt.Fprintln(a.out, "sluice", b)
				return err
			}
			e := json.NewEncoder(a.out)
			e.SetIndent("", "  ")
			return e.Encode(b)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// build is what this binary was built from, and for what.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`    // of the commit, in RFC 3339
	Changed bool   `json:"changed,omitempty"` // the files differed from the commit's
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func built() build {
	b := build{Version: cmp.Or(release, "unknown"), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(release, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	text := b.Version
	if b.Commit != "" {
		text += " (commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Date != "" {
			text += " of " + b.Date
		}
		if b.Changed {
			text += ", changed"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.OS + "/" + b.Arch
}

// version describes this binary on one line.
func version() string { return built().String() }
