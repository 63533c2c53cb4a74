// Package prometheus reads a metric by an instant query, from Prometheus or any server
// with its HTTP API.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
)

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Header is added to each request, such as Authorization. Default: none.
	Header http.Header
	// Client sends the requests. Redirects are not followed, and a request lasts at most
	// 30 s, whatever it says. Default: http.DefaultTransport is used.
	Client *http.Client
}

// Source reads the value of a PromQL expression.
type Source struct {
	url   *url.URL
	query string
	cfg   Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns the value of a PromQL expression as a source. server is the URL of which
// the API is below (…/api/v1/query). The expression must return a scalar or one
// series: use sum(…), and `… or vector(0)` if no series means zero.
func New(server, query string, cfg *Config) (*Source, error) {
	at, err := httpfetch.ParseURL(server)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	if strings.TrimSpace(query) == "" {
		return nil, errors.New("prometheus: the query is empty")
	}
	s := &Source{url: at.JoinPath("api/v1/query"), query: query}
	if cfg != nil {
		s.cfg = *cfg
	}
	return s, nil
}

// Read implements [autoscale.Source].
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	value, err := s.ask(ctx)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("prometheus: %w", err)
	}
	return autoscale.Reading{Value: value}, nil
}

func (s *Source) ask(ctx context.Context) (float64, error) {
	u := *s.url
	q := u.Query()
	q.Set("query", s.query)
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	for name, values := range s.cfg.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	body, err := httpfetch.Do(s.cfg.Client, r)
	var status *httpfetch.StatusError
	if errors.As(err, &status) {
		var a answer // a refused query has its reason in the body
		if json.Unmarshal(status.Body, &a) == nil && a.Error != "" {
			return 0, fmt.Errorf("HTTP %d: %s: %.300s", status.Code, a.ErrorType, a.Error)
		}
	}
	if err != nil {
		return 0, err
	}
	return value(body)
}

// answer is a response of the API: https://prometheus.io/docs/prometheus/latest/querying/api/.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// value returns the number in a response.
func value(body []byte) (float64, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, fmt.Errorf("the response is not one of the Prometheus API: %w", err)
	}
	if a.Status != "success" {
		return 0, fmt.Errorf("the query failed: %s: %.300s", a.ErrorType, a.Error)
	}
	switch a.Data.Type {
	case "scalar":
		var s sample
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return 0, err
		}
		return s.number()
	case "vector":
		var series []struct {
			Value sample `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &series); err != nil {
			return 0, fmt.Errorf("decode vector: %w", err)
		}
		switch len(series) {
		case 0:
			return 0, errors.New("the query returns no series: write `… or vector(0)` if that means zero")
		case 1:
			return series[0].Value.number()
		}
		return 0, fmt.Errorf("the query returns %d series: it must return one, as sum(…) does", len(series))
	}
	return 0, fmt.Errorf("the query returns a %.20q: it must return a scalar or a vector with one series", a.Data.Type)
}

// sample is [time, "value"].
type sample struct{ text string }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *sample) UnmarshalJSON(data []byte) error {
	var pair []any
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return errors.New("invalid sample: it is not a time and a value")
	}
	text, ok := pair[1].(string)
	if !ok {
		return errors.New("invalid sample: the value is not a string")
	}
	s.text = text
	return nil
}

func (s *sample) number() (float64, error) {
	f, err := strconv.ParseFloat(s.text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("the query returns %.40q, which is not a finite number", s.text)
	}
	return f, nil
}
