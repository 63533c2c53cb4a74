//go:build !postgres

package sqlstore_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests on PostgreSQL (scripts/install-postgres, then go test -tags postgres ./autoscale/sqlstore, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
