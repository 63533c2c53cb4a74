//go:build sqlserver

package main_test

import "github.com/sluice-go/sluice/internal/proof/sqlservertest"

func init() {
	servers = append(servers, sqlservertest.Around)
	databases["sqlserver"] = sqlservertest.Database
}
