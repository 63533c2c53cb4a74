package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) validate() *cobra.Command {
	var offline bool
	var stage string
	cmd := &cobra.Command{
		Use:   "validate PIPELINE.yaml",
		Short: "Check a pipeline without running it",
		Long: `Check a pipeline: the file first, then whether the hub and the database answer, and
whether the table has the right columns. In a file with several stages, all are
checked, or the one that --stage names. Nothing is changed. Each problem is printed on
one line.`,
		Args: cobra.ExactArgs(1),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			ctx, stop := untilInterrupted(ctx)
			defer stop()
			stages, err := loadStages(args[0], stage)
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
				fmt.Fprintf(a.out, "%s: valid: %s%s %s, consumer group %s\n", args[0], prefix(p, stages), p.System.Noun(), p.Group.Topic, p.Group.Name)
			}
			return nil
		}),
	}
	stageFlag(cmd.Flags(), &stage)
	cmd.Flags().BoolVar(&offline, "offline", false, "check only the file, connect to nothing")
	return cmd
}
