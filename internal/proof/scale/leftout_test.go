//go:build !postgres

package scale

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the test that needs PostgreSQL (scripts/install-postgres, then go test -tags postgres ./internal/proof/scale, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
