//go:build !interop

package cosmosdb

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: Azure's Cosmos clients for JavaScript and Python (scripts/install-interop, then go test -tags interop ./cmd/sluice/internal/proof/interop/cosmosdb, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
