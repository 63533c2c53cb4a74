package pipeline

import (
	"context"
	"fmt"
	"maps"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// blobContainer stores leases, checkpoints and dead letters in Azure Blob Storage.
type blobContainer struct {
	where      string
	connection string
	credential string
	prefix     string
}

// signature matches a shared access signature or account key in the file itself.
var signature = regexp.MustCompile(`(?i)[?&]sig=[^&\s]|AccountKey\s*=\s*[^;\s]`)

// readBlob reads a container's URL with a signature, or a container with a
// connection string or credential. It returns nil if there is a problem.
func readBlob(n strictyaml.Node) *blobContainer {
	b := &blobContainer{}
	if !b.read(n, strictyaml.Keys{"prefix": b.readPrefix}) {
		return nil
	}
	return b
}

// read reads a container's URL with a signature, or a mapping of a container with a connection
// string or credential, and of more keys.
func (b *blobContainer) read(n strictyaml.Node, more strictyaml.Keys) bool {
	text := func(to *string) func(strictyaml.Node) {
		return func(n strictyaml.Node) {
			if signature.MatchString(n.Literal()) {
				n.Fail("holds a secret: put it into an environment variable and write ${BLOB_CONTAINER}, or ${STORAGE_CONNECTION_STRING}")
				return
			}
			n.Text(to)
		}
	}
	if !n.IsMapping() {
		text(&b.where)(n)
		return b.where != ""
	}
	keys := strictyaml.Keys{
		"container":  text(&b.where),
		"connection": text(&b.connection),
		"credential": func(n strictyaml.Node) { n.OneOf(&b.credential, "default") },
	}
	maps.Copy(keys, more)
	return n.Object(keys, "container") && b.where != ""
}

// readPrefix reads the beginning of the names of blobs, which not each use of a container has.
func (b *blobContainer) readPrefix(n strictyaml.Node) { n.Text(&b.prefix) }

func (b blobContainer) config() (*blobstore.Config, error) {
	cfg := &blobstore.Config{ConnectionString: b.connection, Prefix: b.prefix}
	if b.credential == "" {
		return cfg, nil
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	cfg.Credential = credential
	return cfg, nil
}

func (b blobContainer) open(ctx context.Context, _ *Pipeline, parts *Parts) error {
	store, err := b.store(ctx)
	if err != nil {
		return err
	}
	parts.Leases, parts.DeadLetters, parts.Checkpoints, parts.store = store.Leases(), store, store, store
	return nil
}

// store opens the container. It creates a missing one, which costs nothing.
func (b blobContainer) store(ctx context.Context) (*blobstore.Store, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	return blobstore.Open(ctx, b.where, cfg)
}

// inspect checks that the container responds.
func (b blobContainer) inspect(ctx context.Context) (catalog, func(), error) {
	exists, err := b.check(ctx)
	if err != nil || !exists {
		return nil, func() {}, err
	}
	return emptyCatalog{}, func() {}, nil
}

// check checks that the container can be listed, if it exists. It creates nothing.
func (b blobContainer) check(ctx context.Context) (exists bool, err error) {
	cfg, err := b.config()
	if err != nil {
		return false, err
	}
	return blobstore.Check(ctx, b.where, cfg)
}

// address returns what tools connect to.
func (b blobContainer) address() *BlobConnection {
	return &BlobConnection{b.where, b.connection, b.credential != "", b.prefix}
}
