package cosmosdriver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	patience = time.Minute
	key      = "c2Vjb25kLW9waW5pb24=" // the server takes any
)

// serve starts the server, and makes the container docs of the database db.
func serve(t *testing.T) (endpoint string, container *azcosmos.ContainerClient) {
	t.Helper()
	need.CosmosServer(t)
	need.RealTime(t)
	modules, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "..", "..", ".dev", "cosmosdb-server", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(interop.Installed(t), interop.Node), "server.js")
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	endpoint, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		t.Fatalf("the server is not ready, it printed %q: %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(endpoint, credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "db"}, nil); err != nil {
		t.Fatal(err)
	}
	database, err := client.NewDatabase("db")
	if err != nil {
		t.Fatal(err)
	}
	_, err = database.CreateContainer(ctx, azcosmos.ContainerProperties{
		ID: "docs", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/key"}, Kind: azcosmos.PartitionKeyKindHash, Version: 2},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if container, err = database.NewContainer("docs"); err != nil {
		t.Fatal(err)
	}
	return endpoint, container
}

func open(t *testing.T, endpoint string, mode cosmos.Mode) *cosmos.Sink {
	t.Helper()
	s, err := cosmos.New(endpoint, key, "db", "docs", &cosmos.Config{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// write writes documents and returns the error of each.
func write(t *testing.T, s *cosmos.Sink, docs ...cosmos.Document) []error {
	t.Helper()
	outcomes := make([]error, len(docs))
	var all sync.WaitGroup
	all.Add(len(docs))
	for i, d := range docs {
		s.Submit(t.Context(), d, func(r driver.WriteResult) {
			outcomes[i] = r.Err
			all.Done()
		})
	}
	all.Wait()
	return outcomes
}

func document(i int, event int64) cosmos.Document {
	k := "k \"ü\" " + strconv.Itoa(i%10)
	return cosmos.Document{ID: "d" + strconv.Itoa(i), PartitionKey: []any{k}, Body: fmt.Appendf(nil, `{"key":%q,"event":%d}`, k, event)}
}

func sourced(i int, event, epoch int64) cosmos.Document {
	d := document(i, event)
	d.Source = &cosmos.Source{Topic: "hub", Partition: "0", Epoch: epoch, Sequence: event}
	return d
}

// stored reads a document with the SDK and returns its event.
func stored(t *testing.T, c *azcosmos.ContainerClient, i int) int64 {
	t.Helper()
	d := document(i, 0)
	answer, err := c.ReadItem(t.Context(), azcosmos.NewPartitionKeyString(d.PartitionKey[0].(string)), d.ID, nil)
	if err != nil {
		t.Fatalf("read document %d: %v", i, err)
	}
	var body struct{ Event int64 }
	if err := json.Unmarshal(answer.Value, &body); err != nil {
		t.Fatal(err)
	}
	return body.Event
}

func modes(t *testing.T, test func(t *testing.T, mode cosmos.Mode)) {
	t.Run("bulk", func(t *testing.T) { test(t, cosmos.Bulk) })
	t.Run("point", func(t *testing.T) { test(t, cosmos.Point) })
}

func TestWrites(t *testing.T) {
	modes(t, func(t *testing.T, mode cosmos.Mode) {
		endpoint, container := serve(t)
		s := open(t, endpoint, mode)
		const n = 500
		for event := range int64(2) {
			var docs []cosmos.Document
			for i := range n {
				docs = append(docs, document(i, event))
			}
			for i, err := range write(t, s, docs...) {
				if err != nil {
					t.Fatalf("document %d: %v", i, err)
				}
			}
			for i := range n {
				if got := stored(t, container, i); got != event {
					t.Fatalf("document %d is of event %d, want %d", i, got, event)
				}
			}
		}
	})
}

func TestOperations(t *testing.T) {
	modes(t, func(t *testing.T, mode cosmos.Mode) {
		endpoint, container := serve(t)
		s := open(t, endpoint, mode)
		do := func(op cosmos.Operation, event int64) error {
			d := document(1, event)
			d.Operation = op
			return write(t, s, d)[0]
		}
		if err := do(cosmos.Replace, 1); !errors.Is(err, sluice.ErrRejected) {
			t.Errorf("replace of nothing: %v", err)
		}
		if err := do(cosmos.Create, 2); err != nil {
			t.Error(err)
		}
		if err := do(cosmos.Create, 3); !errors.Is(err, sluice.ErrRejected) {
			t.Errorf("create of what is there: %v", err)
		}
		if err := do(cosmos.Replace, 4); err != nil || stored(t, container, 1) != 4 {
			t.Errorf("replace: %v", err)
		}
	})
}

// Two sinks that each believe they own the partition: the document of the
// newest event stays.
func TestConditional(t *testing.T) {
	modes(t, func(t *testing.T, mode cosmos.Mode) {
		endpoint, container := serve(t)
		old, owner := open(t, endpoint, mode), open(t, endpoint, mode)
		steps := []struct {
			s            *cosmos.Sink
			event, epoch int64
			want         int64
		}{{old, 5, 1, 5}, {owner, 6, 2, 6}, {old, 5, 1, 6}, {owner, 9, 2, 9}, {old, 7, 1, 9}, {old, 10, 1, 10}, {owner, 9, 2, 10}, {owner, 11, 2, 11}}
		for n, step := range steps {
			var docs []cosmos.Document
			for i := range 50 {
				docs = append(docs, sourced(i, step.event, step.epoch))
			}
			for i, err := range write(t, step.s, docs...) {
				if err != nil {
					t.Fatalf("step %d, document %d: %v", n, i, err)
				}
				if got := stored(t, container, i); got != step.want {
					t.Fatalf("step %d, document %d is of event %d, want %d", n, i, got, step.want)
				}
			}
		}
		d := sourced(100, 1, 1)
		d.Operation = cosmos.Create
		for range 2 { // a repeat is no conflict
			if err := write(t, old, d)[0]; err != nil {
				t.Error(err)
			}
		}
		if err := write(t, owner, d)[0]; err != nil {
			t.Error(err)
		}
	})
}

func TestMissingContainer(t *testing.T) {
	endpoint, _ := serve(t)
	s, err := cosmos.New(endpoint, key, "db", "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if err := write(t, s, document(1, 1))[0]; !errors.Is(err, sluice.ErrOutage) {
		t.Error(err)
	}
}
