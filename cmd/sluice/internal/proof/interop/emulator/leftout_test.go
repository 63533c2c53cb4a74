//go:build !interop

package emulator

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: Azure's clients for JavaScript and Python, of event hubs and Service Bus (scripts/install-interop, then go test -tags interop ./cmd/sluice/internal/proof/interop/emulator, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
