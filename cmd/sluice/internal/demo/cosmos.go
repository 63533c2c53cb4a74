package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/pipeline"
)

// Where the documents go.
const (
	cosmosDatabase  = "db"
	cosmosContainer = "docs"
)

// Cosmos is a hub and a pipeline into a Cosmos DB account, over one directory.
// The account is in memory, so it begins empty at every start, and so do the
// pipeline's checkpoints: all events of the hub are written again.
type Cosmos struct {
	*scenario
	ru      int
	config  string
	account *emulator.Cosmos
	docs    *loadgen.Documents
	span    span
}

// OpenCosmos opens the directory, which is created if it is missing, and starts
// the hub in it and an account with ru RU per second. One process at a time can
// have it.
func OpenCosmos(ctx context.Context, dir string, ru int, log *slog.Logger) (*Cosmos, error) {
	docs, err := loadgen.NewDocuments(nil)
	if err != nil {
		return nil, err
	}
	l, err := startScenario(dir, log, cosmosContainer)
	if err != nil {
		return nil, err
	}
	l.Record = func(i int64) (flights.Record, error) {
		return flights.Record{Body: docs.Append(nil, i), Key: docs.Key(i)}, nil
	}
	d := &Cosmos{scenario: l, ru: ru, docs: docs, config: filepath.Join(l.Dir, "cosmos.yaml")}
	if err := d.begin(ctx, log); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

func (d *Cosmos) begin(ctx context.Context, log *slog.Logger) (err error) {
	d.account, err = emulator.StartCosmos(
		[]emulator.CosmosContainer{{Database: cosmosDatabase, Name: cosmosContainer, KeyPaths: []string{"/key"}}},
		&emulator.CosmosConfig{Throughput: d.ru, OnWrite: func(emulator.CosmosWrite) { d.span.note() }, Log: log})
	if err != nil {
		return err
	}
	// The lock on the hub's directory is held, so no other process uses what is removed.
	state := filepath.Join(d.Dir, "state")
	if err := errors.Join(os.RemoveAll(state), os.Mkdir(state, 0o700)); err != nil {
		return fmt.Errorf("remove earlier checkpoints: %w", err)
	}
	text := fmt.Sprintf(cosmosFile, d.account.Key(), flights.Quote(d.Connection()), flights.Quote("sqlite:"+filepath.Join(state, "cosmos.db")), d.ru,
		flights.Quote(d.account.Endpoint()), cosmosDatabase, cosmosContainer)
	if err := flights.WriteFile(d.config, text); err != nil {
		return err
	}
	p, err := pipeline.Parse(d.config, []byte(text), func(name string) (string, bool) {
		if name == "COSMOS_KEY" {
			return d.account.Key(), true
		}
		return os.LookupEnv(name)
	})
	if err != nil {
		return err
	}
	return d.open(ctx, p)
}

// Close closes the pipeline, the account and the hub.
func (d *Cosmos) Close(ctx context.Context) error {
	err := d.scenario.Close(ctx)
	if d.account != nil {
		err = errors.Join(err, d.account.Close())
	}
	return err
}

// Endpoint is the account's URL.
func (d *Cosmos) Endpoint() string { return d.account.Endpoint() }

// Config is the path of the pipeline's file.
func (d *Cosmos) Config() string { return d.config }

// Fill sends documents until the hub has this number. Then only the account's throughput limits
// [Cosmos.Run], from the first moment.
func (d *Cosmos) Fill(ctx context.Context, events int64) error { return d.ProduceAll(ctx, events) }

// span records when the first and the last document were written.
type span struct{ first, last atomic.Int64 }

func (s *span) note() {
	now := time.Now().UnixNano()
	s.first.CompareAndSwap(0, now)
	s.last.Store(now)
}

// Throughput is what the account counted.
type Throughput struct {
	Partitions int           // physical ones
	RU         float64       // spent on the documents
	Took       time.Duration // from the first document to the last
	Throttled  int64         // attempts that were answered with 429
}

// Throughput returns what the account has counted so far.
func (d *Cosmos) Throughput() (Throughput, error) {
	stats, err := d.account.ContainerStats(cosmosDatabase, cosmosContainer)
	if err != nil {
		return Throughput{}, err
	}
	return Throughput{
		Partitions: len(stats.Ranges), RU: stats.Spent, Throttled: d.account.Stats().Throttled,
		Took: time.Duration(d.span.last.Load() - d.span.first.Load()),
	}, nil
}

// Audit compares the events of the hub with the documents, each read back by Azure's own client,
// and with the dead letters.
func (d *Cosmos) Audit(ctx context.Context) (*flights.Audit, error) {
	return d.AuditBy(ctx, func(a *flights.Audit, effect flights.Effect) error {
		if err := d.auditDocuments(ctx, a, effect); err != nil {
			return fmt.Errorf("audit the documents: %w", err)
		}
		return nil
	})
}

// readRetries is how often the client waits for the account's RU, which
// reading uses up too.
const readRetries = 1000

// read gives each item that a query finds to take, by Azure's own client.
func (d *Cosmos) read(ctx context.Context, query string, take func(item []byte) error) error {
	client, err := azcosmos.NewClientFromConnectionString(d.account.ConnectionString(), &azcosmos.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: readRetries}},
	})
	if err != nil {
		return err
	}
	container, err := client.NewContainer(cosmosDatabase, cosmosContainer)
	if err != nil {
		return err
	}
	pages := container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 1000})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := take(item); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Cosmos) auditDocuments(ctx context.Context, a *flights.Audit, effect flights.Effect) error {
	var want []byte
	return d.read(ctx, "SELECT c.id, c.key, c.payload FROM c", func(item []byte) error {
		var got struct {
			ID      string `json:"id"`
			Key     string `json:"key"`
			Payload string `json:"payload"`
		}
		if err := json.Unmarshal(item, &got); err != nil {
			return err
		}
		a.Written++
		i, known := d.docs.Number(got.ID)
		if !known {
			a.Fault("document %q, which was never sent", got.ID)
			return nil
		}
		effect("document "+got.ID, strconv.FormatInt(i%flights.Partitions, 10), i/flights.Partitions)
		again, err := json.Marshal(got)
		if err != nil {
			return err
		}
		if want = d.docs.Append(want[:0], i); string(again) != string(want) {
			a.Fault("document %s is not what was sent", got.ID)
		}
		return nil
	})
}

// HubAudit looks for the document of each event, by its id, while the demo runs. It reads the hub
// with a consumer group of its own, and reports how many events it has read.
func (d *Cosmos) HubAudit(ctx context.Context, consumerGroup string, progress func(events int64)) (*audit.Report, error) {
	return d.hubAudit(ctx, consumerGroup, progress, func(ctx context.Context, found flights.Found) error {
		err := d.read(ctx, "SELECT c.id FROM c", func(item []byte) error {
			var got struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(item, &got); err != nil {
				return err
			}
			i, known := d.docs.Number(got.ID)
			if !known {
				return fmt.Errorf("document %q was never sent", got.ID)
			}
			found(strconv.FormatInt(i%flights.Partitions, 10), i/flights.Partitions)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the documents: %w", err)
		}
		return nil
	})
}

const cosmosFile = `# The pipeline of the demo into Cosmos DB.
# Written by sluice demo cosmos at every start. Hub and account are there while
# the demo runs. For other commands, the key that Microsoft publishes for its
# emulator:
#
#   export COSMOS_KEY=%s
name: cosmos
source:
  eventhub:
    connection: %s
    hub: docs
  start: earliest

partitions: all

# Leases, checkpoints and dead letters. The account is in memory: at every start
# all start from the beginning.
leases:
  sql: %s
checkpoint_every: 1s

rate: {ru: %d}

target:
  cosmos:
    endpoint: %s
    key: ${COSMOS_KEY}
    database: %s
    container: %s
    id: body.id
    partition_key: body.key
`
