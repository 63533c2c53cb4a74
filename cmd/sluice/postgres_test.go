//go:build postgres

package main_test

import (
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

func init() {
	servers = append(servers, pgtest.Around)
	databases["postgres"] = pgtest.Database
}
