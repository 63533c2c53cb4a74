package eventhub

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/ownername"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Config has the optional settings of a [Source]. The zero value is ready to use.
type Config struct {
	// ConsumerGroup is the consumer group to read in. Default: $Default.
	ConsumerGroup string
	// Namespace is the name under which leases, checkpoints and dead letters are
	// stored. Default: the endpoint's host, without the port. Set it if the
	// address may change while the hub stays the same.
	Namespace string
	// Owner is the name of this process at the broker, which appears in the
	// broker's errors to competing readers; at most 64 characters. Default: the
	// host name and a random part.
	Owner string
	// Prefetch is the number of events of a partition that are requested ahead of
	// Read, at most 5,000. About as many again may be buffered for Read. Default:
	// 3,000, three of the consumer's batches.
	Prefetch int
	// PrefetchBytes is how many bytes of events a partition holds ahead of Read, or
	// one event. When they are used up, its connection is not read until Read
	// returns some. It also limits Prefetch, by the sizes of the events so far with
	// 1 KiB on top of each. Default: 4 MiB.
	PrefetchBytes int
	// Receiver is the client that receives events. Default: OwnReceiver.
	Receiver Receiver
	// Undecodable says what becomes of an event that cannot be decoded. Default: HaltUndecodable.
	// The SDK's receiver knows no other, because it returns nothing of such an event.
	Undecodable Undecodable
	// Timeout bounds each operation at the broker: a connection, a link, a
	// management request. Default: 30 s.
	Timeout time.Duration
	// TLSConfig is for brokers whose certificate the system does not trust.
	// Default: the system's roots, and the endpoint's host as the server name.
	TLSConfig *tls.Config
	// OverWebSocket connects over WebSockets to port 443 (or that of the endpoint), for
	// networks that allow only HTTPS. Default: AMQP over TLS, on port 5671.
	OverWebSocket bool
	// Proxy is the proxy for OverWebSocket, such as http://proxy.example.com:3128. Default:
	// that of the environment variables HTTPS_PROXY and NO_PROXY.
	Proxy *url.URL
	// WebSocket, if set, opens the connections in place of OverWebSocket. It connects to
	// the url (wss://…). Read and Write of the connection transfer the payload of binary
	// messages.
	WebSocket func(ctx context.Context, url string) (net.Conn, error)
}

// Undecodable says what becomes of an event that cannot be decoded, such as one whose application
// properties are no map.
type Undecodable string

const (
	// HaltUndecodable halts the partition with a [driver.UndecodableError].
	HaltUndecodable Undecodable = "halt"
	// ParkUndecodable returns the event with [driver.Event.Undecodable] set and the AMQP message as
	// body, so that the engine makes a dead letter of it. A message without a readable sequence
	// number halts the partition even so.
	ParkUndecodable Undecodable = "deadletter"
)

// Receiver is a client that receives events. Requests for what a hub and its partitions hold are
// always the SDK's.
type Receiver string

const (
	// OwnReceiver is a client of this module, which decodes each event from the memory into which
	// it was received. It also decodes what the SDK cannot: decimals and characters.
	OwnReceiver Receiver = "own"
	// SDKReceiver is the official SDK's client.
	SDKReceiver Receiver = "sdk"
)

// The SDK refuses more credit than the session's window has room for.
const maxPrefetch = 5000

func (cfg *Config) withDefaults(ep endpoint) (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.ConsumerGroup = cmp.Or(c.ConsumerGroup, azeventhubs.DefaultConsumerGroup)
	c.Namespace = cmp.Or(c.Namespace, strings.TrimSuffix(strings.ToLower(ep.hostname()), "."))
	c.Owner = cmp.Or(c.Owner, ownername.New())
	c.Prefetch = cmp.Or(c.Prefetch, 3000)
	c.PrefetchBytes = cmp.Or(c.PrefetchBytes, 4<<20)
	c.Receiver = cmp.Or(c.Receiver, OwnReceiver)
	c.Undecodable = cmp.Or(c.Undecodable, HaltUndecodable)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	switch {
	case !validName(c.ConsumerGroup):
		return c, errors.New("consumer group: not a name: give one of the hub's consumer groups, or none for $Default")
	case len(c.Owner) > 64:
		return c, fmt.Errorf("owner of %d characters: give a name of at most 64", len(c.Owner))
	case c.Prefetch < 0 || c.Prefetch > maxPrefetch:
		return c, fmt.Errorf("prefetch of %d events: give 1 to %d", c.Prefetch, maxPrefetch)
	case c.PrefetchBytes < 0:
		return c, fmt.Errorf("prefetch of %d bytes: must be positive", c.PrefetchBytes)
	case c.Proxy != nil && !c.OverWebSocket:
		return c, errors.New("a proxy needs OverWebSocket: AMQP's own port does not go through one")
	case c.Receiver != SDKReceiver && c.Receiver != OwnReceiver:
		return c, fmt.Errorf("receiver %.20q: give %q or %q", string(c.Receiver), SDKReceiver, OwnReceiver)
	case c.Undecodable != HaltUndecodable && c.Undecodable != ParkUndecodable:
		return c, fmt.Errorf("undecodable %.20q: give %q or %q", string(c.Undecodable), HaltUndecodable, ParkUndecodable)
	case c.Undecodable == ParkUndecodable && c.Receiver == SDKReceiver:
		return c, fmt.Errorf("undecodable %q needs receiver %q: the SDK's returns nothing of such an event", ParkUndecodable, OwnReceiver)
	case c.Timeout < 0:
		return c, fmt.Errorf("timeout of %v: must be positive", c.Timeout)
	}
	return c, nil
}

// validName reports whether text can be a name in an AMQP address.
func validName(text string) bool {
	return text != "" && len(text) <= 256 && !strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// Source reads one hub in one consumer group. It is safe for concurrent use.
type Source struct {
	broker endpoint
	hub    string
	cfg    Config
	// Exactly one of the two is set.
	connection string
	credential azcore.TokenCredential

	management management

	// Only tests change these.
	closeTimeout time.Duration // how long close waits for the broker to detach a link
	startAfresh  time.Duration // of intakes

	mu      sync.Mutex
	links   map[*link]struct{} // the open ones, for Close
	closing bool
}

var _ driver.Source = (*Source)(nil)

// New returns a source for a connection string, as Azure's portal and `sluice
// emulator serve` print it. The hub may be empty if the string names one in
// EntityPath. New does not connect.
func New(connectionString, hub string, cfg *Config) (*Source, error) {
	ep, err := parseConnectionString(connectionString)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	if hub != "" && ep.entity != "" && !strings.EqualFold(hub, ep.entity) {
		return nil, fmt.Errorf("hub %s: the connection string is for the hub %s: give the same name, or only one of them", hub, ep.entity)
	}
	return newSource(ep, cmp.Or(hub, ep.entity), nil, cfg)
}

// NewWithCredential returns a source that authenticates with Entra ID, for example
// with a credential from [azidentity.NewDefaultAzureCredential]. The namespace is
// fully qualified, like contoso.servicebus.windows.net.
// NewWithCredential does not connect.
//
// [azidentity.NewDefaultAzureCredential]: https://pkg.go.dev/github.com/Azure/azure-sdk-for-go/sdk/azidentity#NewDefaultAzureCredential
func NewWithCredential(fullyQualifiedNamespace, hub string, credential azcore.TokenCredential, cfg *Config) (*Source, error) {
	if credential == nil {
		return nil, errors.New("no credential: give one, for example azidentity.NewDefaultAzureCredential's")
	}
	ep := endpoint{host: fullyQualifiedNamespace}
	if err := ep.checkHost(); err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	return newSource(ep, hub, credential, cfg)
}

func newSource(ep endpoint, hub string, credential azcore.TokenCredential, cfg *Config) (*Source, error) {
	if hub == "" {
		return nil, errors.New("no hub: give its name, or use a connection string with EntityPath")
	}
	if !validName(hub) {
		return nil, errors.New("hub: not a name: give the event hub's name only")
	}
	c, err := cfg.withDefaults(ep)
	if err != nil {
		return nil, err
	}
	s := &Source{broker: ep, hub: hub, cfg: c, closeTimeout: closeTimeout, startAfresh: startAfresh, links: map[*link]struct{}{}}
	if credential != nil {
		// Half, so that the error names the token if that is what is late.
		s.credential = boundedCredential{credential, c.Timeout / 2}
	} else {
		s.connection = ep.connectionString()
	}
	s.management.timeout = c.Timeout
	s.management.pace = paceOf(ep.host)
	s.management.connect = s.producer
	return s, nil
}

// Group returns the hub and the consumer group, as Describe does, without a
// request to the broker.
func (s *Source) Group() driver.Group {
	return driver.Group{Namespace: s.cfg.Namespace, Topic: s.hub, Name: s.cfg.ConsumerGroup}
}

// Format writes the group for every verb, so that a message or log that prints a
// source does not show its key.
func (s *Source) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Group().String()) }

// Close closes the management link and every reader. It waits until they are
// closed. If ctx ends first, it drops their connections.
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

// register registers a link for Close. It fails once Close has begun.
func (s *Source) register(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosed
	}
	s.links[l] = struct{}{}
	return nil
}

func (s *Source) unregister(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// consumer returns the SDK's client for one link, which connects through w.
func (s *Source) consumer(w *connectionGuard) (*azeventhubs.ConsumerClient, error) {
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID:    "sluice",
		InstanceID:       s.cfg.Owner,
		NewWebSocketConn: w.connect,
		// The engine retries, after it has checked the hub's creation time.
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
	}
	if s.credential != nil {
		return azeventhubs.NewConsumerClient(s.broker.host, s.hub, s.cfg.ConsumerGroup, s.credential, options)
	}
	return azeventhubs.NewConsumerClientFromConnectionString(s.connection, s.hub, s.cfg.ConsumerGroup, options)
}

// producer returns the SDK's client for management requests. It sends no events.
// Unlike the consumer client, it stops the renewal of its token when it is closed.
func (s *Source) producer() (*azeventhubs.ProducerClient, error) {
	options := &azeventhubs.ProducerClientOptions{
		ApplicationID: "sluice",
		NewWebSocketConn: func(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return s.dial(ctx, args.Host)
		},
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1}, // see request
	}
	if s.credential != nil {
		return azeventhubs.NewProducerClient(s.broker.host, s.hub, s.credential, options)
	}
	return azeventhubs.NewProducerClientFromConnectionString(s.connection, s.hub, options)
}
