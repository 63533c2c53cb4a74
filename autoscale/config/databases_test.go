package config_test

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
)

func TestMariaDBMetric(t *testing.T) {
	readsMetric(t, mariadbtest.Database(t), "Access denied for user 'sluice'")
}

func TestSQLServerMetric(t *testing.T) {
	readsMetric(t, sqlservertest.Database(t), "18456")
}

// readsMetric checks that a metric is read from a database, and that the error of a wrong password,
// which has a text, does not contain it.
func readsMetric(t *testing.T, url, refused string) {
	t.Helper()
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
	if p := read(url); p.Value != 2500 || p.Cause != "" {
		t.Errorf("read %+v", p)
	}
	head, host, _ := strings.Cut(url, "@")
	if p := read(head + "-canary@" + host); !strings.Contains(p.Cause, refused) || strings.Contains(p.Cause, "canary") {
		t.Errorf("with a wrong password read %+v", p)
	}
}
