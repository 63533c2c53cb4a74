package webhook

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Format is how the events of a request are encoded.
type Format byte

// The formats.
const (
	// CloudEvents is a batch of structured CloudEvents in JSON, application/cloudevents-batch+json.
	CloudEvents Format = iota
	// JSON is an array of objects, application/json.
	JSON
	// JSONLines is one object on each line, application/x-ndjson.
	JSONLines
)

// Config has the optional settings of a [Sink]. The zero value is ready to use.
type Config struct {
	// Format is CloudEvents by default.
	Format Format
	// Type is the type of each CloudEvent, unless its [Message] has another.
	// Default: "sluice.event".
	Type string

	// MaxEvents is the most events in one request. Default: 500.
	MaxEvents int
	// MaxBytes is the most bytes in the body of one request. A longer event is sent alone.
	// Default: 1,000,000, within the limit that common servers have.
	MaxBytes int
	// FlushAfter is how long an event waits for others to fill a batch. Default: 10 ms.
	FlushAfter time.Duration
	// Concurrency is the most requests in flight for one partition. Default: 4.
	Concurrency int
	// Timeout bounds each request, with its answer. Default: 30 s.
	Timeout time.Duration
	// MaxRetryAfter bounds how long a Retry-After header is obeyed. Default: 5 min.
	MaxRetryAfter time.Duration

	// Header is sent with every request, for example with the key of a function. Its values
	// are secrets: they appear in no error.
	Header http.Header
	// Keys sign each request as Standard Webhooks do: HMAC-SHA256 over id, timestamp and body,
	// one signature for each key, so that a key can be replaced. At least 24 bytes each; see
	// [ParseKey]. Default: requests are not signed.
	Keys [][]byte
	// Credential is for a token of Entra ID with Scope, such as "api://…/.default", which is
	// sent with every request. Then the URL must be https. Default: none.
	Credential azcore.TokenCredential
	Scope      string

	// TLS are options of the connections. Default: those of crypto/tls.
	TLS *tls.Config
	// Transport replaces the sink's own, and TLS with it. It must neither retry nor follow
	// redirects. Default: one that keeps its connections, through the proxy of the environment.
	Transport http.RoundTripper
}

// leastKey is the least length of a key in bytes, as Standard Webhooks demand.
const leastKey = 24

// ownHeaders are the headers that the sink sets, in canonical form.
var ownHeaders = []string{"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Host", "Trailer", "Upgrade", "User-Agent"}

// CheckHeader checks the name of a header for [Config].Header, and its value.
func CheckHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, notInName):
		return errors.New("is not the name of a header")
	case slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Sluice-") || strings.HasPrefix(canonical, "Webhook-"):
		return errors.New("is set by Sluice itself: remove it")
	case strings.ContainsFunc(value, notInValue):
		return errors.New("has a value with characters that a header must not have, such as a line break")
	}
	return nil
}

// notInName reports whether a name of a header must not have a character (RFC 9110, token).
func notInName(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// notInValue reports whether a value of a header must not have a character.
func notInValue(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// ParseKey returns the key for signatures that a text holds: base64 after "whsec_", as
// Standard Webhooks write it, or else the text's own bytes. The error does not show it.
func ParseKey(text string) ([]byte, error) {
	key := []byte(text)
	if encoded, ok := strings.CutPrefix(text, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("is not base64 after whsec_")
		}
	}
	if len(key) < leastKey {
		return nil, fmt.Errorf("has %d bytes: use at least %d random ones, for example of: openssl rand -base64 32", len(key), leastKey)
	}
	return key, nil
}

func (c *Config) resolve() (Config, error) {
	var r Config
	if c != nil {
		r = *c
	}
	r.Type = cmp.Or(r.Type, "sluice.event")
	r.MaxEvents = cmp.Or(r.MaxEvents, 500)
	r.MaxBytes = cmp.Or(r.MaxBytes, 1_000_000)
	r.FlushAfter = cmp.Or(r.FlushAfter, 10*time.Millisecond)
	r.Concurrency = cmp.Or(r.Concurrency, 4)
	r.Timeout = cmp.Or(r.Timeout, 30*time.Second)
	r.MaxRetryAfter = cmp.Or(r.MaxRetryAfter, 5*time.Minute)
	switch {
	case r.Format > JSONLines:
		return r, fmt.Errorf("format %d: no such format", r.Format)
	case r.MaxEvents < 1:
		return r, fmt.Errorf("%d events per request: must be positive", r.MaxEvents)
	case r.MaxBytes < 1:
		return r, fmt.Errorf("%d bytes per request: must be positive", r.MaxBytes)
	case r.FlushAfter < 0:
		return r, fmt.Errorf("flush after %v: must be positive", r.FlushAfter)
	case r.Concurrency < 1:
		return r, fmt.Errorf("%d requests at once: must be positive", r.Concurrency)
	case r.Timeout < 0:
		return r, fmt.Errorf("timeout %v: must be positive", r.Timeout)
	case r.MaxRetryAfter < 0:
		return r, fmt.Errorf("retry after at most %v: must be positive", r.MaxRetryAfter)
	case (r.Credential != nil) != (r.Scope != ""):
		return r, errors.New("credential and scope go together: the scope is such as api://APP/.default")
	}
	for _, key := range r.Keys {
		if len(key) < leastKey {
			return r, fmt.Errorf("a key for signatures has %d bytes: use at least %d random ones", len(key), leastKey)
		}
	}
	for name, values := range r.Header {
		for _, value := range values {
			if err := CheckHeader(name, value); err != nil {
				return r, fmt.Errorf("header %.40q: %w", name, err)
			}
		}
	}
	if r.Credential != nil && r.Header.Get("Authorization") != "" {
		return r, errors.New("credential and the header Authorization exclude each other")
	}
	return r, nil
}
