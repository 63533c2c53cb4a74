//go:build !sqlserver

package sqlservertest_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need a server that speaks SQL Server's protocol (scripts/install-sqlserver, then go test -tags sqlserver ./sqlstore ./pipeline, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
