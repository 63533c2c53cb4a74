package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) validate() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "validate PIPELINE.yaml",
		Short: "Check a pipeline without running it",
		Long: `Check a pipeline: the file, then whether the hub and the database answer and the
table fits. Nothing is changed. Each problem is one line.`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			ctx, stop := untilInterrupted(ctx)
			defer stop()
			p, err := pipeline.Load(args[0])
			if err != nil {
				return err
			}
			if !offline {
				if err := p.Check(ctx); err != nil {
					return err
				}
			}
			fmt.Fprintf(a.out, "%s: sound: hub %s, consumer group %s\n", args[0], p.Group.Topic, p.Group.Name)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "check the file alone")
	return cmd
}
