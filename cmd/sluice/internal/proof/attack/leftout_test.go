//go:build (!postgres && !mariadb && !sqlserver) || !linux

package attack_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the attack with real processes, which needs Linux and PostgreSQL, MariaDB or Babelfish (scripts/install-postgres, then go test -tags postgres ./cmd/sluice/internal/proof/attack, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
