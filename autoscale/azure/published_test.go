package azure

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// rows is a table with rows and without the row ~memory, unless memory is set.
type rows struct{ memory, list string }

func (s *rows) Do(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	switch {
	case r.Method == http.MethodPost:
		return answer(http.StatusCreated, `{"TableName":"Scaling"}`)
	case strings.Contains(r.URL.Path, "RowKey"):
		if s.memory == "" {
			return answer(http.StatusNotFound, `{"odata.error":{"code":"ResourceNotFound"}}`)
		}
		return answer(http.StatusOK, s.memory)
	case !strings.Contains(r.URL.RawQuery, "plan+1") && !strings.Contains(r.URL.RawQuery, "plan%201") && s.memory == "":
		return answer(http.StatusOK, `{"value":[]}`) // the published partition key is not encoded
	}
	return answer(http.StatusOK, `{"value":[`+s.list+`]}`)
}

func (s *rows) open(t *testing.T, log io.Writer) *Store {
	t.Helper()
	store, err := OpenStore(t.Context(), &Config{Connection: "UseDevelopmentStorage=true", Log: slog.New(slog.NewTextHandler(log, nil)), Client: azcore.ClientOptions{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestPublishedState: at the first start the published autoscaler's window and cooldown are taken
// over. Rows of other programs, and broken ones, stop nothing and are reported once.
func TestPublishedState(t *testing.T) {
	last := time.Now().Add(-3 * time.Minute).Truncate(time.Second).UTC()
	state := fmt.Sprintf(`{\"History\":[{\"Time\":\"2017-07-17T10:00:00.1234567+02:00\",\"Value\":12},{\"Time\":\"2017-07-17T08:01:00Z\",\"Value\":13}],\"LastScalingActionTime\":\"%s\"}`, last.Format("2006-01-02T15:04:05.0000000Z07:00"))
	row := func(key, properties string) string {
		return fmt.Sprintf(`{"PartitionKey":"plan 1","RowKey":"%s"%s}`, key, properties)
	}
	table := &rows{list: strings.Join([]string{
		row("topic-subscription-backlog", `,"SerializedState":"`+state+`"`),
		row("never", `,"SerializedState":"{\"History\":[],\"LastScalingActionTime\":\"0001-01-01T00:00:00\"}"`),
		row("broken", `,"SerializedState":"{\"History\":7}"`),
		row("foreign", `,"Other":1`),
	}, ",")}
	var log strings.Builder
	s := table.open(t, &log)
	for range 3 {
		m, err := s.Load(t.Context(), "plan 1")
		if err != nil {
			t.Fatal(err)
		}
		w := m.Windows["topic-subscription-backlog"]
		if w == nil || len(w.Values) != 2 || w.Values[0].Value != 12 || !w.Values[0].Time.Equal(time.Date(2017, 7, 17, 8, 0, 0, 123456700, time.UTC)) || !m.LastAction().Equal(last) || m.Version != "" {
			t.Fatalf("state %+v of the published autoscaler, want the last action at %v", m, last)
		}
		if len(m.Windows) != 2 || len(m.Windows["never"].Values) != 0 {
			t.Errorf("windows %v", m.Windows)
		}
	}
	for _, key := range []string{"broken", "foreign"} {
		if n := strings.Count(log.String(), "row_key="+key); n != 1 {
			t.Errorf("%s is reported %d times:\n%s", key, n, log.String())
		}
	}
}

// TestForeignRows: rows that are not understood beside Sluice's own stop nothing.
func TestForeignRows(t *testing.T) {
	table := &rows{memory: `{"PartitionKey":"r","RowKey":"~memory","Version@odata.type":"Edm.Int64","Version":"4","Memory":"{}","Metrics":"[]"}`, list: `{"PartitionKey":"r","RowKey":"a","SerializedState":"x"},
		{"PartitionKey":"r","RowKey":"b","Metric":"b","History":"{"},{"PartitionKey":"r","RowKey":"c","Metric":"c","History":"{\"values\":[{\"t\":\"2026-01-01T00:00:00Z\",\"v\":1}]}"}`}
	var log strings.Builder
	s := table.open(t, &log)
	for range 2 {
		m, err := s.Load(t.Context(), "r")
		if err != nil || m.Version != "4" || len(m.Windows) != 1 || len(m.Windows["c"].Values) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	if n := strings.Count(log.String(), "row of the table is left out"); n != 2 {
		t.Errorf("%d reports:\n%s", n, log.String())
	}
}
