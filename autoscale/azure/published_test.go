package azure

import (
	"errors"
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
type rows struct {
	memory, list string
	saved        int
}

func (s *rows) Do(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "$batch"):
		s.saved++
		const part = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n--c--\r\n--b--\r\n"
		response, err := answer(http.StatusAccepted, part)
		response.Header.Set("Content-Type", "multipart/mixed; boundary=b")
		return response, err
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

// TestPublishedStillRuns: nothing is saved, and so nothing decided, while the published autoscaler
// writes its rows. Where it writes them later, the log says so.
func TestPublishedStillRuns(t *testing.T) {
	row := func(age time.Duration, properties string) string {
		return fmt.Sprintf(`{"PartitionKey":"plan 1","RowKey":"backlog","Timestamp":"%s"%s}`, time.Now().Add(-age).UTC().Format(time.RFC3339Nano), properties)
	}
	const state = `,"SerializedState":"{\"History\":[],\"LastScalingActionTime\":\"0001-01-01T00:00:00\"}"`
	for _, c := range []struct {
		name, row string
		refused   bool
	}{
		{"just written", row(0, state), true},
		{"just written, by a clock that is a minute ahead", row(-time.Minute, state), true},
		{"a minute and more ago", row(100*time.Second, state), true},
		{"stopped", row(4*time.Minute, state), false},
		{"a row of another program", row(0, `,"Other":1`), false},
	} {
		table := &rows{list: c.row}
		s := table.open(t, io.Discard)
		m, err := s.Load(t.Context(), "plan 1")
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		err = s.Save(t.Context(), m)
		if refused := errors.Is(err, errPublishedRuns); refused != c.refused || !refused && err != nil || (table.saved == 0) != c.refused {
			t.Errorf("%s: %v, %d saved", c.name, err, table.saved)
		}
	}

	table := &rows{memory: `{"PartitionKey":"r","RowKey":"~memory","Version@odata.type":"Edm.Int64","Version":"4","Memory":"{}","Metrics":"[]"}`, list: row(0, state)}
	var log strings.Builder
	if m, err := table.open(t, &log).Load(t.Context(), "r"); err != nil || len(m.Windows) != 0 || !strings.Contains(log.String(), errPublishedRuns.Error()) {
		t.Errorf("%+v, %v, %s", m, err, log.String())
	}
}
