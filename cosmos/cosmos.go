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

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/clock"
)

// Sink writes documents to one container. It is safe for concurrent use, by
// any number of consumers. [Sink.Close] ends it.
type Sink struct {
	cfg      Config
	account  *account
	clock    clock.System
	versions *versionCache
	routes   atomic.Pointer[routingTable]

	ctx     context.Context // ends with the sink
	stop    context.CancelFunc
	running sync.WaitGroup
	pending atomic.Int64 // records that are not done
	closed  atomic.Bool
	drained chan struct{} // a note that closed is set and live is 0

	mu         sync.Mutex
	stopped    bool      // nothing may be stranded any more
	refreshing bool      // search runs
	unrouted   []*record // wait for the next look at the container
	routing    []*record // wait for this one
}

var _ sluice.Sink[Document] = (*Sink)(nil)

// New makes a sink for a container of an account, with one of the account's
// keys. It does not connect: an account that is away, or refuses the key, is
// an outage, in the outcome of what is submitted.
func New(endpoint, key, database, container string, cfg *Config) (*Sink, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("cosmos: the key is not one of an account: base64 is expected")
	}
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return nil, errors.New("cosmos: the SDK does not take the key")
	}
	return newSink(endpoint, database, container, cfg, secret, func(o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
		return azcosmos.NewClientWithKey(endpoint, credential, o)
	})
}

// NewEntra makes a sink like [New], with a credential of Entra ID, for example
// one of azidentity. It needs the account's data plane role Cosmos DB Built-in
// Data Contributor, and https.
func NewEntra(endpoint string, credential azcore.TokenCredential, database, container string, cfg *Config) (*Sink, error) {
	if credential == nil {
		return nil, errors.New("cosmos: the credential is missing")
	}
	if !strings.HasPrefix(endpoint, "https://") {
		return nil, errors.New("cosmos: a token of Entra ID goes over https only: check the endpoint")
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
// A document whose ctx ends while it is queued is completed with ctx's error
// within a tenth of a second, and is not sent. One that is on its way is
// completed with what the account says, or when [Config.Timeout] is up: so
// what is done does not take effect later.
func (s *Sink) Submit(ctx context.Context, document Document, done func(sluice.WriteResult)) {
	r := &record{ctx: ctx, doc: document, done: done}
	s.pending.Add(1)
	if s.closed.Load() {
		s.failClosed([]*record{r})
		return
	}
	if err := ctx.Err(); err != nil {
		s.finish(r, sluice.WriteResult{Err: err})
		return
	}
	if err := r.check(); err != nil {
		s.finish(r, s.reject(r, err))
		return
	}
	if !s.firstStep(r) {
		s.finish(r, sluice.WriteResult{})
		return
	}
	s.route(r)
}

// Close sends what is queued, without waiting for batches to fill, and waits
// until all is done. When ctx ends before, it cancels what is on its way,
// completes it and what is still queued with [ErrClosed], and returns ctx's
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
		s.finish(r, sluice.WriteResult{Err: sluice.Outage(fmt.Errorf("cosmos: %s: %w", s.account.name(), ErrClosed)), Cost: r.cost})
	}
}

func (s *Sink) finish(r *record, result sluice.WriteResult) {
	result.Waited = r.waited
	r.done(result)
	if s.pending.Add(-1) == 0 && s.closed.Load() {
		select {
		case s.drained <- struct{}{}:
		default:
		}
	}
}

// reject is the outcome for a record that the account need not be asked about.
func (s *Sink) reject(r *record, err error) sluice.WriteResult {
	return sluice.WriteResult{Err: sluice.Reject(fmt.Errorf("cosmos: %s: document %.80q: %w", s.account.name(), r.doc.ID, err)), Cost: r.cost}
}

// watchContexts looks for ended contexts.
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
