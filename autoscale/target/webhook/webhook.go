// Package webhook leaves scaling to an HTTP endpoint of the user's.
//
// A GET of its URL is to return {"instances": 3}: how many instances there are,
// or will be once all that was asked for is done. A POST asks for another
// number, and any status of success means that this is done or will be seen to:
//
//	POST /workers HTTP/1.1
//	Content-Type: application/json
//	Idempotency-Key: orders/17
//
//	{"resource": "orders", "action": 17, "from": 3, "to": 4, "decided": "2026-01-31T09:00:00Z", "reason": "…"}
//
// The key is the same whenever an action is sent again, because the answer was
// lost or not one of success. "to" is a number, not a change, so doing it twice
// does no harm either.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

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

// Target is an endpoint. It is safe for concurrent use.
type Target struct {
	at  *url.URL
	cfg Config
}

var _ autoscale.Target = (*Target)(nil)

// New returns the endpoint at a URL as a target.
func New(endpoint string, cfg *Config) (*Target, error) {
	at, err := httpfetch.ParseURL(endpoint)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	t := &Target{at: at}
	if cfg != nil {
		t.cfg = *cfg
	}
	return t, nil
}

// Instances asks the endpoint.
func (t *Target) Instances(ctx context.Context) (int, error) {
	body, err := t.do(ctx, http.MethodGet, nil, "")
	if err != nil {
		return 0, fmt.Errorf("webhook: %w", err)
	}
	var answer struct {
		Instances *int `json:"instances"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("webhook: GET %s: the answer is not %s: %w", httpfetch.Redacted(t.at), wantedForm, err)
	}
	if answer.Instances == nil || *answer.Instances < 0 {
		return 0, fmt.Errorf("webhook: GET %s: the answer is not %s", httpfetch.Redacted(t.at), wantedForm)
	}
	return *answer.Instances, nil
}

const wantedForm = `{"instances": a number}`

// scaleRequest is what a POST says.
type scaleRequest struct {
	Resource string    `json:"resource"`
	Action   int64     `json:"action"`
	From     int       `json:"from"`
	To       int       `json:"to"`
	Decided  time.Time `json:"decided"`
	Reason   string    `json:"reason"`
}

var errNoAction = errors.New("there is no action to tell of: it is a scaler's to call")

// Scale tells the endpoint of the action that a [autoscale.Scaler] carries out.
func (t *Target) Scale(ctx context.Context, to int) error {
	a, ok := autoscale.ActionFrom(ctx)
	if !ok {
		return fmt.Errorf("webhook: %w", errNoAction)
	}
	body, err := json.Marshal(scaleRequest{Resource: a.Resource, Action: a.Number, From: a.From, To: to, Decided: a.Decided, Reason: a.Reason})
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	key := url.PathEscape(a.Resource) + "/" + strconv.FormatInt(a.Number, 10)
	if _, err := t.do(ctx, http.MethodPost, body, key); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

func (t *Target) do(ctx context.Context, method string, body []byte, key string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if key != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
	}
	for name, values := range t.cfg.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	return httpfetch.Do(t.cfg.Client, r)
}
