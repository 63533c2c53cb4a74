// Package azuremonitor reads a metric of Azure Monitor, such as the CPU of an App Service
// plan.
package azuremonitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

const (
	// settling is how long after its end an interval is not used: Azure is still
	// collecting its data, so that a total would be too low.
	settling = time.Minute
	// lateness is how much later than that a value may come before it is missing; a window
	// that is longer counts instead.
	lateness = 5 * time.Minute
	// maxWait is the longest Retry-After that is waited for within a call. A longer one
	// makes that call and the next ones fail.
	maxWait = 10 * time.Second
)

// windows are the intervals over which Azure aggregates, as it writes them.
var windows = map[time.Duration]string{
	time.Minute: "PT1M", 5 * time.Minute: "PT5M", 15 * time.Minute: "PT15M", 30 * time.Minute: "PT30M",
	time.Hour: "PT1H", 6 * time.Hour: "PT6H", 12 * time.Hour: "PT12H", 24 * time.Hour: "P1D",
}

// Aggregations are what a value can be of the measurements in its window.
var Aggregations = []string{"average", "minimum", "maximum", "total", "count"}

// Config names the metric, and how to connect. Resource, Metric and Credential are required.
type Config struct {
	// Resource is the id of the resource, such as
	// /subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Web/serverfarms/PLAN.
	Resource string
	// Metric is the name of the metric in the REST API, such as CpuPercentage.
	Metric string
	// Namespace is the metric's namespace. Default: that of the resource's own metrics.
	Namespace string
	// Filter chooses one value of each dimension, such as EntityName eq 'orders'. Default:
	// all values of all dimensions together.
	Filter string
	// Aggregation is one of [Aggregations]. Default: average.
	Aggregation string
	// Window is the interval over which Azure aggregates a value: 1, 5, 15 or 30 minutes, or
	// 1, 6, 12 or 24 hours. Not every metric has all of them. Default: 1 min.
	Window time.Duration
	// Credential is used for Azure Resource Manager. It needs the right to read metrics, as
	// the role Monitoring Reader has.
	Credential azcore.TokenCredential
	// Options are passed to the SDK. Default: none.
	Options *arm.ClientOptions
}

// Source reads a metric of Azure Monitor.
type Source struct {
	cfg       Config
	metrics   *azclient.Resource[answer]
	notBefore time.Time // Azure asked to wait until then
}

var _ autoscale.Source = (*Source)(nil)

// New returns the metric as a source. It does not connect before the source is used.
func New(cfg *Config) (*Source, error) {
	s := &Source{cfg: *cfg}
	s.cfg.Aggregation = cmp.Or(cfg.Aggregation, "average")
	s.cfg.Window = cmp.Or(cfg.Window, time.Minute)
	switch {
	case cfg.Metric == "" || cfg.Credential == nil:
		return nil, errors.New("azure monitor: give the metric's name and a credential")
	case !slices.Contains(Aggregations, s.cfg.Aggregation):
		return nil, fmt.Errorf("azure monitor: aggregation %q: write one of %s", s.cfg.Aggregation, strings.Join(Aggregations, ", "))
	}
	path, err := escape(cfg.Resource)
	if err := cmp.Or(err, CheckMetric(cfg.Metric), CheckWindow(s.cfg.Window)); err != nil {
		return nil, fmt.Errorf("azure monitor: %w", err)
	}
	var options arm.ClientOptions
	if cfg.Options != nil {
		options = *cfg.Options
	}
	options.Retry.MaxRetryDelay = cmp.Or(options.Retry.MaxRetryDelay, maxWait)
	// https://learn.microsoft.com/rest/api/monitor/metrics/list
	s.metrics, err = azclient.NewResource[answer](cfg.Credential, &options, path+"/providers/Microsoft.Insights/metrics", "2021-05-01")
	if err != nil {
		return nil, fmt.Errorf("azure monitor: %w", err)
	}
	return s, nil
}

// CheckMetric returns an error unless text is the name of one metric.
func CheckMetric(text string) error {
	if strings.Contains(text, ",") || len(text) > 200 {
		return fmt.Errorf("metric %.200q: write the name of one metric, without a comma", text)
	}
	return nil
}

// CheckWindow returns an error unless Azure aggregates over such an interval.
func CheckWindow(d time.Duration) error {
	if windows[d] != "" {
		return nil
	}
	return fmt.Errorf("window %v: Azure aggregates over 1m, 5m, 15m, 30m, 1h, 6h, 12h or 24h", d)
}

// CheckResource returns an error unless text has the form of a resource's id.
func CheckResource(text string) error { _, err := escape(text); return err }

// escape returns a resource's id as the path of a URL.
func escape(id string) (string, error) {
	parts := strings.Split(id, "/")
	valid := len(parts) >= 9 && len(parts)%2 == 1 && len(id) <= 2048 && parts[0] == "" && parts[1] == "subscriptions" &&
		strings.EqualFold(parts[3], "resourceGroups") && parts[5] == "providers"
	for i, part := range parts {
		valid = valid && (i == 0 || part != "" && part != "." && part != "..") &&
			!strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || strings.ContainsRune("?#%\\", r) })
		parts[i] = url.PathEscape(part)
	}
	if !valid {
		return "", fmt.Errorf("resource %.200q: write its id, /subscriptions/ID/resourceGroups/GROUP/providers/TYPE/NAME (az resource show --query id)", id)
	}
	return strings.Join(parts, "/"), nil
}

// Value is an aggregated value.
type Value struct {
	From, To time.Time // its interval
	Value    float64
}

// Read implements [autoscale.Source]. It returns the newest value of an interval that ended
// at least a minute ago. If no value has come for about five minutes, or for a window that is
// longer, that is an error.
// After Azure has asked for a longer wait by Retry-After, Read fails without a request until
// then. Its calls must not overlap.
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	list, err := s.Values(ctx)
	if err == nil && len(list) == 0 {
		err = errors.New("no value of the last intervals: the resource may be stopped or emit nothing at present; check the metric's name, filter and aggregation (az monitor metrics list-definitions)")
	}
	if err != nil {
		return autoscale.Reading{}, s.fail(err)
	}
	return autoscale.Reading{Value: list[len(list)-1].Value}, nil
}

// Values returns the values of the recent intervals that Read considers, oldest first.
// Intervals without a value are left out.
func (s *Source) Values(ctx context.Context) ([]Value, error) {
	now := time.Now()
	if wait := s.notBefore.Sub(now); wait > 0 {
		return nil, fmt.Errorf("throttled: Azure asked to wait for another %v", wait.Round(time.Second))
	}
	window := s.cfg.Window
	to := now.UTC().Add(-settling).Truncate(window)
	from := to.Add(-window - (lateness+window-1)/window*window)
	parameters := url.Values{
		"metricnames": {s.cfg.Metric}, "aggregation": {s.cfg.Aggregation}, "interval": {windows[window]},
		"timespan": {from.Format(time.RFC3339) + "/" + to.Format(time.RFC3339)},
	}
	for name, value := range map[string]string{"$filter": s.cfg.Filter, "metricnamespace": s.cfg.Namespace} {
		if value != "" {
			parameters.Set(name, value)
		}
	}
	a, err := s.metrics.Query(ctx, parameters)
	if err != nil {
		if wait := azerror.RetryAfter(err); wait > 0 {
			s.notBefore = now.Add(wait)
		}
		return nil, err
	}
	points, err := a.points(s.cfg.Metric)
	if err != nil {
		return nil, err
	}
	var list []Value
	for _, p := range points {
		value := p.value(s.cfg.Aggregation)
		if end := p.Time.Add(window); value != nil && !p.Time.Before(from) && !end.After(to) {
			list = append(list, Value{p.Time, end, *value})
		}
	}
	slices.SortFunc(list, func(a, b Value) int { return a.From.Compare(b.From) })
	return list, nil
}

// answer is the response of the REST API.
type answer struct {
	Value []struct {
		Name struct {
			Value string `json:"value"`
		} `json:"name"`
		Code    string `json:"errorCode"` // Success, or why this metric has no data
		Message string `json:"errorMessage"`
		Series  []struct {
			Data []point `json:"data"`
		} `json:"timeseries"`
	} `json:"value"`
}

// point is the value of an interval. Without data in the interval all aggregations are missing.
type point struct {
	Time    time.Time `json:"timeStamp"` // where it begins
	Average *float64  `json:"average"`
	Minimum *float64  `json:"minimum"`
	Maximum *float64  `json:"maximum"`
	Total   *float64  `json:"total"`
	Count   *float64  `json:"count"`
}

func (p *point) value(aggregation string) *float64 {
	switch aggregation {
	case "minimum":
		return p.Minimum
	case "maximum":
		return p.Maximum
	case "total":
		return p.Total
	case "count":
		return p.Count
	}
	return p.Average
}

// points returns the points of the only series of the metric.
func (a *answer) points(metric string) ([]point, error) {
	if len(a.Value) != 1 || !strings.EqualFold(a.Value[0].Name.Value, metric) {
		return nil, fmt.Errorf("the response has %d metrics, instead of this one", len(a.Value))
	}
	m := a.Value[0]
	if m.Code != "" && m.Code != "Success" {
		return nil, fmt.Errorf("the query failed: %.50q: %.300q", m.Code, m.Message)
	}
	switch len(m.Series) {
	case 0:
		return nil, nil
	case 1:
		return m.Series[0].Data, nil
	}
	return nil, fmt.Errorf("the filter matches %d series: name one value of each dimension, without '*'", len(m.Series))
}

func (s *Source) fail(err error) error {
	return fmt.Errorf("azure monitor: %s of %s: %w", s.cfg.Metric, s.cfg.Resource[strings.LastIndexByte(s.cfg.Resource, '/')+1:], azerror.Shorten(err))
}
