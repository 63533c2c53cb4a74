package audit_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/sqlstore"
)

// TestScale audits 100,000 events, or as many as AUDIT_EVENTS says, beside a
// plain read of the same hub, and prints both times and the memory.
func TestScale(t *testing.T) {
	events := 100_000
	if text := os.Getenv("AUDIT_EVENTS"); text != "" {
		var err error
		if events, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const partitions = 4
	dir := t.TempDir()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: partitions, ConsumerGroups: []string{"audit"}}}, &emulator.Config{Dir: filepath.Join(dir, "hub"), AsAzure: asazure.WithoutBusy()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	source, err := eventhub.New(srv.ConnectionString(), "flights", &eventhub.Config{ConsumerGroup: "audit"})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close(context.Background())
	topic, err := source.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, srv.ConnectionString(), topic.Partitions, events/partitions)
	group := topic.Group
	group.Name = "g"
	path := filepath.Join(dir, "flights.db")
	writeLedger(t, path, group, topic, int64(events/partitions))

	began := time.Now()
	var reading sync.WaitGroup
	for _, p := range topic.Partitions {
		reading.Go(func() {
			if err := plain(t.Context(), source, p, int64(events/partitions)); err != nil {
				t.Error(err)
			}
		})
	}
	reading.Wait()
	read := time.Since(began)

	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ledger := audit.NewSQLLedger(db, audit.SQLite(), audit.Table{Name: "flights", Partition: "hub_partition", Sequence: "sequence_number"})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := audit.Run(t.Context(), source, ledger, group, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if !r.Exact() || r.Total.Written != int64(events/partitions*partitions) {
		t.Errorf("%s: %v", r.Headline(), r.Faults)
	}
	t.Logf("%d events: plain read %v, audit %v (%.2f times); %d bytes of heap kept by the report", events, read.Round(time.Millisecond), r.Took.Round(time.Millisecond),
		r.Took.Seconds()/read.Seconds(), int64(after.HeapAlloc)-int64(before.HeapAlloc))
}

// fill sends n events of 200 bytes to each partition.
func fill(t *testing.T, connection string, partitions []string, n int) {
	t.Helper()
	client, err := azeventhubs.NewProducerClientFromConnectionString(connection, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	body := make([]byte, 200)
	var sending sync.WaitGroup
	for _, p := range partitions {
		sending.Go(func() {
			for left := n; left > 0; {
				batch, err := client.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(p)})
				if err != nil {
					t.Error(err)
					return
				}
				for ; left > 0 && batch.NumEvents() < 2000; left-- {
					if err := batch.AddEventData(&azeventhubs.EventData{Body: body}, nil); err != nil {
						t.Error(err)
						return
					}
				}
				if err := client.SendEventDataBatch(t.Context(), batch, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
}

// writeLedger writes what a pipeline would have left.
func writeLedger(t *testing.T, path string, group sluice.Group, topic sluice.Topic, n int64) {
	t.Helper()
	store, err := sqlstore.OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE flights (hub_partition TEXT, sequence_number INTEGER, PRIMARY KEY (hub_partition, sequence_number)) WITHOUT ROWID`)
	for _, p := range topic.Partitions {
		exec(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) INSERT INTO flights SELECT ?, i FROM n`, n, p)
		lease, err := store.Leases().Acquire(t.Context(), group, p, "me", time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Claim(t.Context(), lease, topic.Incarnation); err != nil {
			t.Fatal(err)
		}
		if err := store.Begin(t.Context(), lease, driver.Unset, driver.Origin); err != nil {
			t.Fatal(err)
		}
		exec(`UPDATE sluice_checkpoints SET sequence_number = ? WHERE partition = ?`, n-1, p)
	}
}

// plain reads a partition and does nothing with it.
func plain(ctx context.Context, source driver.Source, partition string, n int64) error {
	reader, err := source.Open(ctx, partition, driver.Origin, 0)
	if err != nil {
		return err
	}
	defer reader.Close(ctx)
	for next := int64(0); next < n; {
		events, err := reader.Read(ctx, 1000)
		if err != nil {
			return fmt.Errorf("partition %s: %w", partition, err)
		}
		next = events[len(events)-1].Sequence + 1
	}
	return nil
}
