package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/pipeline"
)

// groupSource is a consumer group of Kafka. With force, its members may still be reading.
type groupSource struct {
	name  string
	force bool
}

func (s groupSource) read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	source := t.Source
	if shared, is := source.(*health.SharedSource); is {
		source = shared.Source
	}
	log, ok := source.(interface {
		ConsumerGroup(ctx context.Context, name string) (kafka.ConsumerGroup, error)
	})
	if !ok {
		return azurecheckpoints.Found{}, usage.Errorf("--from-group is for topics of Kafka, and the pipeline reads a hub: pass --from-blob or --from-table")
	}
	group, err := log.ConsumerGroup(ctx, s.name)
	if err != nil {
		return azurecheckpoints.Found{}, err
	}
	owner := ""
	if members := group.Members; len(members) > 0 {
		if !s.force {
			return azurecheckpoints.Found{}, fmt.Errorf("consumer group %s is still read by %s: stop the group's consumers and wait a minute, or use --force",
				s.name, some(members))
		}
		owner = members[0]
	}
	var found azurecheckpoints.Found
	for partition, at := range group.Positions {
		found.Checkpoints = append(found.Checkpoints, azurecheckpoints.Checkpoint{
			Partition: partition, Sequence: at.Sequence, Offset: at.Offset, Origin: at.Sequence < 0, Owner: owner,
		})
	}
	number := func(c azurecheckpoints.Checkpoint) int { n, _ := strconv.Atoi(c.Partition); return n }
	slices.SortFunc(found.Checkpoints, func(a, b azurecheckpoints.Checkpoint) int { return number(a) - number(b) })
	return found, nil
}

func (s groupSource) none(group sluice.Group, _ []string) error {
	return fmt.Errorf("consumer group %s has no offsets of topic %s: check both names", s.name, group.Topic)
}

func (groupSource) close() {}

// storageEnv is the variable that Azure's own tools use too.
const storageEnv = "AZURE_STORAGE_CONNECTION_STRING"

// blobSource is a container of Azure Blob Storage.
type blobSource struct {
	client *container.Client
	prefix string
}

// blobs returns the container to import from.
func (f *importFlags) blobs() (importSource, error) {
	cfg := &blobstore.Config{}
	if !strings.Contains(f.blob, "sig=") {
		cfg.ConnectionString = os.Getenv(storageEnv)
		switch {
		case cfg.ConnectionString != "":
		case !strings.Contains(f.blob, "://"):
			return nil, usage.Errorf("--from-blob: a container's name needs the storage account's connection string in " + storageEnv + "; or pass the container's URL")
		case strings.HasPrefix(f.blob, "https://"):
			credential, err := azidentity.NewDefaultAzureCredential(nil)
			if err != nil {
				return nil, fmt.Errorf("credentials of Entra ID: %w", blobstore.SafeError(err))
			}
			cfg.Credential = credential
		}
	}
	client, err := blobstore.Connect(f.blob, cfg)
	if err != nil {
		return nil, fmt.Errorf("--from-blob: %w", err)
	}
	return blobSource{client, f.prefix}, nil
}

func (s blobSource) read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	found, err := azurecheckpoints.Read(ctx, s.client, s.prefix, t.Group)
	if err != nil {
		return found, fmt.Errorf("read checkpoints of other processors: %w", blobstore.SafeError(err))
	}
	return found, nil
}

func (blobSource) none(group sluice.Group, others []string) error {
	return fmt.Errorf("the container has no checkpoints of %v%s: check the hub and the consumer group of the pipeline, and whether the blobs' names have a prefix (--prefix)", group, othersHint(others))
}

func (blobSource) close() {}

// some lists a few.
func some(list []string) string {
	const shown = 5
	return strings.Join(list[:min(len(list), shown)], ", ")
}

// othersHint says which others have checkpoints.
func othersHint(others []string) string {
	if len(others) == 0 {
		return ""
	}
	return "; it has checkpoints of " + some(others)
}

// tableSource is a table of a database.
type tableSource struct {
	db           *sql.DB
	table, topic string
}

// rows returns the table to import from.
func (f *importFlags) rows() (importSource, error) {
	address := f.from
	if name, ok := strings.CutPrefix(address, "env:"); ok {
		if address = strings.TrimSpace(os.Getenv(name)); address == "" {
			return nil, usage.Errorf("--from-table: the environment variable %s is not set", name)
		}
	}
	db, err := pipeline.OpenReader(address)
	if err != nil {
		return nil, usage.Errorf("--from-table: %v", err)
	}
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		path = strings.TrimPrefix(path, "//")
		if _, err := os.Stat(path); err != nil { // the driver's error does not name the file
			_ = db.Close()
			return nil, fmt.Errorf("--from-table: open %s: %w: correct the path", path, errors.Unwrap(err))
		}
	}
	return tableSource{db, f.table, f.topic}, nil
}

func (s tableSource) read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	found, err := azurecheckpoints.ReadTable(ctx, s.db, s.table, cmp.Or(s.topic, t.Group.Topic))
	if err != nil {
		return found, fmt.Errorf("read checkpoints of another consumer: %w", err)
	}
	return found, nil
}

func (s tableSource) none(group sluice.Group, others []string) error {
	return fmt.Errorf("the table %s has no checkpoints of %s%s: check the hub of the pipeline, or name the topic of the rows with --topic", s.table, cmp.Or(s.topic, group.Topic), othersHint(others))
}

func (s tableSource) close() { _ = s.db.Close() }
