//go:build sqlserver

package config_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

func init() { servers = append(servers, sqlservertest.Around) }

func TestSQLServerMetric(t *testing.T) {
	readsMetric(t, sqlservertest.Database(t), "18456")
}
