//go:build !postgres

package pgstore_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need PostgreSQL (scripts/install-postgres, then go test -tags postgres ./pgstore ./internal/proof/pgtest, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
