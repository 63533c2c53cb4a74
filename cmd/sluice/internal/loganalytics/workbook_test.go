package loganalytics_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loganalytics"
	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// workbook has the shape of a workbook, as far as ours has items.
type workbook struct {
	Version string `json:"version"`
	Schema  string `json:"$schema"`
	Items   []struct {
		Type    int    `json:"type"`
		Name    string `json:"name"`
		Content struct {
			Text       string `json:"json"`
			Version    string `json:"version"`
			Style      string `json:"style"`
			Parameters []struct {
				ID         string         `json:"id"`
				Version    string         `json:"version"`
				Name       string         `json:"name"`
				Label      string         `json:"label"`
				Type       int            `json:"type"`
				IsRequired bool           `json:"isRequired"`
				Value      map[string]int `json:"value"`
				Settings   struct {
					Values []map[string]int `json:"selectableValues"`
					Custom bool             `json:"allowCustom"`
				} `json:"typeSettings"`
			} `json:"parameters"`
			Query         string `json:"query"`
			Size          *int   `json:"size"`
			Title         string `json:"title"`
			Time          string `json:"timeContextFromParameter"`
			QueryType     *int   `json:"queryType"`
			ResourceType  string `json:"resourceType"`
			Visualization string `json:"visualization"`
		} `json:"content"`
	} `json:"items"`
	Fallback []string `json:"fallbackResourceIds"`
}

// lastLines are those of the queries that begin as the first one.
var lastLines = []string{
	`| summarize rate = 100.0 * count() / sum(weight) by day = bin(TimeGenerated, 1d)
| order by day asc
`,
	`| summarize first = min(TimeGenerated), last = max(TimeGenerated), items = count(), rate = 100.0 * count() / sum(weight), weighted = sum(value * weight), suspect = countif(suspect) by sdk = SDKVersion
| order by first asc
`,
}

// TestWorkbook: the workbook has the shape that Azure Monitor documents, and its queries are those
// in docs/audit.md, and those with the first lines of that one.
func TestWorkbook(t *testing.T) {
	filter := telemetry.Filter{Event: "imported", Measurement: "flights"}
	var text bytes.Buffer
	if err := loganalytics.WriteWorkbook(&text, filter); err != nil {
		t.Fatal(err)
	}
	var book workbook
	in := json.NewDecoder(&text)
	in.DisallowUnknownFields()
	if err := in.Decode(&book); err != nil {
		t.Fatal(err)
	}
	if book.Version != "Notebook/1.0" || !strings.HasSuffix(book.Schema, "/schema/workbook.json") || len(book.Fallback) != 1 || len(book.Items) != 5 {
		t.Fatalf("%+v", book)
	}
	time := book.Items[1].Content.Parameters
	if book.Items[0].Type != 1 || book.Items[0].Content.Text == "" || book.Items[1].Type != 9 || len(time) != 1 || time[0].Type != 4 || time[0].Value["durationMs"] != 30*24*3600*1000 {
		t.Errorf("%+v", book.Items[:2])
	}
	page, err := os.ReadFile("../../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Split(string(page), "```kusto\n")[1:]
	if len(shown) != 1 {
		t.Fatalf("docs/audit.md shows %d queries", len(shown))
	}
	shown = append(shown, lastLines...)
	var begin string
	names := map[string]bool{}
	for i, item := range book.Items {
		if names[item.Name] || item.Name == "" {
			t.Errorf("the name %q is there twice, or empty", item.Name)
		}
		names[item.Name] = true
		if i < 2 {
			continue
		}
		c := item.Content
		if item.Type != 3 || c.Version != "KqlItem/1.0" || c.Title == "" || c.Time != time[0].Name || c.QueryType == nil || *c.QueryType != 0 || c.Size == nil ||
			c.ResourceType != "microsoft.operationalinsights/workspaces" || c.Visualization != "timechart" && c.Visualization != "table" {
			t.Errorf("item %d: %+v", i, item)
		}
		query, _, _ := strings.Cut(shown[i-2], "```")
		if i == 2 {
			lines := strings.SplitAfter(query, "\n")
			begin = strings.Join(lines[:len(lines)-3], "")
		} else {
			query = begin + query
		}
		if query != c.Query {
			t.Errorf("docs/audit.md shows\n%s\nand the workbook has\n%s", query, c.Query)
		}
	}
}
