// Package prometheus takes a metric from Prometheus, or from what speaks its
// HTTP API, by an instant query.
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

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Header is sent along, such as Authorization. Default: none.
	Header http.Header
	// Client sends the requests. Default: http.DefaultClient.
	Client *http.Client
}

// Source is the value of an expression.
type Source struct {
	at    *url.URL
	query string
	cfg   Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns what a PromQL expression says, asked of the server whose API is
// below the URL (…/api/v1/query). The expression must give a scalar or one
// series: sum(…), and `… or vector(0)` where no series means zero.
func New(server, query string, cfg *Config) (*Source, error) {
	at, err := httpfetch.ParseURL(server)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	if strings.TrimSpace(query) == "" {
		return nil, errors.New("prometheus: the query is empty")
	}
	s := &Source{at: at.JoinPath("api/v1/query"), query: query}
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
	u := *s.at
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
		var a answer // a refused query comes with its reason
		if json.Unmarshal(status.Body, &a) == nil && a.Error != "" {
			return 0, fmt.Errorf("HTTP %d: %s: %.300s", status.Code, a.ErrorType, a.Error)
		}
	}
	if err != nil {
		return 0, err
	}
	return value(body)
}

// answer is what the API sends: https://prometheus.io/docs/prometheus/latest/querying/api/.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// value takes the number out of an answer.
func value(body []byte) (float64, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, fmt.Errorf("the answer is not of Prometheus' API: %w", err)
	}
	if a.Status != "success" {
		return 0, fmt.Errorf("the answer is not a success: %s: %.300s", a.ErrorType, a.Error)
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
			return 0, fmt.Errorf("the answer's vector: %w", err)
		}
		switch len(series) {
		case 0:
			return 0, errors.New("the query gives no series: write `… or vector(0)` if that means zero")
		case 1:
			return series[0].Value.number()
		}
		return 0, fmt.Errorf("the query gives %d series: one is meant, such as sum(…)", len(series))
	}
	return 0, fmt.Errorf("the query gives a %.20q: a scalar or a vector of one is meant", a.Data.Type)
}

// sample is [time, "value"].
type sample struct{ text string }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *sample) UnmarshalJSON(data []byte) error {
	var pair []any
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return errors.New("a sample that is not a time and a value")
	}
	text, ok := pair[1].(string)
	if !ok {
		return errors.New("a sample whose value is not a text")
	}
	s.text = text
	return nil
}

func (s *sample) number() (float64, error) {
	f, err := strconv.ParseFloat(s.text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("the query gives %.40q, which is no number to go by", s.text)
	}
	return f, nil
}
