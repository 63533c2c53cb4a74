package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
	"github.com/sluice-go/sluice/internal/finalanswer"
	"github.com/sluice-go/sluice/internal/humanize"
)

// client sends requests to an API server.
type client struct {
	*connection
	timeout time.Duration // of a request
}

// refusal is an answer with a Status: the API server's reason why it refuses a request.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

const (
	// maxBusy is how often a request is sent that the API server is too busy for, and
	// maxWait how long it can ask to wait in between.
	maxBusy = 5
	maxWait = 10 * time.Second
)

// do sends a request and returns the response's body. A refused request gives a wrapped
// [*refusal]. It repeats a request after Retry-After, and once after a 401 with new
// credentials of a plug-in.
func (c *client) do(ctx context.Context, method string, target *url.URL, body []byte) ([]byte, error) {
	for attempt, renewed := 1, false; ; attempt++ {
		used, err := c.credential(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.source, err)
		}
		answer, err := c.send(ctx, used, method, target, body)
		var status *httpfetch.StatusError
		switch {
		case err == nil:
			return answer, nil
		case !errors.As(err, &status):
			return nil, fmt.Errorf("%s: %w", c.source, err)
		case status.Code == http.StatusUnauthorized && c.plugin != nil && !renewed:
			renewed = true
			if err := c.plugin.forget(ctx, used); err != nil {
				return nil, err
			}
		case status.RetryAfter > 0 && status.RetryAfter <= maxWait && attempt < maxBusy:
			if err := wait(ctx, status.RetryAfter); err != nil {
				return nil, err
			}
		default:
			return nil, c.explain(err, status)
		}
	}
}

// send sends a request over a connection of its own: requests are seldom, and certificates
// and tokens that have changed then need no other care.
func (c *client) send(ctx context.Context, cred *credential, method string, target *url.URL, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "sluice")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if cred.authorization != "" {
		r.Header.Set("Authorization", cred.authorization)
	}
	c.user.impersonate(r.Header)
	sender := c.client
	if sender == nil {
		transport, err := c.transport(cred.certificate)
		if err != nil {
			return nil, err
		}
		// The end of ctx ends neither a dial nor a handshake: net/http lets them go on, for
		// later requests.
		defer transport.CloseIdleConnections()
		sender = &http.Client{Transport: finalanswer.Transport(transport)}
	}
	return httpfetch.DoUntilDone(ctx, sender, r)
}

// maxMessage is the length in characters of an API server's message in an error.
const maxMessage = 300

// explain returns the error for an answer with another status than 2xx.
func (c *client) explain(err error, answer *httpfetch.StatusError) error {
	var status struct{ Kind, Message string }
	if json.Unmarshal(answer.Body, &status) == nil && status.Kind == "Status" && status.Message != "" {
		err = &refusal{answer.Code, humanize.Shorten(status.Message, maxMessage)}
	}
	if answer.Code == http.StatusUnauthorized {
		return fmt.Errorf("%s: the API server does not accept its credentials: renew them (%w)", c.source, err)
	}
	return fmt.Errorf("%s: %w", c.source, err)
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
