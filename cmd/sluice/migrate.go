package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/pipeline"
)

func (a *app) migrate() *cobra.Command {
	var config, stage string
	var show, check bool
	cmd := &cobra.Command{
		Use:   "migrate --config PIPELINE.yaml [--print|--check]",
		Short: "Create Sluice's tables in the database, or bring them up to date",
		Long: `Create Sluice's tables in the database, or bring them up to date: leases, checkpoints and
dead letters, not the target's table. Run it as the owner of the tables, where the role of
the consumers may not create any.

With --print, nothing is connected to: it prints all migrations in their order, as files that
goose and golang-migrate read. Each has its own part of the output; the files in leases/ are
for the file PATH-leases of SQLite. For MariaDB the URL must begin with mariadb:.`,
		Example: "  sluice migrate --config flights.yaml\n  sluice migrate --config flights.yaml --print > review.sql\n  sluice migrate --config flights.yaml --check",
		Args:    cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if show && check {
				return usage.Errorf("--print and --check exclude each other")
			}
			ctx, stop := term.UntilInterrupted(ctx)
			defer stop()
			p, err := loadStageWithCheckpoints(ctx, config, stage)
			if err != nil {
				return err
			}
			return a.migratePipeline(ctx, p, show, check)
		}),
	}
	cmd.Flags().StringVar(&config, "config", "", "the `PIPELINE.yaml` that names the database")
	stageFlag(cmd.Flags(), &stage)
	cmd.Flags().BoolVar(&show, "print", false, "print the SQL, and change nothing")
	cmd.Flags().BoolVar(&check, "check", false, "exit with 1 if a migration is missing, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func (a *app) migratePipeline(ctx context.Context, p *pipeline.Pipeline, show, check bool) error {
	files, tables := p.Migrations()
	switch {
	case !tables:
		a.log.Info("nothing to migrate: the checkpoints are in a container, which has no tables")
		return nil
	case show:
		return a.printMigrations(files)
	case check:
		if err := p.CheckMigrations(ctx); err != nil {
			return err
		}
		a.log.Info("no migration is missing")
		return nil
	}
	if err := p.Migrate(ctx); err != nil {
		return err
	}
	a.log.Info("the tables are up to date")
	return nil
}

// printMigrations prints the files of a directory before those of the directories in it.
func (a *app) printMigrations(files fs.FS) error {
	for _, pattern := range []string{"*.sql", path.Join("*", "*.sql")} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "-- %s\n%s\n", name, text)
		}
	}
	return nil
}
