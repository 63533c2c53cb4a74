//go:build kubernetes

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale/config"
)

// TestAutoscale: one round of the autoscaler, with its own file and the rights of the chart.
func TestAutoscale(t *testing.T) {
	const namespace = "autoscale"
	installed(t, namespace)
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", server.kubeconfig(t, account(namespace, "sluice-autoscaler")...))
	file := filepath.Join(dir, "orders.yaml")
	text := fmt.Sprintf(`
every: 1m
metrics:
  waiting: {sql: {database: "sqlite:%[1]s/orders.db", query: "SELECT 4500"}}
target: {kubernetes: {kind: StatefulSet, name: sluice-orders, namespace: %[2]s}}
rule: {target: ceil(waiting / 1000), points: 1, max: 8}
state: {sqlite: %[1]s/state.db}
`, dir, namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	group, err := config.LoadGroup(config.AllParts, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range group.Once(t.Context(), time.Minute, nil) {
		if round.Err != nil {
			t.Error(round.Err)
		}
	}
	if got := replicas(t, namespace, "statefulsets", "sluice-orders"); got != float64(5) {
		t.Errorf("%v replicas, want 5", got)
	}
}
