package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/finalanswer"
)

// Sink posts messages to an endpoint. It is safe for concurrent use by any number of consumers.
// Stop it with [Sink.Close].
type Sink struct {
	cfg      Config
	url      string
	endpoint string   // the URL without its query, for errors
	secrets  []string // that no error may show
	client   *http.Client

	sending context.Context // ends when requests in flight are abandoned
	abandon context.CancelFunc
	running sync.WaitGroup
	drained chan struct{} // signals that the sink is closed and unfinished is 0

	most atomic.Int64 // events in a request: fewer than MaxEvents after a time-out
	held atomic.Pointer[hold]

	accepted   atomic.Uint64          // counts what the receiver accepts
	failedAt   atomic.Uint64          // accepted, at the last failure that one event can cause
	lastPosted atomic.Pointer[posted] // what it has accepted last

	mu         sync.Mutex // guards the fields below, and the fields of queues
	queues     map[origin]*queue
	unfinished int // messages without a result
	closed     bool
}

var _ driver.Sink[*Message] = (*Sink)(nil)

// hold is a wait that the receiver has asked for.
type hold struct {
	end time.Time
	err error // its answer
}

// New makes a sink that posts to a URL (https, or http), which may have a query. It does not
// connect.
func New(endpoint string, cfg *Config) (*Sink, error) {
	resolved, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	u, err := parseURL(endpoint)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if resolved.Credential != nil && u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return nil, errors.New("webhook: a token of Entra ID may be sent over https only: check the URL")
	}
	s := &Sink{cfg: resolved, url: u.String(), endpoint: u.Host + u.EscapedPath(), drained: make(chan struct{}, 1), queues: map[origin]*queue{}}
	s.secrets = secretsOf(u, resolved.Header)
	s.most.Store(int64(resolved.MaxEvents))
	transport := resolved.Transport
	if transport == nil {
		transport = newTransport(&resolved)
	}
	s.client = &http.Client{Transport: finalanswer.Transport(transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.sending, s.abandon = context.WithCancel(context.Background())
	return s, nil
}

// CheckURL checks a URL for [New]. The error does not show it.
func CheckURL(endpoint string) error {
	_, err := parseURL(endpoint)
	return err
}

func parseURL(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "":
		return nil, errors.New("must be a URL like https://example.com/api/events") // not quoted: it may contain a key
	case u.User != nil:
		return nil, errors.New("must not contain a user or a password: send them as the header Authorization")
	}
	return u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// secretsOf returns what a receiver could repeat in its answers: values of headers, and of the
// query of the URL.
func secretsOf(u *url.URL, header http.Header) (list []string) {
	for _, values := range header {
		for _, value := range values {
			list = append(list, value)
			if _, credential, ok := strings.Cut(value, " "); ok { // Bearer …
				list = append(list, credential)
			}
		}
	}
	for _, values := range u.Query() {
		list = append(list, values...)
	}
	// Shorter ones are no secrets, and would be found everywhere.
	return slices.DeleteFunc(list, func(secret string) bool { return len(secret) < 4 })
}

// Submit queues a message and returns at once.
//
// A message whose ctx ends while it is queued is completed with ctx's error within a tenth of a
// second, and is not sent. One in flight is completed with the receiver's answer, or after
// [Config.Timeout].
func (s *Sink) Submit(ctx context.Context, m *Message, done func(driver.WriteResult)) {
	r := &record{ctx: ctx, message: m, done: done, queued: time.Now(), size: estimate(m)}
	of := originOf(ctx, m.Event)
	s.mu.Lock()
	s.unfinished++
	err := ctx.Err()
	switch {
	case err != nil:
	case s.closed:
		err = driver.Outage(&Error{Endpoint: s.endpoint, Err: ErrClosed})
	default:
		err = s.holds()
	}
	if err == nil {
		s.queueOf(of).add(r)
	}
	s.mu.Unlock()
	if err != nil {
		s.finish(r, err)
	}
}

// estimate returns about how many bytes a message takes in a request.
func estimate(m *Message) int { return m.Event.Size() + 300 }

// holds returns the error of events while the receiver is not to be called.
func (s *Sink) holds() error {
	if h := s.held.Load(); h != nil && time.Now().Before(h.end) {
		return driver.Outage(fmt.Errorf("%w; it has asked for no request before %s", h.err, h.end.UTC().Format(time.RFC3339)))
	}
	return nil
}

// hold makes the sink wait, as an answer asks.
func (s *Sink) hold(a *answer) {
	until := time.Now().Add(a.retryAfter)
	for h := s.held.Load(); h == nil || h.end.Before(until); h = s.held.Load() {
		if s.held.CompareAndSwap(h, &hold{until, a.err}) {
			return
		}
	}
}

// finish completes a record.
func (s *Sink) finish(r *record, err error) {
	r.done(driver.WriteResult{Err: err})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfinished--; s.unfinished == 0 && s.closed {
		s.signalDrained()
	}
}

func (s *Sink) signalDrained() {
	select {
	case s.drained <- struct{}{}:
	default:
	}
}

// Close sends the queued messages, without waiting for batches to fill, and waits until all are
// completed. If ctx ends before, Close cancels the requests in flight, completes their messages
// and the queued ones with [ErrClosed], and returns ctx's error.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for _, q := range s.queues {
		q.signal()
	}
	if s.unfinished == 0 {
		s.signalDrained()
	}
	s.mu.Unlock()
	var err error
	select {
	case <-s.drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.abandon()
	s.running.Wait()
	s.client.CloseIdleConnections()
	return err
}
