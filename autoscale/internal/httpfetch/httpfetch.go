// Package httpfetch sends requests to untrusted HTTP endpoints: requests have a
// deadline, responses are bounded, redirects are not followed, and errors contain
// neither queries nor headers, which may hold secrets.
package httpfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// MaxBody is the largest size of a response in bytes.
	MaxBody = 1 << 20
	// Timeout bounds a request of [Do], with its response. The context can end it earlier.
	Timeout = 30 * time.Second
)

// StatusError is a response with a status other than 2xx.
type StatusError struct {
	Code     int
	Location string // where a redirect leads, without user and query; empty if it is none
	Body     []byte // of the response
	// RetryAfter is how long the response asks to wait, in whole seconds; 0 if it does not.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP %d (%s)", e.Code, http.StatusText(e.Code))
	if e.Location != "" {
		text += ": it redirects to " + e.Location + ", which is not followed: write the final URL"
	}
	return text
}

// ParseURL reads an absolute http or https URL.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("write a URL that starts with http:// or https:// and a host")
	}
	return u, nil
}

// Redacted returns a URL without user and query, which may hold secrets.
func Redacted(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// Do sends a request and returns the body of a 2xx response; for another status it
// returns a [*StatusError], wrapped. Of the client, which may be nil, it uses
// everything but CheckRedirect: a redirect is such an error too, because following it
// would send the headers to another server, and take a login page for an answer.
func Do(client *http.Client, r *http.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), Timeout, fmt.Errorf("no answer within %v", Timeout))
	defer cancel()
	return DoUntilDone(ctx, client, r)
}

// DoUntilDone is [Do] for a request that lasts until ctx ends.
func DoUntilDone(ctx context.Context, client *http.Client, r *http.Request) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s %s: %w", r.Method, Redacted(r.URL), err)
	}
	response, err := withoutRedirects(client).Do(r.WithContext(ctx))
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL's query may hold a token
		}
		return fail(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBody+1))
	switch {
	case err != nil:
		return fail(fmt.Errorf("read response: %w", err))
	case len(body) > MaxBody:
		return fail(fmt.Errorf("the response is larger than %d bytes", MaxBody))
	case response.StatusCode < 200 || response.StatusCode > 299:
		return fail(&StatusError{response.StatusCode, location(response), body, retryAfter(response)})
	}
	return body, nil
}

func retryAfter(r *http.Response) time.Duration {
	seconds, _ := strconv.ParseUint(r.Header.Get("Retry-After"), 10, 16) // else a date, which is not used
	return time.Duration(seconds) * time.Second
}

func withoutRedirects(client *http.Client) *http.Client {
	var c http.Client
	if client != nil {
		c = *client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// maxLocation is the length in bytes of a location in an error.
const maxLocation = 200

// location returns where a redirect leads, or "".
func location(r *http.Response) string {
	to, err := r.Location()
	if r.StatusCode < 300 || r.StatusCode > 399 || err != nil {
		return ""
	}
	text := Redacted(to)
	if len(text) > maxLocation {
		text = text[:maxLocation] + "…" // the path is escaped, so this cuts no character
	}
	return text
}
