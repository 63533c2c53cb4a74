package docs

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// TestLibraryProgram runs the program of docs/library.md: it writes an event's row, and ends with
// status 0 at SIGTERM.
func TestLibraryProgram(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	binary := buildProgram(t)
	database := pgtest.Database(t)
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if _, err := db.Exec(t.Context(), "CREATE TABLE orders (id text, total float8)"); err != nil {
		t.Fatal(err)
	}
	hub, err := emulator.Start([]emulator.Hub{{Name: "orders", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	sendOrder(t, hub.ConnectionString())

	var log strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(os.Environ(), "EVENTHUB_CONNECTION_STRING="+hub.ConnectionString(), "DATABASE_URL="+database)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for n := 0; n == 0; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended: // by itself, or because it took too long
			t.Fatalf("before it wrote the row: %v\n%s", err, log.String())
		default:
		}
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

// buildProgram builds the first program of the page.
func buildProgram(t *testing.T) string {
	t.Helper()
	list, err := Read(repository(t), "docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	here, dir := filepath.Join(repository(t), "cmd/sluice/internal/proof/docs"), t.TempDir()
	source, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "blocks/library/main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{source: list[0].Text, overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, "./blocks/library")
	cmd.Dir = here
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func sendOrder(t *testing.T, connection string) {
	t.Helper()
	producer, err := azeventhubs.NewProducerClientFromConnectionString(connection, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close(context.WithoutCancel(t.Context()))
	batch, err := producer.NewEventDataBatch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(`{"id": "A-1", "total": 12.5}`)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := producer.SendEventDataBatch(t.Context(), batch, nil); err != nil {
		t.Fatal(err)
	}
}
