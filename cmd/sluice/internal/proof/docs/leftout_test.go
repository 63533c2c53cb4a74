//go:build !postgres

package docs

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the runbooks of databases (scripts/install-postgres, then go test -tags postgres ./cmd/sluice/internal/proof/docs, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
