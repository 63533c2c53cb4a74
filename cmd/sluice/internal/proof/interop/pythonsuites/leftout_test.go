//go:build !interop_python

package pythonsuites

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests of Azure's Event Hubs and Service Bus clients for Python (scripts/install-interop-python, then go test -tags interop_python ./cmd/sluice/internal/proof/interop/pythonsuites, or make soak)"
	fmt.Println(notice)
	t.Log(notice)
}
