package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/move"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

type importFlags struct {
	config string
	stage  string
	origin move.Origin
	json   bool
	force  bool
	dryRun bool
}

// fromFlags are the flags that name where another consumer keeps its positions.
func fromFlags(flags *pflag.FlagSet, f *move.Origin) {
	flags.StringVar(&f.Group, "from-group", "", "`name` of a consumer group of Kafka")
	flags.StringVar(&f.Blob, "from-blob", "", "the `URL` of the container, https://ACCOUNT.blob.core.windows.net/CONTAINER")
	flags.StringVar(&f.Prefix, "prefix", "", "`prefix` of the blobs' names in the container, such as FOLDER/")
	flags.StringVar(&f.Database, "from-table", "", "the `URL` of the database, or env:NAME for that in an environment variable")
	flags.StringVar(&f.Table, "table", azurecheckpoints.PublishedTable, "`name` of the table in the database")
	flags.StringVar(&f.Topic, "topic", "", "`topic` of the rows in the table (default the pipeline's hub)")
}

func (a *app) checkpointsImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import {--from-group GROUP|--from-blob CONTAINER-URL|--from-table DATABASE-URL} --config PIPELINE.yaml",
		Short: "Import the checkpoints of another event processor",
		Long: `Import the checkpoints that another event processor of the same hub and consumer group
keeps in a container of Azure Blob Storage or in a database, so that this pipeline
continues where that processor stopped. What is imported is only read.

For a topic of Kafka (--from-group) they are the committed offsets of a consumer group,
with the leader epochs that were committed with them. Transactions that commit offsets are
waited for.

In a container (--from-blob) the checkpoints can be those of the Azure SDKs for Go, .NET,
Java, JavaScript and Python, of Azure Functions, of Dapr, of the older EventProcessorHost,
of the former SDKs for Go and Python, and of the fixed-partition processor. Those for
Go and Python may name blobs by the partition alone: then --prefix says which are this
consumer group's.

Credentials for the container, in this order:
  - a shared access signature in the URL (?sv=…&sig=…) with the rights read and list;
  - the connection string of the storage account in ` + move.StorageEnv + `;
    --from-blob can then be only the container's name;
  - Entra ID: from the environment, a managed identity, or az login, with the role
    Storage Blob Data Reader.

In a database (--from-table) they are the rows of a table with the columns Topic,
PartitionID, SequenceNumber and Offset, such as the published ` + azurecheckpoints.PublishedTable + ` of a
consumer that keeps its checkpoints in SQL Server. The database is written as in a
pipeline file: sqlserver://user:password@host?database=name, postgres://, mysql://,
mariadb:// or sqlite:PATH; env:NAME takes it from an environment variable. The table says
neither the consumer group nor whether a consumer still runs: stop it first.

The command refuses to change anything if
  - the other processor, or a consumer of this pipeline, still reads a partition; of a
    consumer group of Kafka, if it has a member at all;
  - this pipeline has a checkpoint already;
  - events after the other processor's checkpoint have passed retention.
With --force it continues in these cases: a consumer of this pipeline is fenced, and
where events are gone, reading continues with the oldest event. A checkpoint past the
end of the log belongs to another hub or topic and is always refused. With --dry-run neither the
other processor nor the consumer is disturbed; what is printed then goes by the hub's
runtime information, which can be seconds old.`,
		Example: `  sluice checkpoints import --from-group flights-writer --config kafka.yaml --dry-run
  export ` + move.StorageEnv + `="$(az storage account show-connection-string -n ACCOUNT -o tsv)"
  sluice checkpoints import --from-blob azure-webjobs-eventhub --config flights.yaml --dry-run
  sluice checkpoints import --from-table env:OLD_DATABASE_URL --config flights.yaml --dry-run`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			f.origin.Active = f.force
			source, err := f.origin.Open()
			if err != nil {
				return err
			}
			defer source.Close()
			return withTable(ctx, f.config, f.stage, f.dryRun, func(ctx context.Context, t *checkpoint.Table) error {
				return a.importCheckpoints(ctx, t, source, &f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `PIPELINE.yaml` that gets the checkpoints")
	stageFlag(flags, &f.stage)
	fromFlags(flags, &f.origin)
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.force, "force", false, "also if a partition has an owner or a checkpoint, or events are gone")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// importCheckpoints plans all moves before it makes the first one.
func (a *app) importCheckpoints(ctx context.Context, t *checkpoint.Table, source move.Source, f *importFlags) error {
	found, err := source.Read(ctx, t)
	if err != nil {
		return err
	}
	if len(found.Checkpoints) == 0 {
		return source.None(t.Group, found.Others)
	}
	moves := make([]checkpoint.Move, len(found.Checkpoints))
	var refused []error
	for i, c := range found.Checkpoints {
		if moves[i], err = t.PlanImport(ctx, foreign(c), f.force); err != nil {
			refused = append(refused, err)
		}
	}
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	if !f.dryRun {
		for i, c := range found.Checkpoints {
			if moves[i], err = t.Import(ctx, foreign(c), f.force); err != nil {
				return afterOthers(err, i)
			}
		}
	}
	if f.json {
		return results.JSON(a.out, results.DescribeImports(found.Checkpoints, moves))
	}
	return results.ImportTable(a.out, found.Checkpoints, moves, missing(ctx, t, found.Checkpoints), f.dryRun)
}

func foreign(c azurecheckpoints.Checkpoint) checkpoint.Foreign {
	return checkpoint.Foreign{Partition: c.Partition, Sequence: c.Sequence, Offset: c.Offset, Origin: c.Origin, Owner: humanize.Shorten(c.Owner, 100)}
}

// missing lists the log's partitions without a checkpoint to import.
func missing(ctx context.Context, t *checkpoint.Table, found []azurecheckpoints.Checkpoint) []string {
	topic, err := t.Source.Describe(ctx)
	if err != nil { // the hub answered a moment ago: the list is only a hint
		return nil
	}
	return slices.DeleteFunc(topic.Partitions, func(p string) bool {
		return slices.ContainsFunc(found, func(c azurecheckpoints.Checkpoint) bool { return c.Partition == p })
	})
}
