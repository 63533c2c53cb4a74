package blobstore_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/blobstore"
)

// wire stands between a store and the server, and sees every request.
type wire struct {
	// onRequest sees a request before it is sent; an error keeps it from that.
	onRequest func(r *http.Request) error
	// onResponse sees what was answered; an error loses the answer.
	onResponse func(r *http.Request, status int) error

	mu   sync.Mutex
	seen []string // what was asked and answered
}

// Do implements [policy.Transporter].
func (w *wire) Do(r *http.Request) (*http.Response, error) {
	if w.onRequest != nil {
		if err := w.onRequest(r); err != nil {
			return nil, err
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.seen = append(w.seen, fmt.Sprintf("%s %d", kind(r), resp.StatusCode))
	w.mu.Unlock()
	if w.onResponse != nil {
		if err := w.onResponse(r, resp.StatusCode); err != nil {
			resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

func (w *wire) log() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.seen...)
}

// kind names what a request asks for.
func kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Get("comp") == "lease":
		for name, values := range r.Header { // the SDK writes it in lower case
			if strings.EqualFold(name, "x-ms-lease-action") {
				return values[0]
			}
		}
	case q.Get("comp") != "":
		return q.Get("comp")
	case r.Method == http.MethodPut:
		return "put"
	}
	return r.Method
}

// options are those of a client behind the wire that repeats requests at once,
// so often.
func (w *wire) options(retries int32) azcore.ClientOptions {
	return azcore.ClientOptions{Transport: w, Retry: policy.RetryOptions{
		MaxRetries: retries, RetryDelay: time.Millisecond, MaxRetryDelay: time.Millisecond, TryTimeout: 5 * time.Minute,
	}}
}

// transportOf are the default options behind the wire.
func transportOf(w *wire) azcore.ClientOptions { return azcore.ClientOptions{Transport: w} }

// openThrough opens a store behind the wire.
func (p place) openThrough(t testing.TB, w *wire, retries int32) *blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), p.name, &blobstore.Config{ConnectionString: p.connection, Client: w.options(retries)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var errCut = errors.New("connection cut")

// gate holds the first request of a kind back until it is opened.
type gate struct {
	kind       string
	once       sync.Once
	held, open chan struct{}
}

func newGate(kind string) *gate {
	return &gate{kind: kind, held: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) hold(r *http.Request) error {
	if kind(r) == g.kind {
		g.once.Do(func() {
			close(g.held)
			<-g.open
		})
	}
	return nil
}

// counter strikes once, at the n-th of what may happen at the same time.
type counter struct {
	mu      sync.Mutex
	n       int
	trigger int
}

func newCounter(at int) *counter { return &counter{trigger: at} }

func (c *counter) strike() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n == c.trigger {
		return errCut
	}
	return nil
}

func (c *counter) struck() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= c.trigger {
		return 1
	}
	return 0
}
