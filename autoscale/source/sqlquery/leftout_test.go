//go:build !postgres

package sqlquery_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need PostgreSQL (scripts/install-postgres, then go test -tags postgres ./autoscale/source/sqlquery, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
