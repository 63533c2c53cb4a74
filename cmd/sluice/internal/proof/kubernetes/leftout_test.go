//go:build !kubernetes

package kubernetes

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the Helm chart and the Kustomize manifests on an API server (scripts/install-kubernetes, then go test -tags kubernetes ./cmd/sluice/internal/proof/kubernetes, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
