//go:build postgres

package main_test

import (
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func init() {
	runTests = pgtest.Run
	databases["postgres"] = pgtest.Database
}
