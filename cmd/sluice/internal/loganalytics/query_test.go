package loganalytics_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/monitor/query/azlogs"
	logsfake "github.com/Azure/azure-sdk-for-go/sdk/monitor/query/azlogs/fake"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loganalytics"
	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// workspace is answered by the fake server of Azure's SDK: there is no
// workspace without Azure.
func workspace(t *testing.T, answer func(azlogs.QueryBody) (azlogs.QueryResults, int)) *loganalytics.Workspace {
	t.Helper()
	server := &logsfake.Server{
		QueryWorkspace: func(_ context.Context, id string, body azlogs.QueryBody, _ *azlogs.QueryWorkspaceOptions) (resp fake.Responder[azlogs.QueryWorkspaceResponse], errResp fake.ErrorResponder) {
			if id != "0a1b" {
				t.Errorf("workspace %s", id)
			}
			results, status := answer(body)
			if status != http.StatusOK {
				errResp.SetResponseError(status, "InvalidTokenError")
				return resp, errResp
			}
			resp.SetResponse(http.StatusOK, azlogs.QueryWorkspaceResponse{QueryResults: results}, nil)
			return resp, errResp
		},
	}
	cfg := &loganalytics.Config{}
	cfg.Client.Transport = logsfake.NewServerTransport(server)
	w, err := loganalytics.New("0a1b", &fake.TokenCredential{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func columns(names ...string) (list []azlogs.Column) {
	for _, n := range names {
		list = append(list, azlogs.Column{Name: to.Ptr(n), Type: to.Ptr(azlogs.ColumnTypeDynamic)})
	}
	return list
}

func TestRead(t *testing.T) {
	from := time.Date(2025, 4, 7, 0, 0, 0, 0, time.UTC)
	filter := telemetry.Filter{Event: `im"ported`, Measurement: "flights"}
	w := workspace(t, func(body azlogs.QueryBody) (azlogs.QueryResults, int) {
		for _, want := range []string{`Name == "im\"ported"`, `Measurements["flights"]`, "bin(TimeGenerated, 3600s)", "100.0 / rate"} {
			if !strings.Contains(*body.Query, want) {
				t.Errorf("%s is not in\n%s", want, *body.Query)
			}
		}
		if got := string(*body.Timespan); got != "2025-04-07T00:00:00Z/2025-04-08T00:00:00Z" {
			t.Errorf("timespan %s", got)
		}
		return azlogs.QueryResults{Tables: []azlogs.Table{{
			Name:    to.Ptr("PrimaryResult"),
			Columns: columns("time", "sdk", "items", "raw", "weight", "weighted", "low", "high", "squares", "suspect"),
			Rows:    []azlogs.Row{{"2025-04-07T08:00:00Z", "dotnet:2.22.0", 3, 60.0, 12.0, 240.0, 200.0, 280.0, 19200.0, 1}},
		}}}, http.StatusOK
	})
	var items []telemetry.Item
	err := w.Read(t.Context(), loganalytics.Query(filter, 24*time.Hour), from, from.AddDate(0, 0, 1), filter, func(it telemetry.Item) error {
		items = append(items, it)
		return nil
	})
	want := telemetry.Item{Time: from.Add(8 * time.Hour), Items: 3, Raw: 60, Weight: 12, Weighted: 240, Low: 200, High: 280, Squares: 19200, Suspect: 1, SDK: "dotnet:2.22.0"}
	if err != nil || len(items) != 1 || items[0] != want {
		t.Errorf("%+v, %v", items, err)
	}
}

func TestReadRefusesPartOfAnAnswer(t *testing.T) {
	w := workspace(t, func(azlogs.QueryBody) (azlogs.QueryResults, int) {
		return azlogs.QueryResults{Tables: []azlogs.Table{}, Error: &azlogs.ErrorInfo{Code: "PartialError"}}, http.StatusOK
	})
	err := w.Read(t.Context(), "AppEvents", time.Now(), time.Now(), telemetry.Filter{}, nil)
	if err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Error(err)
	}
	w = workspace(t, func(azlogs.QueryBody) (azlogs.QueryResults, int) { return azlogs.QueryResults{}, http.StatusForbidden })
	if err := w.Read(t.Context(), "AppEvents", time.Now(), time.Now(), telemetry.Filter{}, nil); err == nil || !strings.Contains(err.Error(), "workspace 0a1b") {
		t.Error(err)
	}
}

func TestQueryQuotes(t *testing.T) {
	q := loganalytics.Query(telemetry.Filter{Event: "a\"] | union x\n\\"}, time.Minute)
	if !strings.Contains(q, `Name == "a\"] | union x\u000a\\"`+"\n") || !strings.Contains(q, "value = 1.0,") || !strings.Contains(q, ", 60s)") {
		t.Error(q)
	}
}
