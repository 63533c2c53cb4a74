package kubernetes

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestAutoscale: rounds of `sluice autoscale run --once`, with the rights that the chart grants.
// A metric that cannot be read is an error and scales nothing; with its value the StatefulSet
// is scaled, once.
func TestAutoscale(t *testing.T) {
	need.Kubernetes(t)
	const namespace = "autoscale"
	installed(t, namespace)
	dir := t.TempDir()
	binary := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-o", binary, "../../..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	database, file := filepath.Join(dir, "orders.db"), filepath.Join(dir, "orders.yaml")
	text := fmt.Sprintf(`
every: 1m
metrics:
  waiting: {sql: {database: "sqlite:%s", query: "SELECT count(*) FROM orders"}}
target: {kubernetes: {kind: StatefulSet, name: sluice-orders, namespace: %s}}
rule: {target: ceil(waiting / 1000), points: 1, max: 8}
state: {sqlite: %s/state.db}
`, database, namespace, dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), "KUBECONFIG="+server.kubeconfig(t, account(namespace, "sluice-autoscaler")...))
	round := func(wantCode int, wantReplicas float64, wanted string) {
		t.Helper()
		cmd := exec.Command(binary, "autoscale", "run", file, "--once", "--wait", "1m", "--detailed-exit-code")
		cmd.Env = environment
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if exited := new(exec.ExitError); err != nil && !errors.As(err, &exited) {
			t.Fatal(err)
		}
		got := replicas(t, namespace, "statefulsets", "sluice-orders")
		if cmd.ProcessState.ExitCode() != wantCode || got != wantReplicas || !strings.Contains(out.String(), wanted) {
			t.Errorf("exit %d, %v replicas, want %d, %v, and %q:\n%s", cmd.ProcessState.ExitCode(), got, wantCode, wantReplicas, wanted, out.String())
		}
	}
	round(1, 1, "orders: metric waiting could not be read: ") // there is no such database yet
	db, err := sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE orders AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 4500) SELECT id FROM n"); err != nil {
		t.Fatal(err)
	}
	round(3, 5, "orders: up, 1 → 5 instances: target 5")
	round(0, 5, "orders: hold, 5 instances: ")
}
