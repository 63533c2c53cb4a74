package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/internal/humanize"
)

// storageEnv is the variable that Azure's own tools use too.
const storageEnv = "AZURE_STORAGE_CONNECTION_STRING"

type importFlags struct {
	config string
	stage  string
	from   string
	prefix string
	json   bool
	force  bool
	dryRun bool
}

func (a *app) checkpointsImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --from-blob CONTAINER-URL --config PIPELINE.yaml",
		Short: "Import the checkpoints of another event processor",
		Long: `Import the checkpoints that another event processor of the same hub and consumer group
keeps in a container of Azure Blob Storage, so that this pipeline continues where that
processor stopped. The checkpoints can be those of the Azure SDKs for Go, .NET, Java,
JavaScript and Python, of Azure Functions, of Dapr, of the older EventProcessorHost,
and of the former SDKs for Go and Python. These two may name blobs by the partition
alone: then --prefix says which are this consumer group's. The container is only read.

Credentials for the container, in this order:
  - a shared access signature in the URL (?sv=…&sig=…) with the rights read and list;
  - the connection string of the storage account in ` + storageEnv + `;
    --from-blob can then be only the container's name;
  - Entra ID: from the environment, a managed identity, or az login, with the role
    Storage Blob Data Reader.

The command refuses to change anything if
  - the other processor, or a consumer of this pipeline, still reads a partition;
  - this pipeline has a checkpoint already;
  - events after the other processor's checkpoint have passed retention.
With --force it continues in these cases: a consumer of this pipeline is fenced, and
where events are gone, reading continues with the oldest event. A checkpoint past the
end of the hub belongs to another hub and is always refused. With --dry-run neither the
other processor nor the consumer is disturbed; what is printed then goes by the hub's
runtime information, which can be seconds old.`,
		Example: `  export ` + storageEnv + `="$(az storage account show-connection-string -n ACCOUNT -o tsv)"
  sluice checkpoints import --from-blob azure-webjobs-eventhub --config flights.yaml --dry-run`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			client, err := storage(f.from)
			if err != nil {
				return err
			}
			return withTable(ctx, f.config, f.stage, func(ctx context.Context, t *checkpoint.Table) error {
				return a.importCheckpoints(ctx, t, client, &f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `PIPELINE.yaml` that gets the checkpoints")
	stageFlag(flags, &f.stage)
	flags.StringVar(&f.from, "from-blob", "", "the `URL` of the container, https://ACCOUNT.blob.core.windows.net/CONTAINER")
	flags.StringVar(&f.prefix, "prefix", "", "`prefix` of the blobs' names in the container, such as FOLDER/")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.force, "force", false, "also if a partition has an owner or a checkpoint, or events are gone")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagRequired("from-blob")
	return cmd
}

// storage makes a client for the container to import from.
func storage(from string) (*container.Client, error) {
	cfg := &blobstore.Config{}
	if !strings.Contains(from, "sig=") {
		cfg.ConnectionString = os.Getenv(storageEnv)
		switch {
		case cfg.ConnectionString != "":
		case !strings.Contains(from, "://"):
			return nil, usage.Errorf("--from-blob: a container's name needs the storage account's connection string in " + storageEnv + "; or pass the container's URL")
		case strings.HasPrefix(from, "https://"):
			credential, err := azidentity.NewDefaultAzureCredential(nil)
			if err != nil {
				return nil, fmt.Errorf("credentials of Entra ID: %w", blobstore.SafeError(err))
			}
			cfg.Credential = credential
		}
	}
	client, err := blobstore.Connect(from, cfg)
	if err != nil {
		return nil, fmt.Errorf("--from-blob: %w", err)
	}
	return client, nil
}

// importCheckpoints plans all moves before it makes the first one.
func (a *app) importCheckpoints(ctx context.Context, t *checkpoint.Table, client *container.Client, f *importFlags) error {
	found, err := azurecheckpoints.Read(ctx, client, f.prefix, t.Group)
	if err != nil {
		return fmt.Errorf("read checkpoints of other processors: %w", blobstore.SafeError(err))
	}
	if len(found.Checkpoints) == 0 {
		return noneFound(t, found.Others)
	}
	t.DryRun = f.dryRun
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
				return err
			}
		}
	}
	if f.json {
		return results.JSON(a.out, results.DescribeImports(found.Checkpoints, moves))
	}
	return results.ImportTable(a.out, found.Checkpoints, moves, missing(ctx, t, found.Checkpoints), f.dryRun)
}

func noneFound(t *checkpoint.Table, others []string) error {
	const shown = 5
	more := ""
	if len(others) > 0 {
		more = "; it has checkpoints of " + strings.Join(others[:min(len(others), shown)], ", ")
	}
	return fmt.Errorf("the container has no checkpoints of %v%s: check the hub and the consumer group of the pipeline, and whether the blobs' names have a prefix (--prefix)", t.Group, more)
}

func foreign(c azurecheckpoints.Checkpoint) checkpoint.Foreign {
	return checkpoint.Foreign{Partition: c.Partition, Sequence: c.Sequence, Offset: c.Offset, Owner: humanize.Shorten(c.Owner, 100)}
}

// missing lists the hub's partitions without a checkpoint to import.
func missing(ctx context.Context, t *checkpoint.Table, found []azurecheckpoints.Checkpoint) []string {
	topic, err := t.Source.Describe(ctx)
	if err != nil { // the hub answered a moment ago: the list is only a hint
		return nil
	}
	return slices.DeleteFunc(topic.Partitions, func(p string) bool {
		return slices.ContainsFunc(found, func(c azurecheckpoints.Checkpoint) bool { return c.Partition == p })
	})
}
