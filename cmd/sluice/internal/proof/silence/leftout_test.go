//go:build !postgres || !azurite

package silence

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: silent connections to PostgreSQL and to blobs (scripts/install-postgres and scripts/install-azurite, then go test -tags postgres,azurite ./cmd/sluice/internal/proof/silence, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
