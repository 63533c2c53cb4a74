package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/pipeline"
)

// flagValues are the values of flags that have few, by the flags' names.
var flagValues = map[string][]string{
	"log-format":      {"text", "json"},
	"log-level":       {"debug", "info", "warn", "error"},
	"servicebus-tier": {tierStandard, tierPremium},
	"part":            {"collector", "logic", "scaler"},
}

// complete says what shells complete for the arguments and flags of all commands, by what
// their usage names: YAML files, other files, directories, stages.
func complete(cmd *cobra.Command) {
	for _, member := range cmd.Commands() {
		complete(member)
	}
	if cmd.ValidArgsFunction == nil && cmd.Runnable() {
		cmd.ValidArgsFunction = completeArguments(cmd.Use)
	}
	define := func(f *pflag.Flag) {
		if fn := completeFlag(f); fn != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, fn) // it fails only if the flag has one
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(define)
	cmd.PersistentFlags().VisitAll(define)
}

func completeArguments(use string) cobra.CompletionFunc {
	_, arguments, _ := strings.Cut(use, " ")
	positional, _, _ := strings.Cut(arguments, "--")
	switch {
	case strings.Contains(positional, ".yaml..."):
		return yamlFiles
	case strings.Contains(positional, ".yaml"):
		return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 1 && strings.Contains(positional, "[STAGE]"):
				return stageNames(cmd, args, prefix)
			case len(args) > 0:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return yamlFiles(cmd, args, prefix)
		}
	case strings.Contains(positional, "FILE"), strings.Contains(arguments, "[FILE"):
		return files
	}
	return cobra.NoFileCompletions
}

func completeFlag(f *pflag.Flag) cobra.CompletionFunc {
	if values := flagValues[f.Name]; values != nil {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	switch value, _ := pflag.UnquoteUsage(f); {
	case f.Name == "stage":
		return stageNames
	case strings.HasSuffix(value, ".yaml"):
		return yamlFiles
	case value == "file" || value == "FILE":
		return files
	case value == "directory":
		return directories
	case f.NoOptDefVal == "":
		return cobra.NoFileCompletions
	}
	return nil
}

func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// stageNames are the stages of the file that the command line names so far.
func stageNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	path, _ := cmd.Flags().GetString("config")
	if path == "" && len(args) > 0 {
		path = args[0]
	}
	f, err := pipeline.LoadFile(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, p := range f.Stages {
		if strings.HasPrefix(p.Name, prefix) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
