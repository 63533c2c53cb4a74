//go:build mariadb

package main_test

import "github.com/sluice-go/sluice/internal/proof/mariadbtest"

func init() {
	servers = append(servers, mariadbtest.Around)
	databases["mariadb"] = mariadbtest.Database
}
