package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// Stores are the stores of a consumer group, without its log and its target: nothing can be applied
// through them. They are for operators of programs that use the library and have no pipeline file.
// They are safe for concurrent use.
type Stores struct {
	Group       sluice.Group
	Leases      driver.LeaseStore
	DeadLetters driver.DeadLetterStore
	Checkpoints Checkpoints

	parts *Parts
}

// Close closes the stores.
func (s *Stores) Close(ctx context.Context) error { return s.parts.Close(ctx) }

// OpenDatabase opens the stores of a consumer group in a database, written as in a pipeline file:
// sqlite:PATH or a URL. Where a consumer would create the database or Sluice's tables, it fails; it
// migrates existing tables as a consumer does. Errors do not contain the password.
func OpenDatabase(ctx context.Context, address string, group sluice.Group) (*Stores, error) {
	db, err := parseDatabase(address)
	if err != nil {
		return nil, err
	}
	found, done, err := db.inspect(ctx)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, errors.New("the database does not exist: check its name")
	}
	columns, err := found.columns(ctx, checkpointTable)
	done()
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, fmt.Errorf("the database has no table %s: check its name, and the schema in search_path", checkpointTable)
	}
	return openStores(ctx, db, group)
}

// checkpointTable is a table that every database of Sluice has.
const checkpointTable = "sluice_checkpoints"

// OpenContainer opens the stores of a consumer group in a container of Azure Blob Storage, which
// must exist.
func OpenContainer(ctx context.Context, at BlobConnection, group sluice.Group) (*Stores, error) {
	b := blobContainer{where: at.Container, connection: at.Connection, prefix: at.Prefix}
	if at.Entra {
		b.credential = "default"
	}
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	client, err := blobstore.Connect(b.where, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := client.GetProperties(ctx, nil); bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return nil, fmt.Errorf("container %s: %w", name(client.URL()), blobstore.SafeError(err))
	}
	return openStores(ctx, b, group)
}

// storedGroup returns a group as it is written if the stores have it, else in the only other
// spelling that they have of it: whether the group's log ignores case is not known here.
func storedGroup(ctx context.Context, group sluice.Group, parts *Parts) (sluice.Group, error) {
	known, err := driver.Spellings(ctx, group, parts.Leases, parts.Checkpoints)
	if err == nil && len(known) == 1 {
		group = known[0]
	}
	return group, err
}

// name is a URL without its query, which may hold a signature.
func name(url string) string {
	plain, _, _ := strings.Cut(url, "?")
	return plain
}

func openStores(ctx context.Context, db database, group sluice.Group) (*Stores, error) {
	parts := &Parts{Group: group}
	if err := db.open(ctx, &Pipeline{Group: group}, parts); err != nil {
		return nil, err
	}
	group, err := storedGroup(ctx, group, parts)
	if err != nil {
		return nil, errors.Join(err, parts.Close(ctx))
	}
	return &Stores{group, parts.Leases, parts.DeadLetters, parts.Checkpoints, parts}, nil
}
