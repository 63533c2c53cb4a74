package azuremonitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/armtest"
	"github.com/sluice-go/sluice/autoscale/source/azuremonitor"
)

const plan = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop & more/providers/Microsoft.Web/serverfarms/workers"

// azure is a stand-in for Azure Monitor with one metric. It answers as the REST API documents: each
// interval of the timespan is in the response, with the aggregation if there is data in it.
type azure struct {
	*testing.T
	value    func(from time.Time) (value float64, there bool)
	wants    url.Values // of the query, but not the timespan
	answers  func(*http.Request) *http.Response
	window   time.Duration
	requests int
}

func respond(r *http.Request, status int, body string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

func (a *azure) Do(r *http.Request) (*http.Response, error) {
	a.requests++
	if a.answers != nil {
		return a.answers(r), nil
	}
	q := r.URL.Query()
	if r.Header.Get("Authorization") == "" || r.URL.Path != plan+"/providers/Microsoft.Insights/metrics" || q.Get("api-version") != "2021-05-01" {
		return respond(r, http.StatusNotFound, `{"error": {"code": "ResourceNotFound", "message": "no such\nresource"}}`), nil
	}
	for name := range a.wants {
		if q.Get(name) != a.wants.Get(name) {
			a.Errorf("%s is %q, want %q", name, q.Get(name), a.wants.Get(name))
		}
	}
	first, last, _ := strings.Cut(q.Get("timespan"), "/")
	from, err := time.Parse(time.RFC3339, first)
	to, err2 := time.Parse(time.RFC3339, last)
	if err != nil || err2 != nil || !to.After(from) || to.Sub(from)/a.window > 10 {
		a.Errorf("timespan %s", q.Get("timespan"))
	}
	var points []string
	for ; from.Before(to); from = from.Add(a.window) {
		text := fmt.Sprintf(`{"timeStamp": %q`, from.Format(time.RFC3339))
		if v, there := a.value(from); there {
			text += fmt.Sprintf(`, %q: %v`, q.Get("aggregation"), v)
		}
		points = append(points, text+"}")
	}
	return respond(r, http.StatusOK, answer(`"errorCode": "Success", "timeseries": [{"metadatavalues": [], "data": [`+strings.Join(points, ",")+`]}]`)), nil
}

// answer is a response of the REST API.
func answer(metric string) string {
	return `{"cost": 0, "interval": "PT1M", "value": [{"id": "x", "type": "Microsoft.Insights/metrics", "name": {"value": "CpuPercentage", "localizedValue": "CPU Percentage"}, "unit": "Percent", ` + metric + `}]}`
}

func (a *azure) source(change func(*azuremonitor.Config)) *azuremonitor.Source {
	a.Helper()
	cfg := &azuremonitor.Config{
		Resource: plan, Metric: "CpuPercentage", Credential: &azfake.TokenCredential{},
		Options: &arm.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: a, Retry: policy.RetryOptions{RetryDelay: time.Second}}},
	}
	if change != nil {
		change(cfg)
	}
	s, err := azuremonitor.New(cfg)
	if err != nil {
		a.Fatal(err)
	}
	return s
}

// valuesUntil is a metric whose value is the minute of the hour, in the intervals up to one.
func valuesUntil(last time.Time) func(time.Time) (float64, bool) {
	return func(from time.Time) (float64, bool) { return float64(from.Minute()), !from.After(last) }
}

// TestNewest: the newest value counts whose interval ended a minute ago or earlier. One that is up
// to five minutes late is not missing; then it is, and never 0.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		a := &azure{T: t, window: time.Minute, wants: url.Values{"metricnames": {"CpuPercentage"}, "aggregation": {"average"}, "interval": {"PT1M"}}}
		s := a.source(nil)
		time.Sleep(30*time.Minute + 20*time.Second)
		now := time.Now().UTC().Truncate(time.Minute) // 00:30
		for late := range 9 {
			a.value = valuesUntil(now.Add(-time.Duration(late) * time.Minute))
			r, err := s.Read(t.Context())
			switch want := float64(30 - max(late, 2)); {
			case late == 8:
				if armtest.Fails(t, "late by 8 minutes", "azure monitor: CpuPercentage of workers: no value", err); r.Value != 0 {
					t.Errorf("value %v beside the error", r.Value)
				}
			case err != nil || r.Value != want:
				t.Errorf("late by %d: %v, %v; want %v", late, r.Value, err, want)
			}
		}
		a.value = func(from time.Time) (float64, bool) { return 0, from.Minute() == 26 } // a gap after a true 0
		if r, err := s.Read(t.Context()); err != nil || r.Value != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestOptions: each option is in the request.
func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, aggregation := range azuremonitor.Aggregations {
			a := &azure{T: t, window: 5 * time.Minute, value: func(time.Time) (float64, bool) { return 7.5, true }, wants: url.Values{
				"aggregation": {aggregation}, "interval": {"PT5M"}, "$filter": {"EntityName eq 'orders'"}, "metricnamespace": {"Azure.VM/x"},
			}}
			s := a.source(func(c *azuremonitor.Config) {
				c.Aggregation, c.Window, c.Filter, c.Namespace = aggregation, 5*time.Minute, "EntityName eq 'orders'", "Azure.VM/x"
			})
			if r, err := s.Read(t.Context()); err != nil || r.Value != 7.5 {
				t.Errorf("%s: %+v, %v", aggregation, r, err)
			}
		}
	})
}

// TestThrottled: a short Retry-After is waited for. After a longer one, no request is sent until
// then.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, window: time.Minute, value: func(time.Time) (float64, bool) { return 1, true }}
		throttle := func(seconds string) func(*http.Request) *http.Response {
			return func(r *http.Request) *http.Response {
				a.answers = nil
				return respond(r, http.StatusTooManyRequests, `{"error": {"code": "TooManyRequests", "message": "slow down"}}`, "Retry-After", seconds)
			}
		}
		s, began := a.source(nil), time.Now()
		a.answers = throttle("7")
		if r, err := s.Read(t.Context()); err != nil || r.Value != 1 || time.Since(began) != 7*time.Second || a.requests != 2 {
			t.Errorf("%+v, %v after %v and %d requests", r, err, time.Since(began), a.requests)
		}
		for _, date := range []bool{false, true} {
			after := "90"
			if date {
				after = time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
			}
			a.answers, a.requests = throttle(after), 0
			_, err := s.Read(t.Context())
			armtest.Fails(t, "refused", "HTTP 429 (Too Many Requests, TooManyRequests): slow down", err)
			time.Sleep(80 * time.Second)
			_, err = s.Read(t.Context())
			armtest.Fails(t, "too early", "throttled: Azure asked to wait for another 10s", err)
			if a.requests != 1 {
				t.Errorf("%d requests, want 1", a.requests)
			}
			time.Sleep(10 * time.Second)
			if _, err := s.Read(t.Context()); err != nil || a.requests != 2 {
				t.Errorf("%v after %d requests", err, a.requests)
			}
		}
		a.answers = throttle("4000000000")
		_, err := s.Read(t.Context())
		armtest.Fails(t, "far too long", "HTTP 429", err)
		time.Sleep(time.Hour + time.Second)
		if _, err := s.Read(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestFailures: whatever Azure answers, there is one line, and no value.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, window: time.Minute, value: func(time.Time) (float64, bool) { return 1, true }}
		s := a.source(nil)
		now := time.Now().UTC().Add(-3 * time.Minute).Format(time.RFC3339)
		for body, want := range map[string]string{
			`{`:             "unmarshalling type",
			`{}`:            "the response has 0 metrics",
			`{"value": []}`: "the response has 0 metrics",
			strings.Replace(answer(`"timeseries": []`), "CpuPercentage", "MemoryPercentage", 1): "instead of this one",
			answer(`"errorCode": "InternalError", "errorMessage": "a\nb"`):                      `the query failed: "InternalError": "a\nb"`,
			answer(`"timeseries": []`):                                                                "no value",
			answer(`"timeseries": [{"data": []}, {"data": []}]`):                                      "the filter matches 2 series",
			answer(`"timeseries": [{"data": [{"timeStamp": "` + now + `"}]}]`):                        "no value",
			answer(`"timeseries": [{"data": [{"timeStamp": "` + now + `", "average": null}]}]`):       "no value",
			answer(`"timeseries": [{"data": [{"timeStamp": "` + now + `", "total": 5}]}]`):            "no value",
			answer(`"timeseries": [{"data": [{"timeStamp": "1999-01-01T00:00:00Z", "average": 5}]}]`): "no value",
			answer(`"timeseries": [{"data": [{"timeStamp": "2999-01-01T00:00:00Z", "average": 5}]}]`): "no value",
			answer(`"timeseries": [{"data": [{"timeStamp": "` + now + `", "average": "5"}]}]`):        "unmarshalling type",
			answer(`"timeseries": [{"data": [{"timeStamp": "` + now + `", "average": 1e999}]}]`):      "unmarshalling type",
		} {
			a.answers = func(r *http.Request) *http.Response { return respond(r, http.StatusOK, body) }
			_, err := s.Read(t.Context())
			armtest.Fails(t, body, want, err)
		}
		a.answers = func(r *http.Request) *http.Response {
			return respond(r, http.StatusBadRequest, `{"code": "BadRequest", "message": "Detected invalid time grain input: PT1M"}`)
		}
		_, err := s.Read(t.Context())
		armtest.Fails(t, "refused", "HTTP 400 (Bad Request, BadRequest): Detected invalid time grain input: PT1M", err)
		a.answers = nil
		_, err = a.source(func(c *azuremonitor.Config) { c.Resource = plan + "2" }).Read(t.Context())
		armtest.Fails(t, "no such resource", "azure monitor: CpuPercentage of workers2: HTTP 404 (Not Found, ResourceNotFound): no such resource", err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Read(ctx)
		armtest.Fails(t, "interrupted", "context canceled", err)
	})
}

func TestConfig(t *testing.T) {
	valid := azuremonitor.Config{Resource: plan, Metric: "x", Credential: &azfake.TokenCredential{}}
	for want, change := range map[string]func(*azuremonitor.Config){
		"give the metric's name":                                                  func(c *azuremonitor.Config) { c.Metric = "" },
		"give the metric's name and a credential":                                 func(c *azuremonitor.Config) { c.Credential = nil },
		`metric "a,b": write the name of one metric`:                              func(c *azuremonitor.Config) { c.Metric = "a,b" },
		"write one of average, minimum":                                           func(c *azuremonitor.Config) { c.Aggregation = "median" },
		"window 2m0s: Azure aggregates over 1m, 5m, 15m, 30m, 1h, 6h, 12h or 24h": func(c *azuremonitor.Config) { c.Window = 2 * time.Minute },
		`resource "workers": write its id`:                                        func(c *azuremonitor.Config) { c.Resource = "workers" },
		`?x": write its id`:                                                       func(c *azuremonitor.Config) { c.Resource += "?x" },
		`../y": write its id`:                                                     func(c *azuremonitor.Config) { c.Resource += "/../y" },
	} {
		c := valid
		change(&c)
		_, err := azuremonitor.New(&c)
		armtest.Fails(t, "configuration", want, err)
	}
}

// FuzzAnswer: no response makes Read panic, and none that is invalid gives a value.
func FuzzAnswer(f *testing.F) {
	f.Add(answer(`"timeseries": [{"data": [{"timeStamp": "2026-01-01T00:00:00Z", "average": 5}]}]`))
	f.Add(`{"value": [{"name": {"value": "CpuPercentage"}, "timeseries": [null]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		a := &azure{T: t, answers: func(r *http.Request) *http.Response { return respond(r, http.StatusOK, body) }}
		r, err := a.source(nil).Read(t.Context())
		if err == nil && !json.Valid([]byte(body)) || err != nil && r != (autoscale.Reading{}) {
			t.Errorf("%q gives %+v, %v", body, r, err)
		}
	})
}
