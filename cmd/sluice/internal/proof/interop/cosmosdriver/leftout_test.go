//go:build !interop

package cosmosdriver

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: an independent Cosmos DB server (scripts/install-cosmosdb-server, then go test -tags interop ./cmd/sluice/internal/proof/interop/cosmosdriver, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
