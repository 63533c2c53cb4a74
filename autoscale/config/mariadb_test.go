//go:build mariadb

package config_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

func init() { servers = append(servers, mariadbtest.Around) }

func TestMariaDBMetric(t *testing.T) {
	readsMetric(t, mariadbtest.Database(t), "Access denied for user 'sluice'")
}
