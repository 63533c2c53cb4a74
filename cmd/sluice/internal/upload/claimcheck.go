package upload

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/sender"
)

// StorageVariable is the environment variable with the connection string of a storage account.
const StorageVariable = "AZURE_STORAGE_CONNECTION_STRING"

// claimCheck returns where large bodies are stored; nil if they are sent. It checks the container.
func (d *Destination) claimCheck(ctx context.Context) (*sender.ClaimCheck, error) {
	if d.Container == "" {
		return nil, nil
	}
	where := d.Container
	if name, ok := strings.CutPrefix(where, "env:"); ok {
		if where = os.Getenv(name); where == "" {
			return nil, usage.Errorf("--claim-check: the environment variable %s is not set: put the container's URL there", name)
		}
	}
	cfg := &blobstore.BodiesConfig{}
	cfg.ConnectionString = os.Getenv(StorageVariable)
	isURL := strings.Contains(where, "://")
	switch {
	case !isURL && cfg.ConnectionString == "":
		return nil, usage.Errorf("--claim-check %s: the name of a container needs %s: set it, or write the container's URL", where, StorageVariable)
	case isURL && strings.Contains(where, "?"):
		cfg.ConnectionString = "" // the URL has a signature
	case isURL && cfg.ConnectionString == "":
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		cfg.Credential = credential
	}
	bodies, err := blobstore.NewBodies(where, cfg)
	if err == nil {
		err = bodies.Check(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("--claim-check: %w", err)
	}
	return &sender.ClaimCheck{Store: bodies, Over: d.ClaimOver}, nil
}
