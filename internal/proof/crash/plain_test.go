//go:build !postgres

package crash

import (
	"fmt"
	"testing"
)

func run(m *testing.M) int {
	fmt.Println("left out: the same over PostgreSQL; make test runs it (go test -tags postgres)")
	return m.Run()
}
