//go:build !interop

package azeventhubs

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the live tests of Azure's Event Hubs client for Go (go test -tags interop ./cmd/sluice/internal/proof/interop/azeventhubs, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
