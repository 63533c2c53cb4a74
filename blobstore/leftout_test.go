//go:build !azurite

package blobstore_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need Azurite (scripts/install-azurite, then go test -tags azurite ./blobstore ./internal/proof/azurite, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
