package loganalytics

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// View is a query of the workbook, and what it shows.
type View struct {
	Title string
	Query string // in Kusto's language
	chart string // visualization: table, timechart
}

// Views are the queries of the workbook. They take sampling into account: each item counts as many
// times as it stands for.
func Views(filter telemetry.Filter) []View {
	head := weighed(filter)
	return []View{
		{"Events by day: as stored (raw), as they were (weighted), and the limits of that", head + `| summarize raw = sum(value), weighted = sum(value * weight), low = sum(value * low), high = sum(value * high) by day = bin(TimeGenerated, 1d)
| order by day asc
`, "timechart"},
		{"Sampling rate by day, in percent", head + `| summarize rate = 100.0 * count() / sum(weight) by day = bin(TimeGenerated, 1d)
| order by day asc
`, "timechart"},
		{"Versions of the SDK, with their rates", head + `| summarize first = min(TimeGenerated), last = max(TimeGenerated), items = count(), rate = 100.0 * count() / sum(weight), weighted = sum(value * weight), suspect = countif(suspect) by sdk = SDKVersion
| order by first asc
`, "table"},
	}
}

// explanation is the text of the workbook.
const explanation = `Application Insights stores fewer items when it samples. An item counts by the exact rate in *microsoft.sample_rate*, if it has one that ItemCount does not contradict, else by ItemCount. That is a whole number, so the sum is between *low* and *high*. A drop of *raw* alone is sampling; a drop of *weighted* below what *low* was before is a loss, or fewer events. Items whose ItemCount contradicts their rate are *suspect*: ItemCount 1 is weighed by the rate, any other counts, with the rate between the limits.

Whether a drop of the weighted sums is more than chance, and which loss can't be excluded: ` + "`sluice audit telemetry --workspace ID`" + `.`

// The types of a workbook's items, from the documentation of ARM templates for workbooks.
const (
	itemText       = 1
	itemQuery      = 3
	itemParameters = 9
)

// workspaces is the type of the resource that is queried.
const workspaces = "microsoft.operationalinsights/workspaces"

// WriteWorkbook writes an Azure Monitor workbook with the views: the text for its Advanced Editor,
// or for serializedData of the resource microsoft.insights/workbooks.
func WriteWorkbook(w io.Writer, filter telemetry.Filter) error {
	type object = map[string]any
	items := []object{
		{"type": itemText, "content": object{"json": explanation}, "name": "explanation"},
		{"type": itemParameters, "name": "parameters", "content": object{
			"version": "KqlParameterItem/1.0", "style": "pills", "queryType": 0, "resourceType": workspaces,
			"parameters": []object{{
				"id": "5f6c3a1e-6d0b-4c39-9b1e-0d4b5c1f7a20", "version": "KqlParameterItem/1.0", "name": "TimeRange", "label": "Time", "type": 4, "isRequired": true,
				"value":        object{"durationMs": 30 * 24 * 3600 * 1000},
				"typeSettings": object{"selectableValues": []object{{"durationMs": 7 * 24 * 3600 * 1000}, {"durationMs": 30 * 24 * 3600 * 1000}, {"durationMs": 90 * 24 * 3600 * 1000}}, "allowCustom": true},
			}},
		}},
	}
	for i, v := range Views(filter) {
		items = append(items, object{"type": itemQuery, "name": fmt.Sprintf("query %d", i+1), "content": object{
			"version": "KqlItem/1.0", "query": v.Query, "size": 0, "title": v.Title, "timeContextFromParameter": "TimeRange",
			"queryType": 0, "resourceType": workspaces, "visualization": v.chart,
		}})
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	err := out.Encode(object{
		"version": "Notebook/1.0", "items": items, "fallbackResourceIds": []string{"Azure Monitor"},
		"$schema": "https://github.com/Microsoft/Application-Insights-Workbooks/blob/master/schema/workbook.json",
	})
	if err != nil {
		return fmt.Errorf("workbook: %w", err)
	}
	return nil
}
