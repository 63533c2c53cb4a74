package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

type importFlags struct {
	config string
	stage  string
	group  string
	blob   string
	prefix string
	from   string
	table  string
	topic  string
	json   bool
	force  bool
	dryRun bool
}

// importSource is where another processor keeps its checkpoints.
type importSource interface {
	read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error)
	// none is the error if there are none; others are those of other groups or topics.
	none(group sluice.Group, others []string) error
	close()
}

func (f *importFlags) source() (importSource, error) {
	given := 0
	for _, flag := range []string{f.group, f.blob, f.from} {
		if flag != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, usage.Errorf("name where the checkpoints are: --from-group GROUP, --from-blob CONTAINER-URL or --from-table DATABASE-URL")
	case f.group != "" && (f.prefix != "" || f.topic != "" || f.table != azurecheckpoints.PublishedTable):
		return nil, usage.Errorf("--prefix is for --from-blob, --table and --topic are for --from-table")
	case f.group != "":
		return groupSource{f.group, f.force}, nil
	case f.blob != "" && (f.topic != "" || f.table != azurecheckpoints.PublishedTable):
		return nil, usage.Errorf("--table and --topic are for --from-table")
	case f.blob != "":
		return f.blobs()
	case f.prefix != "":
		return nil, usage.Errorf("--prefix is for --from-blob")
	}
	return f.rows()
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
and of the former SDKs for Go and Python. These two may name blobs by the partition
alone: then --prefix says which are this consumer group's.

Credentials for the container, in this order:
  - a shared access signature in the URL (?sv=…&sig=…) with the rights read and list;
  - the connection string of the storage account in ` + storageEnv + `;
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
  export ` + storageEnv + `="$(az storage account show-connection-string -n ACCOUNT -o tsv)"
  sluice checkpoints import --from-blob azure-webjobs-eventhub --config flights.yaml --dry-run
  sluice checkpoints import --from-table env:OLD_DATABASE_URL --config flights.yaml --dry-run`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			source, err := f.source()
			if err != nil {
				return err
			}
			defer source.close()
			return withTable(ctx, f.config, f.stage, f.dryRun, func(ctx context.Context, t *checkpoint.Table) error {
				return a.importCheckpoints(ctx, t, source, &f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `PIPELINE.yaml` that gets the checkpoints")
	stageFlag(flags, &f.stage)
	flags.StringVar(&f.group, "from-group", "", "`name` of a consumer group of Kafka")
	flags.StringVar(&f.blob, "from-blob", "", "the `URL` of the container, https://ACCOUNT.blob.core.windows.net/CONTAINER")
	flags.StringVar(&f.prefix, "prefix", "", "`prefix` of the blobs' names in the container, such as FOLDER/")
	flags.StringVar(&f.from, "from-table", "", "the `URL` of the database, or env:NAME for that in an environment variable")
	flags.StringVar(&f.table, "table", azurecheckpoints.PublishedTable, "`name` of the table in the database")
	flags.StringVar(&f.topic, "topic", "", "`topic` of the rows in the table (default the pipeline's hub)")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.force, "force", false, "also if a partition has an owner or a checkpoint, or events are gone")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// importCheckpoints plans all moves before it makes the first one.
func (a *app) importCheckpoints(ctx context.Context, t *checkpoint.Table, source importSource, f *importFlags) error {
	found, err := source.read(ctx, t)
	if err != nil {
		return err
	}
	if len(found.Checkpoints) == 0 {
		return source.none(t.Group, found.Others)
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
