package config_test

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// TestPostgresState: an autoscaler keeps its state in PostgreSQL, and what is wrong with the
// URL is an error at its place, without the password.
func TestPostgresState(t *testing.T) {
	url := pgtest.Database(t)
	d := &directory{t, t.TempDir()}
	d.write("metrics.db", "")
	file := d.scaling("orders", `{sqlite: "`+d.file("state.db")+`"}`, `{postgres: "${DATABASE_URL}"}`)
	run := func(database string) error {
		t.Setenv("DATABASE_URL", database)
		g, err := config.LoadGroup(config.AllParts, file)
		if err != nil {
			return err
		}
		return g.Run(t.Context(), nil)
	}
	head, host, _ := strings.Cut(url, "@")
	for bad, want := range map[string]string{
		head + "-canary@" + host:                       "check user and password",
		"postgres://u:canary@h/d?credential=default":   "has a password and credential=default",
		"postgres://u@example.net/d?credential=canary": "write credential=default",
	} {
		if err := run(bad); err == nil || !strings.Contains(err.Error(), "orders.yaml:5:1: state: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary@") {
			t.Errorf("got %v, want … %s", err, want)
		}
	}
	t.Setenv("DATABASE_URL", url)
	g, err := config.LoadGroup(config.AllParts, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run(g, nil, "orders"); err != nil {
		t.Error(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	store, done, err := c.OpenStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done(t.Context())
	if m, err := store.Load(t.Context(), "orders"); err != nil || m.Actions != 1 || m.Instances != 4 {
		t.Errorf("the state is %+v, %v", m, err)
	}
	d.write("orders.yaml", "state: {postgres: 'postgres://u:canary@h/d'}\n")
	if _, err := config.Load(file); err == nil || !strings.Contains(err.Error(), "orders.yaml:1:9: state.postgres: holds a secret") || strings.Contains(err.Error(), "canary") {
		t.Errorf("a password in the file: %v", err)
	}
}
