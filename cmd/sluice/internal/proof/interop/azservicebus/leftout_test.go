//go:build !interop

package azservicebus

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the live tests of Azure's Service Bus client for Go (go test -tags interop ./cmd/sluice/internal/proof/interop/azservicebus, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
