// Package webhook scales by calling an HTTP endpoint that the user provides.
//
// A GET of its URL must return {"instances": 3}: how many instances there are, or
// will be once everything requested so far has been done. A POST requests another
// number; any 2xx status means that this is done or will be done:
//
//	POST /workers HTTP/1.1
//	Content-Type: application/json
//	Idempotency-Key: orders/17
//
//	{"resource": "orders", "action": 17, "from": 3, "to": 4, "decided": "2026-01-31T09:00:00Z", "reason": "…"}
//
// The Idempotency-Key is the same when an action is sent again, because the response
// was lost or was not a success. "to" is a number of instances, not a difference, so
// carrying a request out twice does no harm either. A POST may take as long as
// [autoscale.ScalerConfig].Timeout, a GET 30 s.
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

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Header is added to each request, such as Authorization. Default: none.
	Header http.Header
	// Client sends the requests. Redirects are not followed, and a GET lasts at most 30 s,
	// whatever it says. A POST may last as long as an attempt of the [autoscale.Scaler].
	// Default: http.DefaultTransport is used.
	Client *http.Client
}

// Target scales by an endpoint. It is safe for concurrent use.
type Target struct {
	url *url.URL
	cfg Config
}

var _ autoscale.Target = (*Target)(nil)

// New returns the endpoint at a URL, http or https, as a target.
func New(endpoint string, cfg *Config) (*Target, error) {
	at, err := httpfetch.ParseURL(endpoint)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	t := &Target{url: at}
	if cfg != nil {
		t.cfg = *cfg
	}
	return t, nil
}

// Instances implements [autoscale.Target] by a GET.
func (t *Target) Instances(ctx context.Context) (int, error) {
	body, err := t.do(ctx, http.MethodGet, nil, "")
	if err != nil {
		return 0, fmt.Errorf("webhook: %w", err)
	}
	var answer struct {
		Instances *int `json:"instances"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("webhook: GET %s: the response is not %s: %w", httpfetch.Redacted(t.url), wantedForm, err)
	}
	if answer.Instances == nil || *answer.Instances < 0 {
		return 0, fmt.Errorf("webhook: GET %s: the response is not %s", httpfetch.Redacted(t.url), wantedForm)
	}
	return *answer.Instances, nil
}

const wantedForm = `{"instances": a number}`

// scaleRequest is the body of a POST.
type scaleRequest struct {
	Resource string    `json:"resource"`
	Action   int64     `json:"action"`
	From     int       `json:"from"`
	To       int       `json:"to"`
	Decided  time.Time `json:"decided"`
	Reason   string    `json:"reason"`
}

var errNoAction = errors.New("Scale must be called by an autoscale.Scaler, whose context has the action")

// Scale implements [autoscale.Target] by a POST of the action. ctx must be that of an
// [autoscale.Scaler], which has the action.
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
	r, err := http.NewRequestWithContext(ctx, method, t.url.String(), bytes.NewReader(body))
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
	if _, bounded := ctx.Deadline(); bounded && method == http.MethodPost {
		return httpfetch.DoUntilDone(ctx, t.cfg.Client, r)
	}
	return httpfetch.Do(t.cfg.Client, r)
}
