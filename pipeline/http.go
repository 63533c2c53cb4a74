package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/webhook"
)

// httpTarget is an endpoint to which events are posted.
type httpTarget struct {
	url        string
	credential string
	config     webhook.Config
	unordered  []*strictyaml.Node // the given keys that order: partition cannot have
	identities *identityQuery     // nil: none
}

// Limits of an http target.
const (
	maxPost        = 100_000   // events
	maxPostBytes   = 256 << 20 // of a request
	maxConcurrency = 1024      // requests of one partition
)

var httpFormats = map[string]webhook.Format{"cloudevents": webhook.CloudEvents, "json": webhook.JSON, "jsonlines": webhook.JSONLines}

// readHTTPTarget reads target.http.
func readHTTPTarget(n strictyaml.Node) *httpTarget {
	t := &httpTarget{}
	t.read(n, strictyaml.Keys{"audit": func(n strictyaml.Node) { t.identities = readIdentityQuery(n, nil) }})
	return t
}

// read reads an endpoint, and more keys of the same mapping.
func (t *httpTarget) read(n strictyaml.Node, keys strictyaml.Keys) {
	c := &t.config
	maps.Copy(keys, strictyaml.Keys{
		"url": t.readURL,
		"format": func(n strictyaml.Node) {
			var word string
			if n.OneOf(&word, "cloudevents", "json", "jsonlines") {
				c.Format = httpFormats[word]
			}
		},
		"type":  func(n strictyaml.Node) { n.Text(&c.Type) },
		"batch": t.readBatch,
		"concurrency": func(n strictyaml.Node) {
			t.unordered = append(t.unordered, &n)
			n.Int(&c.Concurrency, 1, maxConcurrency)
		},
		"timeout":     func(n strictyaml.Node) { n.Duration(&c.Timeout) },
		"retry_after": func(n strictyaml.Node) { n.Duration(&c.MaxRetryAfter) },
		"headers":     t.readHeaders,
		"signature":   t.readSignature,
		"credential":  func(n strictyaml.Node) { n.OneOf(&t.credential, "default") },
		"scope":       func(n strictyaml.Node) { n.Text(&c.Scope) },
		"tls":         func(n strictyaml.Node) { c.TLS = readTLS(n) },
	})
	if !n.Object(keys, "url") {
		return
	}
	secure := strings.HasPrefix(strings.ToLower(t.url), "https:")
	switch {
	case (t.credential != "") != (c.Scope != ""):
		n.Fail("credential and scope go together: credential: default, and a scope such as api://APP/.default")
	case t.credential != "" && !secure:
		n.Fail("credential needs a URL that begins with https: a token must not be sent unencrypted")
	case t.credential != "" && c.Header.Get("Authorization") != "":
		n.Fail("credential and the header Authorization exclude each other: remove one of them")
	case c.TLS != nil && !secure:
		n.Fail("tls needs a URL that begins with https")
	case c.Type != "" && c.Format != webhook.CloudEvents:
		n.Fail("type is for format: cloudevents only: remove it")
	}
}

func (t *httpTarget) readURL(n strictyaml.Node) {
	if literal := n.Literal(); strings.Contains(literal, "?") || holdsPassword(literal) {
		n.Fail("has a query or a password, which may be a secret: put the URL into an environment variable and write ${TARGET_URL}")
		return
	}
	var text string
	if !n.Text(&text) {
		return
	}
	if err := webhook.CheckURL(text); err != nil {
		n.Fail("%w", err)
		return
	}
	t.url = text
}

func (t *httpTarget) readBatch(n strictyaml.Node) {
	n.Object(strictyaml.Keys{
		"events": func(n strictyaml.Node) { n.Int(&t.config.MaxEvents, 1, maxPost) },
		"bytes":  func(n strictyaml.Node) { n.Size(&t.config.MaxBytes, maxPostBytes) },
		"wait": func(n strictyaml.Node) {
			t.unordered = append(t.unordered, &n)
			n.Duration(&t.config.FlushAfter)
		},
	})
}

// secretHeader matches names of headers whose values are secrets.
var secretHeader = regexp.MustCompile(`(?i)auth|key|token|secret|password|cookie|signature`)

func (t *httpTarget) readHeaders(n strictyaml.Node) {
	t.config.Header = http.Header{}
	n.Each(func(name string, n strictyaml.Node) {
		if secretHeader.MatchString(name) && strings.TrimSpace(strings.TrimPrefix(n.Literal(), "Bearer")) != "" {
			n.Fail("holds a secret: put it into an environment variable and write ${FUNCTION_KEY}")
			return
		}
		var value string
		if !n.Text(&value) {
			return
		}
		if err := webhook.CheckHeader(name, value); err != nil {
			n.Fail("%w", err)
			return
		}
		t.config.Header.Set(name, value)
	})
}

// readSignature reads the keys that sign requests.
func (t *httpTarget) readSignature(n strictyaml.Node) {
	var key, old []byte
	ok := n.Object(strictyaml.Keys{
		"key":     func(n strictyaml.Node) { readSignatureKey(n, &key) },
		"old_key": func(n strictyaml.Node) { readSignatureKey(n, &old) },
	}, "key")
	if !ok {
		return
	}
	t.config.Keys = [][]byte{key}
	if old != nil {
		t.config.Keys = append(t.config.Keys, old)
	}
}

func readSignatureKey(n strictyaml.Node, to *[]byte) {
	if n.Literal() != "" {
		n.Fail("is a secret: put it into an environment variable and write ${WEBHOOK_KEY}")
		return
	}
	var text string
	if !n.Text(&text) {
		return
	}
	key, err := webhook.ParseKey(text)
	if err != nil {
		n.Fail("%w", err)
		return
	}
	*to = key
}

// open returns the sink, which connects when it is first used.
func (t *httpTarget) open() (*webhook.Sink, error) {
	cfg := t.config
	if t.credential != "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		cfg.Credential = credential
	}
	return webhook.New(t.url, &cfg)
}

func (t *httpTarget) connection() *HTTPConnection {
	return &HTTPConnection{URL: t.url, Entra: t.credential != "", Config: t.config, open: func(keys [][]byte) (*webhook.Sink, error) {
		other := *t
		other.config.Keys = keys
		return other.open()
	}}
}

// checkPostedBatches refuses the keys that have no effect where one batch of a partition is posted
// after the other.
func (r *reader) checkPostedBatches(t *httpTarget) {
	given := slices.DeleteFunc(r.outside, func(n *strictyaml.Node) bool {
		key := n.Place().Key
		name := key[strings.LastIndexByte(key, '.')+1:]
		return name == "order" || name == "checkpoint_every" || name == "retry_throttled" // refused already
	})
	refuse("cannot be combined with order: partition, which posts one batch of a partition after the other: remove it, or write order: key", append(given, t.unordered...)...)
}

func (*httpTarget) kind() string         { return "http" }
func (*httpTarget) mappings() []*mapping { return nil }

// outlet opens the endpoint. It does not check the endpoint, which may be down for now.
func (t *httpTarget) outlet(_ context.Context, parts *Parts, _ telemetry) (outlet, error) {
	sink, err := t.open()
	if err != nil {
		return nil, err
	}
	parts.onClose(sink.Close)
	return &outletOf[*webhook.Message]{records: webhookMessages, sink: sink, batches: sink.Handler}, nil // in the order of the events' own keys
}

// check checks that the endpoint can be reached.
func (t *httpTarget) check(ctx context.Context, _ catalog) error {
	sink, err := t.open()
	if err != nil {
		return err
	}
	return errors.Join(sink.Check(ctx), sink.Close(ctx))
}
