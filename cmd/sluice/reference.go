package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/config/strictyaml/reference"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/pipeline"
)

// references are the kinds of files, by the names of their help and schema.
var references = []struct {
	topic, schema string
	file          func() *reference.File
}{
	{"pipeline", "pipeline", pipeline.Reference},
	{"autoscale-file", "autoscale", config.Reference},
}

func (a *app) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [pipeline|autoscale]",
		Short: "Print the JSON Schema of a pipeline file or an autoscaler's file",
		Long: `Print the JSON Schema (draft 2020-12) of a pipeline file, or of an autoscaler's file.
Editors with the YAML language server complete and check a file that begins with
  # yaml-language-server: $schema=pipeline.schema.json
sluice check checks more: values that depend on each other, and on the environment.`,
		Example: `  sluice schema > pipeline.schema.json
  sluice schema autoscale > autoscale.schema.json`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"pipeline", "autoscale"},
		RunE: a.runE(func(_ context.Context, args []string) error {
			kind := "pipeline"
			if len(args) > 0 {
				kind = args[0]
			}
			for _, r := range references {
				if r.schema == kind {
					_, err := a.out.Write(r.file().Schema())
					return err
				}
			}
			return usage.Errorf("%s: write pipeline or autoscale", kind)
		}),
	}
}

// helpWidth is how long a line of the reference is.
const helpWidth = 80

// helpFiles makes help know the files' keys.
func (a *app) helpFiles(root, help *cobra.Command) {
	commands := help.Run
	args := help.Args
	names := make([]string, len(references))
	for i, r := range references {
		names[i] = "sluice help " + r.topic
	}
	root.Long += "\n\nThe keys of files: " + strings.Join(names, ", ") + "."
	find := func(given []string) (*reference.File, string) {
		for _, r := range references {
			if len(given) > 0 && given[0] == r.topic {
				return r.file(), strings.Join(given[1:], ".")
			}
		}
		return nil, ""
	}
	help.Args = func(cmd *cobra.Command, given []string) error {
		f, section := find(given)
		if f == nil {
			return args(cmd, given)
		}
		if _, ok := f.Text(section, helpWidth); ok {
			return nil
		}
		names, _ := f.Sections()
		if near := humanize.Nearest(section, names); near != "" {
			return fmt.Errorf("no section %q, did you mean %s?", section, near)
		}
		return fmt.Errorf("no section %q: sluice help %s lists them", section, given[0])
	}
	help.Run = func(cmd *cobra.Command, given []string) {
		f, section := find(given)
		if f == nil {
			commands(cmd, given)
			return
		}
		text, _ := f.Text(section, helpWidth)
		fmt.Fprint(a.out, text)
	}
}
