package demo

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/pipeline"
)

func well() map[string]error { return nil }

// verdict audits, and says what comes of it.
func verdict(t *testing.T, by func(context.Context, string, func(int64)) (*audit.Report, error)) string {
	t.Helper()
	report, err := by(t.Context(), "audit", nil)
	if err != nil {
		return err.Error()
	}
	return report.Headline()
}

func TestHubAuditOfCosmos(t *testing.T) {
	t.Parallel()
	d, err := OpenCosmos(t.Context(), t.TempDir(), 1_000_000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	if err := d.Fill(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		if got := verdict(t, d.HubAudit); !strings.HasPrefix(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	says("Can't tell: partition 0 has no checkpoint")
	if err := d.Run(t.Context(), 200, true, &pipeline.Options{}, well); err != nil {
		t.Fatal(err)
	}
	says("Nothing lost, nothing duplicated: 200 events, 200 written, 0 dead letters, 0 waiting.")

	client, err := azcosmos.NewClientFromConnectionString(d.account.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	container, err := client.NewContainer(cosmosDatabase, cosmosContainer)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		ID  string `json:"id"`
		Key string `json:"key"`
	}
	put := func(i int64, change func()) {
		t.Helper()
		if err := json.Unmarshal(d.docs.Append(nil, i), &doc); err != nil {
			t.Fatal(err)
		}
		change()
		body, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := container.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString(doc.Key), body, nil); err != nil {
			t.Fatal(err)
		}
	}
	put(7, func() { doc.Key = "elsewhere" })
	put(800, func() {})
	put(13, func() {})
	if _, err := container.DeleteItem(t.Context(), azcosmos.NewPartitionKeyString(doc.Key), doc.ID, nil); err != nil {
		t.Fatal(err)
	}
	says("Not exact: 1 lost, 1 duplicated, 1 stray, of 200 events.")
	put(13, func() { doc.ID = "another" })
	says(`read the documents: document "another" was never sent`)
}

func TestHubAuditOfStages(t *testing.T) {
	t.Parallel()
	d, err := OpenStages(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	if err := d.ProduceAll(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	topic, err := d.parts.Source.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The partition begins where an operator sets its checkpoint.
	if _, err := d.parts.Checkpoints.Reset(t.Context(), topic.Group, "2", topic.Incarnation, sluice.Position{Sequence: 9}, "set"); err != nil {
		t.Fatal(err)
	}
	if got, want := verdict(t, d.HubAudit), "Can't tell: partition 0 has no checkpoint"; !strings.HasPrefix(got, want) || strings.Contains(got, "partition 2") {
		t.Errorf("at first it says %q, want %q", got, want)
	}
	var opts []*pipeline.Options
	var stopped []func() map[string]error
	for range d.Names() {
		opts, stopped = append(opts, &pipeline.Options{}), append(stopped, well)
	}
	if err := d.Run(t.Context(), 1000, true, opts, stopped); err != nil {
		t.Fatal(err)
	}
	report, err := d.HubAudit(t.Context(), "audit", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := report.Total; c.Written != 989 || c.DeadLetters != 1 || c.Waiting != 0 || c.Skipped != 10 || !report.Exact() {
		t.Errorf("at the end: %s %+v", report.Headline(), c)
	}
	for _, name := range d.Names() {
		if why := d.Unaudited(name); (why == "") != (name == "clean") {
			t.Errorf("stage %s: %q", name, why)
		}
	}
}
