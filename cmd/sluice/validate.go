package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/term"
	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) validate() *cobra.Command {
	var offline, withoutSecrets bool
	var config, stage string
	cmd := &cobra.Command{
		Use:   "validate {PIPELINE.yaml|--config PIPELINE.yaml}",
		Short: "Check a pipeline without running it",
		Long: `Check a pipeline: the file first, then whether the hub and the database answer, and
whether the table has the right columns. In a file with several stages, all are
checked, or the one that --stage names. Nothing is changed. Each problem is printed on
one line.

With --without-secrets, environment variables may be missing, as in a build that has no
secrets: only the file is checked, and of values with such variables only the key. A value
that depends on one cannot be checked.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			path, err := fileOf(config, args)
			if err != nil {
				return err
			}
			if withoutSecrets {
				return a.validateWithoutSecrets(path, stage)
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			stages, err := loadStages(path, stage)
			if err != nil {
				return err
			}
			if !offline {
				errs := make([]error, len(stages))
				for i, p := range stages {
					errs[i] = p.Check(ctx)
				}
				if err := errors.Join(errs...); err != nil {
					return err
				}
			}
			for _, p := range stages {
				fmt.Fprintf(a.out, "%s: valid: %s%s %s, consumer group %s\n", path, prefix(p, stages), p.System.Noun(), p.Group.Topic, p.Group.Name)
			}
			return nil
		}),
	}
	configFlag(cmd.Flags(), &config)
	stageFlag(cmd.Flags(), &stage)
	cmd.Flags().BoolVar(&withoutSecrets, "without-secrets", false, "check only the file, whose environment variables may be missing")
	cmd.Flags().BoolVar(&offline, "offline", false, "check only the file, connect to nothing")
	return cmd
}

// validateWithoutSecrets checks a file as far as the variables that are set allow.
func (a *app) validateWithoutSecrets(path, stage string) error {
	if stage != "" {
		return usage.Errorf("--without-secrets checks all stages of the file: leave out --stage")
	}
	missing, err := pipeline.CheckFile(path)
	if err != nil {
		return err
	}
	text := "all environment variables are set"
	if len(missing) > 0 {
		text = "not checked, because not set: " + strings.Join(missing, ", ")
	}
	fmt.Fprintf(a.out, "%s: valid: %s\n", path, text)
	return nil
}
