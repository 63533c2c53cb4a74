package pipeline

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice"
)

// sampleEvents reads events in the form in which `sluice peek` prints them.
func sampleEvents(t *testing.T, name string) (events []*sluice.Event) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../examples/testdata", name+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var line struct {
			ContentType string          `json:"content_type"`
			MessageID   string          `json:"message_id"`
			Properties  map[string]any  `json:"properties"`
			Body        json.RawMessage `json:"body"`
			Text        string          `json:"body_text"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		e := &sluice.Event{ContentType: line.ContentType, MessageID: line.MessageID, Properties: line.Properties, Body: line.Body}
		if e.Body == nil {
			e.Body = []byte(line.Text)
		}
		events = append(events, e)
	}
	return events
}

// TestAzureExamples runs the examples for what Azure's services write over samples in the services'
// documented formats.
func TestAzureExamples(t *testing.T) {
	for _, c := range []struct {
		name, query, want string
		left              int64 // events that the filter leaves out
	}{
		{"iothub", "SELECT device, received, alert, temperature, humidity FROM telemetry ORDER BY device",
			"thermostat-17 2024-01-02 01:10:31.935+00:00 1 31.73 62.1\nthermostat-18 2024-01-02 01:10:32+00:00 <nil> 19 <nil>", 1},
		{"azuremonitor", "SELECT record, at, operation, category, result, level, duration_ms, caller FROM resource_logs ORDER BY at",
			"0 2024-01-02 01:10:31.9355456+00:00 SecretGet AuditEvent Success <nil> 7 104.40.82.76\n" +
				"1 2024-01-02 01:10:32+00:00 VaultGet AuditEvent Success <nil> 12 <nil>\n" +
				"0 2024-01-02 01:11:05.123+00:00 NetworkSecurityGroupEvents NetworkSecurityGroupEvent <nil> Informational <nil> <nil>", 0},
		{"streamanalytics", "SELECT device, window_end, average, events FROM averages ORDER BY device, window_end",
			"thermostat-17 2024-01-02 01:10:00+00:00 31.7 120\nthermostat-17 2024-01-02 01:20:00+00:00 30.9 119\nthermostat-18 2024-01-02 01:10:00+00:00 19.5 120", 0},
		{"eventgrid", "SELECT type, at, subject, bytes FROM blobs ORDER BY type",
			"Microsoft.Storage.BlobCreated 2024-01-02 01:10:31.9355456+00:00 /blobServices/default/containers/in/blobs/orders.csv 524288\n" +
				"Microsoft.Storage.BlobDeleted 2024-01-02 01:10:40+00:00 /blobServices/default/containers/in/blobs/old.csv <nil>", 0},
		{"cloudevents", "SELECT id, type, at, url FROM blobs ORDER BY type",
			"9aeb0fdf-c01e-0131-0922-9eb54906e209 Microsoft.Storage.BlobCreated 2024-01-02 01:10:31.9355456+00:00 https://contoso.blob.core.windows.net/in/orders.csv\n" +
				"7 Microsoft.Storage.BlobDeleted 2024-01-02 01:10:40+00:00 https://contoso.blob.core.windows.net/in/old.csv", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join("../examples", c.name+".yaml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			address, db := sqliteFile(t)
			p, err := Parse(path, text, environment("DATABASE_URL="+address))
			if err != nil {
				t.Fatal(err)
			}
			parts, err := p.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer parts.Close(context.Background())
			if left := consume(t, p, parts, sampleEvents(t, c.name)...); left != c.left {
				t.Errorf("%d events are left out, want %d", left, c.left)
			}
			if letters := deadLetters(t, p, parts); letters != nil {
				t.Errorf("dead letters %q", letters)
			}
			if got := query(t, db, c.query); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
