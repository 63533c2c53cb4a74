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

// storageEnv is where Azure's own tools look for it too.
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
		Short: "Take over the checkpoints of another event processor",
		Long: `Take over the checkpoints that another event processor of the same hub and
consumer group has left in a container of Azure Blob Storage, so that this
pipeline goes on where that one stopped: those of the Azure SDKs for Go, .NET,
Java, JavaScript and Python, of Azure Functions, and of the older
EventProcessorHost. The container is only read.

The credentials for the container, in this order:
  - a shared access signature in the URL (?sv=…&sig=…) that allows to read and list;
  - the connection string of the storage account in ` + storageEnv + `;
    --from-blob may then be the container's name alone;
  - Entra ID: the environment's, a managed identity's, or that of az login, with
    the role Storage Blob Data Reader.

It refuses, before it has changed anything, while the other processor or a
consumer of this pipeline is at work on a partition; where this pipeline has a
checkpoint already; and where events behind the other's checkpoint have passed
retention. --force goes ahead in these cases: a consumer of this pipeline is
fenced off, and where events are gone it goes on with the oldest. A checkpoint
past the end of the hub is of another hub, and is refused in any case.`,
		Example: `  export ` + storageEnv + `="$(az storage account show-connection-string -n ACCOUNT -o tsv)"
  sluice checkpoints import --from-blob azure-webjobs-eventhub --config flights.yaml --dry-run`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			client, err := storage(f.from)
			if err != nil {
				return err
			}
			return atTable(ctx, f.config, f.stage, func(ctx context.Context, t *checkpoint.Table) error {
				return a.importCheckpoints(ctx, t, client, &f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `PIPELINE.yaml` whose checkpoints are set")
	stageFlag(flags, &f.stage)
	flags.StringVar(&f.from, "from-blob", "", "the `URL` of the container, https://ACCOUNT.blob.core.windows.net/CONTAINER")
	flags.StringVar(&f.prefix, "prefix", "", "what comes before the names of the blobs in the container, such as `FOLDER/`")
	flags.BoolVar(&f.json, "json", false, "print JSON, for scripts")
	flags.BoolVar(&f.force, "force", false, "even if a partition has an owner or a checkpoint, or events are gone")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would change, and change nothing")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagRequired("from-blob")
	return cmd
}

// storage makes a client of the container to import from.
func storage(from string) (*container.Client, error) {
	cfg := &blobstore.Config{}
	if !strings.Contains(from, "sig=") {
		cfg.ConnectionString = os.Getenv(storageEnv)
		switch {
		case cfg.ConnectionString != "":
		case !strings.Contains(from, "://"):
			return nil, usage.Errorf("--from-blob: the name of a container needs the storage account's connection string in " + storageEnv + "; or write its URL")
		case strings.HasPrefix(from, "https://"):
			credential, err := azidentity.NewDefaultAzureCredential(nil)
			if err != nil {
				return nil, fmt.Errorf("credentials of Entra ID: %w", blobstore.Plain(err))
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

// importCheckpoints plans all moves before it makes the first.
func (a *app) importCheckpoints(ctx context.Context, t *checkpoint.Table, client *container.Client, f *importFlags) error {
	found, err := azurecheckpoints.Read(ctx, client, f.prefix, t.Group)
	if err != nil {
		return fmt.Errorf("read checkpoints of other processors: %w", blobstore.Plain(err))
	}
	if len(found.Checkpoints) == 0 {
		return noneFound(t, found.Others)
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
		more = "; it has those of " + strings.Join(others[:min(len(others), shown)], ", ")
	}
	return fmt.Errorf("the container has no checkpoints of %v%s: look at hub and consumer group in the pipeline, and whether the blobs' names have a prefix (--prefix)", t.Group, more)
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
