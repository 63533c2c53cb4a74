// Package httpfetch sends requests to untrusted HTTP endpoints: responses are bounded,
// and errors contain neither queries nor headers, which may hold secrets.
package httpfetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// MaxBody is the largest size of a response in bytes.
const MaxBody = 1 << 20

// StatusError is a response with a status other than 2xx.
type StatusError struct {
	Code int
	Body []byte // of the response
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP %d (%s)", e.Code, http.StatusText(e.Code))
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
// returns a [*StatusError], wrapped. A nil client is http.DefaultClient.
func Do(client *http.Client, r *http.Request) ([]byte, error) {
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL's query may hold a token
		}
		return nil, fmt.Errorf("%s %s: %w", r.Method, Redacted(r.URL), err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: read response: %w", r.Method, Redacted(r.URL), err)
	case len(body) > MaxBody:
		return nil, fmt.Errorf("%s %s: the response is larger than %d bytes", r.Method, Redacted(r.URL), MaxBody)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, fmt.Errorf("%s %s: %w", r.Method, Redacted(r.URL), &StatusError{response.StatusCode, body})
	}
	return body, nil
}
