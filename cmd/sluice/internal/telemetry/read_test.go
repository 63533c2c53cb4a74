package telemetry_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

func read(t *testing.T, text string, filter telemetry.Filter) ([]telemetry.Item, error) {
	t.Helper()
	var items []telemetry.Item
	err := telemetry.Read(strings.NewReader(text), filter, func(it telemetry.Item) error {
		items = append(items, it)
		return nil
	})
	return items, err
}

func TestReadBothSchemas(t *testing.T) {
	filter := telemetry.Filter{Event: "imported", Measurement: "flights"}
	at := time.Date(2025, 4, 21, 8, 0, 0, 500_000_000, time.UTC)
	for name, text := range map[string]string{
		"Application Insights, CSV": `timestamp,name,itemCount,customMeasurements,customDimensions,sdkVersion
2025-04-21T08:00:00.5Z,imported,4,"{""flights"": 20, ""other"": 1}",{},dotnet:2.22.0
2025-04-21T08:00:01Z,something else,4,"{""flights"": 1}",{},dotnet:2.22.0
2025-04-21T08:00:01Z,imported,4,"{""other"": 1}",{},dotnet:2.22.0
`,
		"the portal's CSV": "\xef\xbb\xbf" + `"timestamp [UTC]",name,itemCount,customMeasurements,sdkVersion
"4/21/2025, 8:00:00.500 AM",imported,4,"{""flights"":""20""}",dotnet:2.22.0
`,
		"Log Analytics, JSON lines": `
{"TimeGenerated": "2025-04-21T10:00:00.5+02:00", "Name": "imported", "ItemCount": 4, "Measurements": {"flights": 20}, "SDKVersion": "dotnet:2.22.0", "More": [1]}

{"TimeGenerated": "2025-04-21T08:00:01Z", "Name": "imported", "ItemCount": 4, "Measurements": "{\"other\": 1}", "SDKVersion": null}
`,
		"semicolons": `timestamp;name;itemCount;customMeasurements;sdkVersion
2025-04-21T08:00:00.5Z;imported;4;"{""flights"": 20, ""other"": 1}";dotnet:2.22.0
2025-04-21T08:00:00.5Z;;4;"{""flights"": 20}";dotnet:2.22.0
`,
		"tabs": "timestamp\titemCount\tcustomMeasurements\tsdkVersion\n2025-04-21T08:00:00.5Z\t4\t\"{\"\"flights\"\": 20}\"\tdotnet:2.22.0\n",
		"a name that is null": `{"TimeGenerated": "2025-04-21", "Name": null, "ItemCount": 4, "Measurements": {"flights": 20}}
{"TimeGenerated": "2025-04-21T08:00:00.5Z", "ItemCount": 4, "Measurements": {"flights": 20}, "SDKVersion": "dotnet:2.22.0"}
`,
		"an answer of Log Analytics": `
{ "tables" : [ { "name": "PrimaryResult", "columns": [{"name": "TimeGenerated", "type": "datetime"}, {"name": "Name", "type": "string"}, {"name": "ItemCount", "type": "int"}, {"name": "Measurements", "type": "dynamic"}, {"name": "SDKVersion", "type": "string"}],
  "rows": [
    ["2025-04-21T08:00:00.5Z", "imported", 4, "{\"flights\": 20}", "dotnet:2.22.0"],
    ["2025-04-21T08:00:00.5Z", "other", 4, "{\"flights\": 20}", "dotnet:2.22.0"]
  ] } ], "statistics": {"query": {}} }
`,
		"classic continuous export": `{"event":[{"name":"imported","count":4},{"name":"other","count":1}],"internal":{"data":{"id":"x","documentVersion":"1.61"}},"context":{"data":{"eventTime":"2025-04-21T08:00:00.5Z","isSynthetic":false},"custom":{"dimensions":[{"a":"b"}],"metrics":[{"flights":{"value":20.0,"count":1.0}},{"x":{"value":1.0}}]}}}
`,
		"summed up": `time,items,raw,weight,weighted,sdk
2025-04-21 08:00:00.5,1,20,4,80,dotnet:2.22.0
`,
	} {
		items, err := read(t, text, filter)
		want := telemetry.Item{Time: at, Items: 1, Raw: 20, Weight: 4, Weighted: 80, Low: 70, High: 90, Squares: 6400, SDK: "dotnet:2.22.0"}
		if err != nil || len(items) != 1 || !items[0].Time.Equal(at) {
			t.Errorf("%s: %+v, %v", name, items, err)
			continue
		}
		if name == "classic continuous export" { // it has no version of the SDK
			want.SDK = ""
		}
		if items[0].Time = at; items[0] != want {
			t.Errorf("%s: %+v", name, items[0])
		}
	}
}

// TestReadWeighsByTheRate: the exact rate counts where itemCount does not contradict it, or is left
// at 1 by an exporter that does not write it. Else itemCount counts, which is a whole number.
func TestReadWeighsByTheRate(t *testing.T) {
	for _, c := range []struct {
		text              string
		weight, low, high float64
		suspect           int64
	}{
		{`"itemCount": 4`, 4, 3.5, 4.5, 0},
		{`"itemCount": 1`, 1, 1, 1.5, 0},
		{`"itemCount": 3, "customDimensions": {"microsoft.sample_rate": 40}`, 2.5, 2.5, 2.5, 0},
		{`"itemCount": 3, "customDimensions": {"microsoft.sample_rate": "32"}`, 3.125, 3.125, 3.125, 0},
		{`"itemCount": 3, "microsoft.sample_rate": 32`, 3.125, 3.125, 3.125, 0},
		{`"itemCount": 1, "customDimensions": {"microsoft.sample_rate": 80}`, 1.25, 1.25, 1.25, 0},
		{`"itemCount": 1, "customDimensions": {"microsoft.sample_rate": "25"}`, 4, 4, 4, 1},
		{`"customDimensions": "{\"microsoft.sample_rate\": 25}"`, 4, 4, 4, 0},
		{`"customDimensions": {"microsoft.sample_rate": 100}`, 1, 1, 1, 0},
		{`"itemCount": 2, "customDimensions": {"microsoft.sample_rate": 25}`, 2, 1.5, 4, 1},
		{`"itemCount": 4, "customDimensions": {"microsoft.sample_rate": 100}`, 4, 1, 4.5, 1},
		{`"itemCount": 4, "customDimensions": {"microsoft.sample_rate": 0}`, 4, 3.5, 4.5, 0},
		{`"itemCount": 4, "customDimensions": {"microsoft.sample_rate": 400}`, 4, 3.5, 4.5, 0},
	} {
		items, err := read(t, `{"timestamp": "2025-04-21", `+c.text+`, "customMeasurements": {"n": 10}}`, telemetry.Filter{Measurement: "n"})
		if err != nil || len(items) != 1 {
			t.Errorf("%s: %v, %v", c.text, items, err)
			continue
		}
		want := telemetry.Item{
			Time: items[0].Time, Items: 1, Raw: 10, Weight: c.weight, Weighted: 10 * c.weight,
			Low: 10 * c.low, High: 10 * c.high, Squares: 100 * c.weight * c.weight, Suspect: c.suspect,
		}
		if items[0] != want {
			t.Errorf("%s: %+v, want %+v", c.text, items[0], want)
		}
	}
}

// TestReadSums: rows that sum items up may say between which limits the sum is.
func TestReadSums(t *testing.T) {
	items, err := read(t, "time,items,raw,weight,weighted,low,high,squares,suspect\n2025-04-21,2,20,5,50,50,60,1300,1\n", telemetry.Filter{})
	if want := (telemetry.Item{Items: 2, Raw: 20, Weight: 5, Weighted: 50, Low: 50, High: 60, Squares: 1300, Suspect: 1}); err != nil || len(items) != 1 {
		t.Errorf("%+v, %v", items, err)
	} else if want.Time = items[0].Time; items[0] != want {
		t.Errorf("%+v, want %+v", items[0], want)
	}
}

func TestReadMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "it is empty"},
		{" \n", "it is empty"},
		{"timestamp,itemCount\n2025-04-21,1\nyesterday,1\n", `row 2: the time "yesterday": write it as 2026-01-31T08:00:00Z`},
		{"timestamp\n0001-01-01\n", `row 1: the time "0001-01-01" is not of this age`},
		{"name\nx\n", "row 1: it has no time: the column is timestamp or TimeGenerated"},
		{"timestamp,itemCount\n2025-04-21,many\n", "row 1: count: many is not a number that can be summed"},
		{"timestamp,itemCount\n2025-04-21,-1\n", "row 1: count: -1 is negative"},
		{"timestamp,itemCount,customMeasurements\n2025-04-21,0,\"{\"\"flights\"\": 1}\"\n", "row 1: it has no itemCount of 1 or more"},
		{"timestamp,customMeasurements\n2025-04-21,\"{\"\"flights\"\": 1}\"\n", "row 1: it has no itemCount of 1 or more"},
		{"timestamp;itemCount\n2025-04-21;\"2,5\"\n", "row 1: count: 2,5 is not a number that can be summed"},
		{"timestamp,itemCount\n2025-04-21,1e300\n", "row 1: count: 1e300 is not a number that can be summed"},
		{"timestamp,customMeasurements\n2025-04-21,{x\n", "row 1: measurements: not a JSON object"},
		{`{"timestamp": "2025-04-21", "customMeasurements": {"flights": "many"}}`, "row 1: measurement flights: many is not a number that can be summed"},
		{"{\"timestamp\": \"2025-04-21\"}\n[1]\n", "row 2: not a JSON object"},
		{"timestamp,itemCount,microsoft.sample_rate,value\n2025-04-21,0,400,1\n", "row 1: it has no itemCount of 1 or more"},
		{"timestamp,itemCount,microsoft.sample_rate,value\n2025-04-21,0,some,1\n", "row 1: microsoft.sample_rate: some is not a number that can be summed"},
		{"time,items,raw,weight,weighted,low\n2025-04-21,1,1,1,1,1\n", "row 1: of the columns low, high and squares there are some"},
		{"time,items,raw,weight,weighted,low,high,squares\n2025-04-21,1,1,1,2,3,4,5\n", "row 1: weighted 2 is not between low 3 and high 4"},
		{"timestamp,items,weighted\n2025-04-21,1,1\n", "row 1: column raw is missing"},
		{"timestamp\n2025-04-21,1,1\n", "row 1: record on line 2: wrong number of fields"},
		{"{\"a\":\"" + strings.Repeat("x", 1<<20) + "\"}", "row 1: longer than 1048576 bytes"},
		{"timestamp\n\"" + strings.Repeat("x", 2<<20), "row 1: longer than 1048576 bytes"},
	} {
		_, err := read(t, c.text, telemetry.Filter{Measurement: "flights"})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
		var row *telemetry.RowError
		if strings.HasPrefix(c.want, "row") && !errors.As(err, &row) {
			t.Errorf("%.60q: %T", c.text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("timestamp,name,itemCount,customMeasurements,customDimensions\n2025-04-21T08:00:00Z,a,4,\"{\"\"m\"\": 1}\",\"{\"\"microsoft.sample_rate\"\":25}\"\n", "m")
	f.Add(`{"TimeGenerated":"2025-04-21","Measurements":{"m":1e15},"Properties":{"microsoft.sample_rate":"0.001"}}`, "m")
	f.Add(`{"tables":[{"name":"PrimaryResult","columns":[{"name":"time"},{"name":"ItemCount"}],"rows":[["2025-04-21",4]]}]}`, "")
	f.Add(`{"event":[{"name":"a","count":4}],"context":{"data":{"eventTime":"2025-04-21","samplingRate":25},"custom":{"metrics":[{"m":{"value":1}}]}}}`, "m")
	f.Add("time,items,raw,weight,weighted\n2025-04-21,0,0,0,0\n2025-04-22,3,3,3,3\n", "")
	f.Fuzz(func(t *testing.T, text, measurement string) {
		s, err := telemetry.NewSeries(time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		if telemetry.Read(strings.NewReader(text), telemetry.Filter{Measurement: measurement}, s.Add) != nil {
			return
		}
		var cfg telemetry.Config
		for range 2 {
			r, err := s.Evaluate(&cfg)
			if err != nil {
				return
			}
			cfg.Reference = map[time.Time]float64{}
			for _, b := range r.Days {
				if v := b.Raw + b.Weight + b.Weighted + b.Rate(); math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%+v", b)
				}
				cfg.Reference[b.Start] = b.Raw
			}
			if text := fmt.Sprint(r.Explain()); strings.Contains(text, "NaN") {
				t.Error(text)
			}
			if err := r.WriteJSON(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReadRefusesWhatIsNotUnderstood names the input's format, or the row that is not text: a name
// in another encoding would not count for its event.
func TestReadRefusesWhatIsNotUnderstood(t *testing.T) {
	header := "timestamp,name,itemCount\n"
	row := "2025-04-21T08:00:00Z,imported,4\n"
	far := strings.Repeat(row, 5000)
	for _, c := range []struct{ name, in, want string }{
		{"UTF-16", "\xff\xfet\x00i\x00m\x00e\x00", "UTF-16 (by its byte order mark)"},
		{"workbook", "PK\x03\x04xl/workbook.xml", "an Excel workbook (.xlsx), which cannot be read"},
		{"an answer that is cut off", `{"tables":[{"name":"PrimaryResult","columns":[{"name":"time"}],"rows":[["2025-04-21"`, "is cut off"},
		{"an answer that ends early", `{"tables":[{"name":"PrimaryResult","columns":[{"name":"time"},{"name":"ItemCount"}],"rows":[["2025-04-21",4],`, "is cut off"},
		{"an incomplete answer", `{"tables":[],"error":{"code":"PartialError"}}`, `with the error "PartialError"`},
		{"a refusal", `{"error":{"code":"BadArgumentError"}}`, `with the error "BadArgumentError"`},
		{"rows without columns", `{"tables":[{"rows":[[1]]}]}`, "rows come before their columns"},
		{"a row that is too short", `{"tables":[{"columns":[{"name":"time"},{"name":"ItemCount"}],"rows":[["2025-04-21"]]}]}`, "row 1: 1 values in 2 columns"},
		{"two answers", `{"tables":[]}{"tables":[]}`, "something follows"},
		{"tables that are none", `{"tables":{}}`, "where [ should be"},
		{"a long row", `{"tables":[{"columns":[{"name":"time"}],"rows":[["` + strings.Repeat("x", 3<<20) + `"]]}]}`, "row 1: longer than"},
		{"requests of the classic export", `{"request":[{"name":"GET"}],"context":{"data":{}}}`, "of the type request: pass the blobs in the folder Event"},
		{"a metric with two values", `{"event":[{"name":"imported","count":4}],"context":{"data":{"eventTime":"2025-04-21"},"custom":{"metrics":[{"m":{"value":1,"sampledValue":4}}]}}}`, "value 1 and sampledValue 4 differ"},
		{"records in one object", `{"records":[{"time":"2025-04-21"}]}`, "write one to a line"},
		{"JSON array", `[{"timestamp":"2025-04-21","itemCount":1}]`, "a JSON array: write one object to a line"},
		{"Latin-1", header + "2025-04-21,Gr\xf6\xdfe,4\n", "not UTF-8 (byte 0xF6 in line 2)"},
		{"Latin-1 far behind", header + far + "2025-04-21,Gr\xf6\xdfe,4\n", "row 5001: not UTF-8"},
		{"Latin-1 in a line", strings.Repeat("{\"timestamp\":\"2025-04-21\",\"itemCount\":4}\n", 5000) + "{\"name\":\"\xf6\",\"timestamp\":\"2025-04-21\",\"itemCount\":4}\n", "row 5001: not UTF-8"},
	} {
		if _, err := read(t, c.in, telemetry.Filter{Event: "imported"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	// A file that is too large was cut off, so that the last count had fewer digits.
	long := "day,count\n" + strings.Repeat("2026-01-01,1000\n", 70_000)
	if _, err := telemetry.ReadReference(strings.NewReader(long), time.UTC); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("a long reference: %v", err)
	}
}
