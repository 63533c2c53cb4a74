package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/azuremonitor"
)

// manager answers requests to Azure Resource Manager.
type manager func(*http.Request) (status int, body string)

func (m manager) Do(r *http.Request) (*http.Response, error) {
	status, body := m(r)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (m manager) options() *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: m, Retry: policy.RetryOptions{MaxRetries: -1}}}
}

// monitor is a metric of Azure Monitor, with a value in each interval until late before now.
type monitor struct {
	late     time.Duration
	changes  float64 // by how much values change with each request
	requests int
	refuses  bool
}

func (m *monitor) answer(r *http.Request) (int, string) {
	if m.requests++; m.refuses {
		return http.StatusForbidden, `{"error": {"code": "AuthorizationFailed", "message": "no role"}}`
	}
	first, last, _ := strings.Cut(r.URL.Query().Get("timespan"), "/")
	from, _ := time.Parse(time.RFC3339, first)
	to, _ := time.Parse(time.RFC3339, last)
	var points []string
	for ; from.Before(to); from = from.Add(time.Minute) {
		if time.Since(from.Add(time.Minute)) >= m.late {
			points = append(points, fmt.Sprintf(`{"timeStamp": %q, "average": %v}`, from.Format(time.RFC3339), float64(from.Minute())+m.changes*float64(m.requests)))
		}
	}
	return http.StatusOK, `{"value": [{"name": {"value": "CpuPercentage"}, "timeseries": [{"data": [` + strings.Join(points, ",") + `]}]}]}`
}

func (m *monitor) source() *azuremonitor.Source {
	source, err := azuremonitor.New(&azuremonitor.Config{
		Resource: "/subscriptions/s/resourceGroups/shop/providers/Microsoft.Web/serverfarms/workers", Metric: "CpuPercentage", Credential: &azfake.TokenCredential{}, Options: manager(m.answer).options(),
	})
	if err != nil {
		panic(err)
	}
	return source
}

func TestMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{}
		s := OpenMetric("cpu", m.source())
		granted(t, s)
		for _, c := range metricChecks {
			expect(t, s, c.name, OK)
		}
		m.refuses = true
		if r := s.Rights(t.Context()); r[0].Granted || !strings.Contains(r[0].Found, "HTTP 403 (Forbidden, AuthorizationFailed): no role") {
			t.Errorf("rights %+v", r)
		}
	})
}

// brokenMetrics are assumptions about metrics, broken at the source.
var brokenMetrics = []broken[*metricSystem]{
	{"a reading takes longer than the collector waits", "metric.read", Failed, func(s *metricSystem) { s.source = autoscale.SourceFunc(slow) }},
	{"reading fails", "metric.read", Undecided, withMonitor(monitor{refuses: true})},
	{"values come late", "metric.late", Warning, withMonitor(monitor{late: 270 * time.Second})},
	{"values do not come", "metric.late", Undecided, withMonitor(monitor{late: time.Hour})},
	{"values change afterwards", "metric.settled", Warning, withMonitor(monitor{changes: 0.5})},
}

// slow is a source that takes longer than a collector waits.
func slow(ctx context.Context) (autoscale.Reading, error) {
	return autoscale.Reading{Value: 1}, pause(ctx, 40*time.Second)
}

func withMonitor(m monitor) func(*metricSystem) {
	return func(s *metricSystem) { s.source = m.source() }
}

func TestMetricChecksNameWhatIsBroken(t *testing.T) {
	every(t, "metric", brokenMetrics)
	for _, row := range brokenMetrics {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &metricSystem{name: "cpu", requests: 5}
				row.damage(s)
				expect(t, s, row.check, row.want)
			})
		})
	}
}

// A metric that is not of Azure Monitor has no intervals.
func TestOtherMetric(t *testing.T) {
	s := OpenMetric("backlog", autoscale.SourceFunc(nil))
	expect(t, s, "metric.late", Skipped)
	expect(t, s, "metric.settled", Skipped)
}
