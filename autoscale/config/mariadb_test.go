//go:build mariadb

package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
)

func TestMain(m *testing.M) { os.Exit(mariadbtest.Run(m)) }

// TestMariaDBMetric: a metric is read from MariaDB, and the error of a wrong password does not contain it.
func TestMariaDBMetric(t *testing.T) {
	read := func(database string) autoscale.Point {
		t.Helper()
		text := "metrics: {size: {sql: {database: '${DATABASE_URL}', query: 'SELECT 2500'}}}\n" + target + "rule: {upper: 5, lower: 3}\n"
		c, err := config.Parse("orders.yaml", []byte(text), func(string) (string, bool) { return database, true })
		if err != nil {
			t.Fatal(err)
		}
		collector, done, err := c.OpenSources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer done(t.Context())
		return collector.Read(t.Context())[0]
	}
	url := mariadbtest.Database(t)
	if p := read(url); p.Value != 2500 || p.Cause != "" {
		t.Errorf("read %+v", p)
	}
	head, host, _ := strings.Cut(url, "@")
	if p := read(head + "-canary@" + host); !strings.Contains(p.Cause, "Access denied for user 'sluice'") || strings.Contains(p.Cause, "canary") {
		t.Errorf("with a wrong password read %+v", p)
	}
}
