package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/asazure"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// cosmosWorld is a hub named docs and an account with a container for them.
type cosmosWorld struct {
	t       testing.TB
	hub     *emulator.Server
	account *emulator.Cosmos
	env     []string
	config  string
}

func cosmosServers(t testing.TB, ru, partitions int, more ...string) *cosmosWorld {
	t.Helper()
	hub, err := emulator.Start([]emulator.Hub{{Name: "docs", Partitions: 4}}, &emulator.Config{AsAzure: asazure.FreshRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}, Throughput: ru, Partitions: partitions}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { account.Close() })
	config, err := filepath.Abs("../../examples/cosmos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &cosmosWorld{t, hub, account, append([]string{
		"EVENTHUB_CONNECTION_STRING=" + hub.ConnectionString(), "COSMOS_ENDPOINT=" + account.Endpoint(), "COSMOS_KEY=" + account.Key(),
		"COSMOS_RU=" + strconv.Itoa(cmp.Or(ru, 10_000_000)), "DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "state.db"),
	}, more...), config}
}

// edited is the example with replacements.
func (w *cosmosWorld) edited(replacements ...string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(text), replacements[i]) {
			w.t.Fatalf("the example does not contain %q", replacements[i])
		}
	}
	path := filepath.Join(w.t.TempDir(), "cosmos.yaml")
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *cosmosWorld) send(n int, more ...string) {
	w.t.Helper()
	must(w.t, "", w.env, append([]string{"send", "--hub", "docs", "--generate", strconv.Itoa(n)}, more...)...)
}

// ids reads every id back through the official SDK.
func (w *cosmosWorld) ids() map[string]int {
	w.t.Helper()
	client, err := azcosmos.NewClientFromConnectionString(w.account.ConnectionString(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		w.t.Fatal(err)
	}
	ids := map[string]int{}
	pages := c.NewQueryItemsPager("SELECT c.id FROM c", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{PageSizeHint: 10_000})
	for pages.More() {
		page, err := pages.NextPage(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, item := range page.Items {
			var d struct{ ID string }
			if err := json.Unmarshal(item, &d); err != nil {
				w.t.Fatal(err)
			}
			ids[d.ID]++
		}
	}
	return ids
}

// whole checks that the container has the documents numbered 0 to n-1, each
// once, and nothing else.
func (w *cosmosWorld) whole(n int) {
	w.t.Helper()
	ids := w.ids()
	for i := range n {
		id := fmt.Sprintf("doc-%010d", i)
		if ids[id] != 1 {
			need.Verdict(w.t)
			w.t.Fatalf("document %s is there %d times", id, ids[id])
		}
	}
	if len(ids) != n {
		need.Verdict(w.t)
		w.t.Errorf("%d documents, want %d", len(ids), n)
	}
}

// writes is how many documents the account has written, repeats included.
func (w *cosmosWorld) writes() (n int64) {
	w.t.Helper()
	s, err := w.account.ContainerStats("db", "docs")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range s.Ranges {
		n += r.Writes
	}
	return n
}

func TestCosmosHeadline(t *testing.T) {
	const n = 200_000
	w := cosmosServers(t, 0, 5)
	w.send(n)
	began := time.Now()
	must(t, "", w.env, "run", w.config, "--until-caught-up")
	took := time.Since(began)
	w.whole(n)
	if got := w.writes(); got != n {
		t.Errorf("%d writes of %d documents without any failure", got, n)
	}
	t.Logf("%d documents in %v, start and stop included: %.0f/s, over %d connections", n, took.Round(time.Millisecond), n/took.Seconds(), w.account.Stats().Connections)
	if c := w.account.Stats().Connections; c > 200 {
		t.Errorf("%d connections were made: they are not reused", c)
	}
}

// TestCosmosUnderKill kills the consumer again and again while documents flow.
func TestCosmosUnderKill(t *testing.T) {
	for name, conditional := range map[string]bool{"last write wins": false, "conditional": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, kills = 60_000, 12
			w := cosmosServers(t, 0, 3)
			edits := []string{"\npartitions:", "\nlease: {for: 3s, renew: 1s}\npartitions:", "# conditional: true", "# -", "events: 320000", "events: 8000",
				"rate:\n  ru: ${COSMOS_RU}", "checkpoint_every: 500ms"}
			if conditional {
				edits[3], edits[2] = "conditional: true", "# conditional: true"
			}
			config := w.edited(edits...)
			w.send(n)
			for range kills {
				p := start(t, "", w.env, "run", config)
				before := w.writes()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				look := time.NewTicker(5 * time.Millisecond)
				for w.writes() < before+2000 && ctx.Err() == nil {
					select {
					case <-look.C:
					case <-ctx.Done():
					}
				}
				look.Stop()
				cancel()
				p.kill()
			}
			must(t, "", w.env, "run", config, "--until-caught-up")
			w.whole(n)
			repeats := w.writes() - n
			t.Logf("%d kills: %d documents written again", kills, repeats)
			if most := int64(kills * (8000 + 5000)); repeats > most {
				t.Errorf("%d repeats: more than what was in flight and done since the last checkpoint, %d", repeats, most)
			}
		})
	}
}

// TestCosmosTrouble has a physical partition split, and the account key
// revoked for a minute: the partitions wait, nothing becomes a dead letter.
func TestCosmosTrouble(t *testing.T) {
	t.Parallel()
	const n = 60_000
	w := cosmosServers(t, 0, 2)
	config := w.edited("rate:\n  ru: ${COSMOS_RU}", "rate:\n  events: 10000")
	w.send(n)
	p := start(t, "", w.env, "run", config, "--until-caught-up")
	await(t, "a part of the documents", func() bool { return w.writes() > 5_000 })
	if err := w.account.Split("db", "docs", ""); err != nil {
		t.Fatal(err)
	}
	await(t, "more documents after the split", func() bool { return w.writes() > 15_000 })
	if err := w.account.RevokeKey(w.account.Key()); err != nil {
		t.Fatal(err)
	}
	refused := func() int64 { return w.account.Stats().Unauthorized }
	await(t, "refused requests", func() bool { return refused() > 8 })
	// What was let in before may still be written; what comes from then on may not.
	before, since := w.writes(), time.Now()
	await(t, "a second without writes", func() bool {
		if n := w.writes(); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	so := refused()
	since = time.Now()
	await(t, "more of them, for a minute", func() bool { return refused() > so+4 && time.Since(since) > time.Minute })
	if after := w.writes(); after != before {
		t.Errorf("%d writes with a key that is revoked", after-before)
	}
	if err := w.account.RestoreKey(w.account.Key()); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	w.whole(n)
	if letters, _ := deadLetters(t, w.env, config); len(letters) != 0 {
		t.Errorf("%d dead letters, the first: %+v", len(letters), letters[0])
	}
	if !strings.Contains(p.err.String(), "401") {
		t.Error("the log does not name the cause")
	}
}

func TestCosmosMistakes(t *testing.T) {
	t.Parallel()
	w := cosmosServers(t, 1000, 1)
	must(t, "", w.env, "check", "--connect", w.config)
	for _, c := range []struct{ name, value, want string }{
		{"COSMOS_KEY", "d3Jvbmc=", "401"},
		{"COSMOS_CONTAINER", "nowhere", "check the names of the database and the container"},
		{"COSMOS_ENDPOINT", "http://127.0.0.1:9/", "check the endpoint"},
	} {
		env := append(w.env, c.name+"="+c.value)
		failsCheck(t, env, w.config, "cosmos.yaml:30:1: target: cosmos: ", c.want)
		if code, _, errs := invoke(t, "", env, "run", w.config); code != 1 || !strings.Contains(errs, "cosmos.yaml:30:1: target: cosmos: ") || !strings.Contains(errs, c.want) {
			t.Errorf("with another %s: exit code %d, %s", c.name, code, errs)
		}
	}
}
