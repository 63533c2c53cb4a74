package formats

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/finalanswer"
)

// Registry is a schema registry: it has the schemas that bodies were written with. Its
// implementations are [NewConfluent] and [NewAzure].
type Registry interface {
	// split returns the id of the schema that a body was written with, and the body without its
	// header.
	split(body []byte, contentType string) (id string, rest []byte, err error)
	// schema returns the schema with an id. The error is an outage, or an unknownSchemaError.
	schema(ctx context.Context, id string) (*registered, error)
	// check asks for a schema that does not exist.
	check(ctx context.Context) error
}

// registered is a schema of a registry.
type registered struct {
	kind       schemaKind
	text       string
	references []reference
}

// size returns how many bytes a schema has, with those that it refers to.
func (r *registered) size() int {
	size := len(r.text)
	for _, ref := range r.references {
		size += len(ref.text)
	}
	return size
}

type reference struct {
	name string // as the schema that needs it calls it
	text string
}

// schemaKind is the language of a schema, as Confluent's registry calls it.
type schemaKind string

const (
	kindAvro     schemaKind = "AVRO"
	kindProtobuf schemaKind = "PROTOBUF"
)

// unknownSchemaError: a registry does not have a schema, and says so itself.
type unknownSchemaError struct{ id, registry string }

func (e *unknownSchemaError) Error() string {
	return fmt.Sprintf("the schema registry %s does not have the schema %s that it names", e.registry, e.id)
}

// requestTime is how long a request to a registry may take.
const requestTime = 10 * time.Second

// registryClient sends the requests to a registry.
type registryClient struct {
	base      string // the URL, without a slash at its end
	http      *http.Client
	authorize func(*http.Request) error // sets the credentials; nil: none
}

// checkRegistryURL checks that a text is the URL of a registry.
func checkRegistryURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be a URL like https://registry.example.com, without a user, a query and a fragment")
	}
	return nil
}

func newRegistryClient(base string, config *tls.Config) *registryClient {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return &registryClient{base: strings.TrimSuffix(base, "/"), http: &http.Client{
		Transport:     finalanswer.Transport(transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is a complete answer of a registry.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// get sends a GET request. Every error is an outage.
func (c *registryClient) get(ctx context.Context, path string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, c.outage("%w", err)
	}
	req.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json, */*")
	if c.authorize != nil {
		if err := c.authorize(req); err != nil {
			return nil, c.outage("no token: %w", oneLine(err, ""))
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok { // without the URL, which follows
			err = failed.Err
		}
		return nil, c.outage("GET %s: %w", path, oneLine(err, ""))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSchemaSize+1))
	switch {
	case err != nil:
		return nil, c.outage("GET %s: the answer: %w", path, oneLine(err, ""))
	case len(body) > maxSchemaSize:
		return nil, c.outage("GET %s: the answer has more than %d bytes", path, maxSchemaSize)
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// refused returns the outage of an answer that is no schema.
func (c *registryClient) refused(path string, a *answer) error {
	hint := ""
	var refusal confluentSchema
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		hint = ": check the credentials of source.format.registry"
	case a.status == http.StatusNotFound && a.object(&refusal) && refusal.ErrorCode != 0: // a reference
		hint = fmt.Sprintf(", error code %d", refusal.ErrorCode)
	case a.status == http.StatusOK, a.status == http.StatusNotFound:
		hint = ", which is not the answer of a schema registry: check the address in source.format.registry"
	}
	return c.outage("GET %s: %d %s%s", path, a.status, http.StatusText(a.status), hint)
}

func (c *registryClient) outage(format string, args ...any) error {
	return driver.Outage(fmt.Errorf("schema registry %s: "+format, append([]any{c.base}, args...)...))
}

// object decodes an answer that should be a JSON object, and reports whether it is one.
func (a *answer) object(to any) bool { return json.Unmarshal(a.body, to) == nil }
