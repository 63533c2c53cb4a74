package eventhub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ownername"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// ConsumerGroup is the consumer group to read in. Default: $Default.
	ConsumerGroup string
	// Namespace is the name under which leases, checkpoints and dead letters
	// are kept. Default: the endpoint's host, without the port. State it where
	// the address may change while the hub stays the same.
	Namespace string
	// Owner names this process to the broker, which names it to whoever is in
	// its way; at most 64 characters. Default: host name and a random part.
	Owner string
	// Prefetch is how many events of a partition are asked for ahead of Read,
	// at most 5,000; about as many again may wait to be handed out. Default:
	// 3,000, three of the consumer's batches.
	Prefetch int
	// PrefetchBytes is how many bytes Prefetch may come to, estimated from the
	// sizes of the events so far, with 1 KiB on top of each body. Default: 16 MiB.
	PrefetchBytes int
	// Timeout bounds each request to the broker: to connect, to open a link, to
	// answer a question. Default: 30 s.
	Timeout time.Duration
	// TLSConfig is for brokers whose certificate the system doesn't trust.
	// Default: the system's roots, and the endpoint's host as the name.
	TLSConfig *tls.Config
	// WebSocket, if set, makes connections where only HTTPS gets through: it
	// connects to the url (wss://…), and the connection's Read and Write carry
	// the payload of binary messages.
	WebSocket func(ctx context.Context, url string) (net.Conn, error)
}

// The SDK refuses more credit than the session's window has room for.
const maxPrefetch = 5000

func (cfg *Config) withDefaults(ep endpoint) (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.ConsumerGroup = cmp.Or(c.ConsumerGroup, azeventhubs.DefaultConsumerGroup)
	c.Namespace = cmp.Or(c.Namespace, strings.ToLower(ep.hostname()))
	c.Owner = cmp.Or(c.Owner, ownername.New())
	c.Prefetch = cmp.Or(c.Prefetch, 3000)
	c.PrefetchBytes = cmp.Or(c.PrefetchBytes, 16<<20)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	switch {
	case !plausible(c.ConsumerGroup):
		return c, errors.New("consumer group: not a name: state one of the hub's consumer groups, or none for $Default")
	case len(c.Owner) > 64:
		return c, fmt.Errorf("owner of %d characters: state a name of at most 64", len(c.Owner))
	case c.Prefetch < 0 || c.Prefetch > maxPrefetch:
		return c, fmt.Errorf("prefetch of %d events: state 1 to %d", c.Prefetch, maxPrefetch)
	case c.PrefetchBytes < 0:
		return c, fmt.Errorf("prefetch of %d bytes: must be positive", c.PrefetchBytes)
	case c.Timeout < 0:
		return c, fmt.Errorf("timeout of %v: must be positive", c.Timeout)
	}
	return c, nil
}

// plausible tells whether text can be a name in a path.
func plausible(text string) bool {
	return text != "" && len(text) <= 256 && !strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// Source is one hub, read in one consumer group. It is safe for concurrent use.
type Source struct {
	broker endpoint
	hub    string
	cfg    Config
	// One of the two proves who we are.
	connection string
	credential azcore.TokenCredential

	management management

	mu      sync.Mutex
	links   map[*link]struct{} // those open, for Close
	closing bool
}

var _ driver.Source = (*Source)(nil)

// New makes a source from a connection string, as Azure's portal and `sluice
// emulator serve` give it. The hub may be empty if the string names one in
// EntityPath. New does not connect.
func New(connectionString, hub string, cfg *Config) (*Source, error) {
	ep, err := parseConnectionString(connectionString)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	if hub != "" && ep.entity != "" && hub != ep.entity {
		return nil, fmt.Errorf("hub %s: the connection string is for the hub %s: state the same, or leave one out", hub, ep.entity)
	}
	return newSource(ep, cmp.Or(hub, ep.entity), nil, cfg)
}

// NewWithCredential makes a source that signs in with Entra ID, for example
// with what [azidentity.NewDefaultAzureCredential] returns. The namespace is
// the fully qualified one, like contoso.servicebus.windows.net.
// NewWithCredential does not connect.
//
// [azidentity.NewDefaultAzureCredential]: https://pkg.go.dev/github.com/Azure/azure-sdk-for-go/sdk/azidentity#NewDefaultAzureCredential
func NewWithCredential(fullyQualifiedNamespace, hub string, credential azcore.TokenCredential, cfg *Config) (*Source, error) {
	if credential == nil {
		return nil, errors.New("no credential: state one, for example azidentity.NewDefaultAzureCredential's")
	}
	ep := endpoint{host: fullyQualifiedNamespace}
	if err := ep.checkHost(); err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	return newSource(ep, hub, credential, cfg)
}

func newSource(ep endpoint, hub string, credential azcore.TokenCredential, cfg *Config) (*Source, error) {
	if hub == "" {
		return nil, errors.New("no hub: state its name, or use a connection string with EntityPath")
	}
	if !plausible(hub) {
		return nil, errors.New("hub: not a name: state the event hub's name alone")
	}
	c, err := cfg.withDefaults(ep)
	if err != nil {
		return nil, err
	}
	s := &Source{broker: ep, hub: hub, cfg: c, links: map[*link]struct{}{}}
	if credential != nil {
		// Half, so that the token is what is said to be late.
		s.credential = boundedCredential{credential, c.Timeout / 2}
	} else {
		s.connection = ep.connectionString()
	}
	s.management.timeout = c.Timeout
	s.management.connect = s.producer
	return s, nil
}

// Group names the hub and the consumer group as Describe does, without asking
// the broker.
func (s *Source) Group() driver.Group {
	return driver.Group{Namespace: s.cfg.Namespace, Topic: s.hub, Name: s.cfg.ConsumerGroup}
}

// Format writes the group whatever the verb, so that no message or log that
// prints a source has the key.
func (s *Source) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Group().String()) }

// Close ends what the source has open: the link for questions, and every
// reader. It waits for them; if ctx ends first they are cut off.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	open := make([]*link, 0, len(s.links))
	for l := range s.links {
		open = append(open, l)
	}
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, l := range open {
		closing.Go(func() { l.close(ctx) })
	}
	s.management.close()
	closing.Wait()
	return nil
}

// adopt registers a link for Close, unless that has begun.
func (s *Source) adopt(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosed
	}
	s.links[l] = struct{}{}
	return nil
}

func (s *Source) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// consumer makes the SDK's client for one link, connected by w.
func (s *Source) consumer(w *wire) (*azeventhubs.ConsumerClient, error) {
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID:    "sluice",
		InstanceID:       s.cfg.Owner,
		NewWebSocketConn: w.connect,
		// The consumer tries again, and looks at the hub's creation time first.
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
	}
	if s.credential != nil {
		return azeventhubs.NewConsumerClient(s.broker.host, s.hub, s.cfg.ConsumerGroup, s.credential, options)
	}
	return azeventhubs.NewConsumerClientFromConnectionString(s.connection, s.hub, s.cfg.ConsumerGroup, options)
}

// producer makes the SDK's client for questions. It sends nothing; but unlike
// the consumer client it stops the renewal of its token when it is closed.
func (s *Source) producer() (*azeventhubs.ProducerClient, error) {
	options := &azeventhubs.ProducerClientOptions{
		ApplicationID: "sluice",
		NewWebSocketConn: func(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return s.dial(ctx, args.Host)
		},
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1}, // see ask
	}
	if s.credential != nil {
		return azeventhubs.NewProducerClient(s.broker.host, s.hub, s.credential, options)
	}
	return azeventhubs.NewProducerClientFromConnectionString(s.connection, s.hub, options)
}
