package cosmos

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// Sink writes documents to one container. It is safe for concurrent use by any
// number of consumers. Call [Sink.Close] when done.
type Sink struct {
	cfg      Config
	account  *account
	clock    clock.System
	versions *versionCache
	routes   atomic.Pointer[routingTable]

	ctx     context.Context // ends with the sink
	stop    context.CancelFunc
	running sync.WaitGroup
	pending atomic.Int64 // records that are not completed
	closed  atomic.Bool
	drained chan struct{} // signals that closed is set and pending is 0

	mu         sync.Mutex
	stopped    bool      // no record may be added to unrouted any more
	refreshing bool      // refreshRoutes runs
	unrouted   []*record // wait for the next update of routes
	routing    []*record // wait for the update that is in progress
}

var _ driver.Sink[Document] = (*Sink)(nil)

// New returns a sink for a container of an account, with one of the account's keys.
// It does not connect. If the account cannot be reached or refuses the key, that is
// an outage in the outcome of submitted documents.
func New(endpoint, key, database, container string, cfg *Config) (*Sink, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("cosmos: the key is not an account key: it must be base64")
	}
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return nil, errors.New("cosmos: the SDK does not accept the key")
	}
	return newSink(endpoint, database, container, cfg, secret, func(o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
		return azcosmos.NewClientWithKey(endpoint, credential, o)
	})
}

// NewEntra is [New] with a credential of Entra ID, for example one of azidentity. The
// identity needs the account's data plane role Cosmos DB Built-in Data Contributor.
// The endpoint must use https.
func NewEntra(endpoint string, credential azcore.TokenCredential, database, container string, cfg *Config) (*Sink, error) {
	if credential == nil {
		return nil, errors.New("cosmos: the credential is missing")
	}
	if !strings.HasPrefix(endpoint, "https://") {
		return nil, errors.New("cosmos: a token of Entra ID may be sent over https only: check the endpoint")
	}
	return newSink(endpoint, database, container, cfg, nil, func(o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
		return azcosmos.NewClient(endpoint, credential, o)
	})
}

func newSink(endpoint, database, container string, cfg *Config, secret []byte, connect func(*azcosmos.ClientOptions) (*azcosmos.Client, error)) (*Sink, error) {
	resolved, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("cosmos: %w", err)
	}
	a, err := newAccount(endpoint, database, container, resolved.Timeout, resolved.Client)
	if err != nil {
		return nil, fmt.Errorf("cosmos: %w", err)
	}
	a.secret, a.connect = secret, connect
	s := &Sink{cfg: resolved, account: a, clock: clock.New(), versions: newVersionCache(resolved.CachedVersions), drained: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.running.Go(s.watchContexts)
	return s, nil
}

// Submit queues a document and returns at once.
//
// A document whose ctx ends while it is queued is completed with ctx's error within
// a tenth of a second, and is not sent. One in flight is completed with the
// account's response, or after [Config.Timeout]. So a completed write does not take
// effect later.
func (s *Sink) Submit(ctx context.Context, document Document, done func(driver.WriteResult)) {
	s.submit(&record{ctx: ctx, doc: document, done: done})
}

func (s *Sink) submit(r *record) {
	s.pending.Add(1)
	if s.closed.Load() {
		s.failClosed([]*record{r})
		return
	}
	if err := r.ctx.Err(); err != nil {
		s.finish(r, driver.WriteResult{Err: err})
		return
	}
	if err := r.check(); err != nil {
		s.finish(r, s.reject(r, err))
		return
	}
	if !s.firstStep(r) {
		s.finish(r, driver.WriteResult{})
		return
	}
	s.route(r)
}

// Close sends the queued documents, without waiting for batches to fill, and waits
// until all are completed. If ctx ends before, Close cancels the requests in flight,
// completes their documents and the queued ones with [ErrClosed], and returns ctx's
// error.
func (s *Sink) Close(ctx context.Context) error {
	s.closed.Store(true)
	if t := s.routes.Load(); t != nil {
		for _, q := range t.queues {
			q.signal()
		}
	}
	var err error
	for s.pending.Load() > 0 && err == nil {
		select {
		case <-s.drained:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	s.stopped = true
	left := append(s.unrouted, s.routing...)
	s.unrouted, s.routing = nil, nil
	s.mu.Unlock()
	s.stop()
	if t := s.routes.Load(); t != nil {
		for _, q := range t.queues {
			left = append(left, q.close()...)
		}
	}
	s.failClosed(left)
	s.running.Wait()
	s.account.close()
	return err
}

func (s *Sink) failClosed(batch []*record) {
	for _, r := range batch {
		s.finish(r, driver.WriteResult{Err: driver.Outage(fmt.Errorf("cosmos: %s: %w", s.account.name(), ErrClosed)), Cost: r.cost})
	}
}

func (s *Sink) finish(r *record, result driver.WriteResult) {
	result.Waited = r.waited
	r.done(result)
	if s.pending.Add(-1) == 0 && s.closed.Load() {
		select {
		case s.drained <- struct{}{}:
		default:
		}
	}
}

// reject returns the outcome of a record that is invalid without a request.
func (s *Sink) reject(r *record, err error) driver.WriteResult {
	return driver.WriteResult{Err: driver.Reject(fmt.Errorf("cosmos: %s: document %.80q: %w", s.account.name(), r.doc.ID, err)), Cost: r.cost}
}

// watchContexts completes records whose contexts have ended, ten times a second.
func (s *Sink) watchContexts() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.pending.Load() > 0 {
				s.completeCancelled()
			}
		case <-s.ctx.Done():
			return
		}
	}
}
