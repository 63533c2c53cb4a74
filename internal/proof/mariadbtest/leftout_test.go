//go:build !mariadb

package mariadbtest_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need MariaDB (scripts/install-mariadb, then go test -tags mariadb ./internal/proof/mariadbtest, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
