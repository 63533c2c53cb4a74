// Package httpjson reads a metric from an HTTP endpoint: a number in the JSON that it
// returns.
package httpjson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Source reads a number from an endpoint.
type Source struct {
	url  *url.URL
	path pointer
	cfg  Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns the number at path in the JSON that a GET of endpoint returns, as a
// source. path is a JSON pointer (RFC 6901), such as /queues/0/waiting; an empty one
// is the whole document.
func New(endpoint, path string, cfg *Config) (*Source, error) {
	at, err := httpfetch.ParseURL(endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	p, err := parsePointer(path)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", httpfetch.Redacted(at), err)
	}
	s := &Source{url: at, path: p}
	if cfg != nil {
		s.cfg = *cfg
	}
	return s, nil
}

// Read implements [autoscale.Source].
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("endpoint: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	for name, values := range s.cfg.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	body, err := httpfetch.Do(s.cfg.Client, r)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("endpoint: %w", err)
	}
	value, err := s.path.number(body)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("endpoint %s: %w", httpfetch.Redacted(s.url), err)
	}
	return autoscale.Reading{Value: value}, nil
}

// pointer is a JSON pointer.
type pointer struct {
	text  string
	steps []string
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func parsePointer(text string) (pointer, error) {
	if text == "" {
		return pointer{}, nil
	}
	if text[0] != '/' {
		return pointer{}, fmt.Errorf("path %.100q: a JSON pointer starts with /, such as /queues/0/waiting", text)
	}
	p := pointer{text: text, steps: strings.Split(text[1:], "/")}
	for i, step := range p.steps {
		for rest := step; ; {
			at := strings.IndexByte(rest, '~')
			if at < 0 {
				break
			}
			if rest = rest[at+1:]; rest == "" || rest[0] != '0' && rest[0] != '1' {
				return pointer{}, fmt.Errorf("path %.100q: ~ must be followed by 0 or 1: write ~0 for ~, ~1 for /", text)
			}
		}
		p.steps[i] = unescape.Replace(step)
	}
	return p, nil
}

// number returns the number at the pointer.
func (p pointer) number(document []byte) (float64, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return 0, fmt.Errorf("the response is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return 0, errors.New("the response is not JSON: there is text after the document")
	}
	for _, step := range p.steps {
		var found bool
		switch v := value.(type) {
		case map[string]any:
			value, found = v[step]
		case []any:
			i, err := strconv.ParseUint(step, 10, 31)
			if found = err == nil && i < uint64(len(v)) && (step == "0" || step[0] != '0'); found {
				value = v[i]
			}
		}
		if !found {
			return 0, fmt.Errorf("the response has nothing at %.100q", p.text)
		}
	}
	n, ok := value.(json.Number)
	if !ok {
		return 0, fmt.Errorf("the value at %.100q in the response is not a number", p.text)
	}
	f, err := n.Float64()
	if err != nil {
		return 0, fmt.Errorf("the number at %.100q is too large", p.text)
	}
	return f, nil
}
