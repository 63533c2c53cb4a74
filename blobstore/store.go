package blobstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/driver"
)

// Config has the settings of a store. The zero value is ready to use.
type Config struct {
	// ConnectionString is the storage account's, with its key or a shared
	// access signature; "UseDevelopmentStorage=true" is Azurite on this
	// machine. Default: none.
	ConnectionString string
	// Credential gets tokens from Entra ID; its identity needs the role Storage
	// Blob Data Contributor on the container. Default: none.
	Credential azcore.TokenCredential
	// Prefix comes before all blob names, as it is; "sluice/" makes it a
	// folder. Default: none.
	Prefix string
	// Client sets up the connection: its transport, and how often a request
	// is repeated. Default: up to four tries of four seconds each.
	Client azcore.ClientOptions
}

// Store keeps checkpoints and dead letters. It is safe for concurrent use.
type Store struct {
	client *container.Client
	prefix string
	locks  blobLocks
}

var (
	_ driver.CheckpointStore = (*Store)(nil)
	_ driver.DeadLetterQueue = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
)

// Open connects to a container as [Connect] does, and creates it if it is
// missing. The context is for opening only. There is nothing to close.
func Open(ctx context.Context, where string, cfg *Config) (*Store, error) {
	client, err := Connect(where, cfg)
	if err != nil {
		return nil, err
	}
	return New(ctx, client, cfg)
}

// Check lists the container as [Open] does, and creates nothing: exists is false if Open would
// create it.
func Check(ctx context.Context, where string, cfg *Config) (exists bool, err error) {
	client, err := Connect(where, cfg)
	if err != nil {
		return false, err
	}
	s := &Store{client: client}
	if cfg != nil {
		s.prefix = cfg.Prefix
	}
	err = s.first(ctx)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open container %s: %w", place(client), safeError(err))
	}
	return true, nil
}

// New is [Open] with a client that the caller has made. Of cfg, which may be nil, it uses Prefix
// only.
func New(ctx context.Context, client *container.Client, cfg *Config) (*Store, error) {
	s := &Store{client: client}
	if cfg != nil {
		s.prefix = cfg.Prefix
	}
	if len(s.prefix) > maxPrefix || strings.HasPrefix(s.prefix, "/") {
		return nil, fmt.Errorf("prefix of blob names: at most %d bytes, and no slash at the start", maxPrefix)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("open container %s: %w", place(client), err)
	}
	return s, nil
}

// prepare checks that the container can be listed, and creates it if it is missing.
func (s *Store) prepare(ctx context.Context) error {
	for created := false; ; created = true {
		err := s.first(ctx)
		if !bloberror.HasCode(err, bloberror.ContainerNotFound) || created {
			return safeError(err)
		}
		if _, err := s.client.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return fmt.Errorf("create it: %w", safeError(err))
		}
	}
}

// first asks for one blob.
func (s *Store) first(ctx context.Context) error {
	one := int32(1)
	_, err := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &s.prefix, MaxResults: &one}).NextPage(ctx)
	return err
}

// Leases returns the lease store over the same blobs.
func (s *Store) Leases() *Leases { return &Leases{store: s} }

// blobLocks serialises the operations of this process on each blob, so that they do not make each
// other start again.
type blobLocks struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// take waits for the lock of a blob; done releases it.
func (t *blobLocks) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	if t.busy == nil {
		t.busy = make(map[string]chan struct{})
	}
	turn, ok := t.busy[name]
	if !ok {
		turn = make(chan struct{}, 1)
		t.busy[name] = turn
	}
	t.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
