package kafka

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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config has the optional settings of a [Client]. The zero value is ready to use.
type Config struct {
	// ClientID is the name of this program in the brokers' logs, metrics and quotas.
	// Default: sluice.
	ClientID string
	// TLS connects over TLS. It may be empty: then the system's roots decide whom to trust. With
	// Certificates it is mutual TLS. Default: no TLS.
	TLS *tls.Config
	// Authentication is how the client authenticates (SASL). Default: not at all, or by the
	// certificate in TLS.
	Authentication *Authentication
	// Timeout bounds each operation, and how long a reader goes on without an answer from the
	// leader of its partition before Read returns an error. A single request gets a third of it.
	// Default: 30 s.
	Timeout time.Duration
	// Dial opens the connections, for example through a tunnel; TLS is added to them. Default:
	// that of [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is the connections of a process to one cluster. It is safe for concurrent use.
type Client struct {
	brokers  []string
	timeout  time.Duration
	secrets  []string // which no message may contain
	requests *kgo.Client

	life   context.Context // ends when the client is closed
	end    context.CancelFunc
	topics topicRequests

	mu       sync.Mutex
	closing  bool
	work     sync.WaitGroup // its goroutines; Add under mu, while not closing
	fetchers map[fetcherKey]*fetcher
}

// Open returns a client for the cluster that the brokers belong to. Each is HOST or HOST:PORT, the
// default port is 9092; one suffices, a few are better, because each may be down at the start. Open
// does not connect.
func Open(brokers []string, cfg *Config) (*Client, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.ClientID = cmp.Or(c.ClientID, "sluice")
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	addresses, err := checkBrokers(brokers)
	switch {
	case err != nil:
		return nil, err
	case c.Timeout < minTimeout:
		return nil, fmt.Errorf("timeout of %v: must be at least %v", c.Timeout, minTimeout)
	case len(c.ClientID) > 200:
		return nil, fmt.Errorf("client id of %d bytes: give at most 200", len(c.ClientID))
	}
	client := &Client{brokers: addresses, timeout: c.Timeout, fetchers: map[fetcherKey]*fetcher{}}
	client.life, client.end = context.WithCancel(context.Background())
	options, err := client.options(&c)
	if err == nil {
		client.requests, err = kgo.NewClient(options...)
	}
	if err != nil {
		client.end()
		return nil, err
	}
	return client, nil
}

// minTimeout is three of the shortest request timeout that franz-go accepts.
const minTimeout = 300 * time.Millisecond

// options returns franz-go's form of the settings.
func (c *Client) options(cfg *Config) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...),
		kgo.ClientID(cfg.ClientID),
		kgo.SoftwareNameAndVersion("sluice", "1"),
		kgo.DialTimeout(cfg.Timeout / 3),
		kgo.RequestTimeoutOverhead(cfg.Timeout / 3),
		kgo.RetryTimeout(cfg.Timeout),
		kgo.DisableClientMetrics(),
	}
	switch {
	case cfg.Dial != nil:
		options = append(options, kgo.Dialer(boundedDial(cfg.Dial, cfg.TLS, cfg.Timeout/3)))
	case cfg.TLS != nil:
		options = append(options, kgo.DialTLSConfig(cfg.TLS.Clone()))
	}
	if a := cfg.Authentication; a != nil {
		mechanism, err := a.mechanism(c.brokers, cfg.Timeout/3)
		if err != nil {
			return nil, err
		}
		c.secrets = a.secrets
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

// boundedDial returns a dial function with a time limit, and with TLS if there is a configuration.
func boundedDial(dial func(context.Context, string, string) (net.Conn, error), config *tls.Config, limit time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil || config == nil {
			return conn, err
		}
		config := config.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
}

// Requests returns the franz-go client over whose connections requests go, for requests that this
// package has no method for, such as those of package kadm. It consumes nothing. [Client.Close]
// closes it.
func (c *Client) Requests() *kgo.Client { return c.requests }

// Format writes the brokers for every verb, so that a message or log that prints a client does not
// show its password.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// String returns the brokers' addresses.
func (c *Client) String() string { return strings.Join(c.brokers, ",") }

// Close closes the readers of all sources and the connections, and waits until that is done, or ctx
// ends.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.end()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.requests.Close()
		c.work.Wait()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close Kafka client of %s: %w", c, ctx.Err())
	}
}

// errClosed is the error of what is asked of a closed client.
var errClosed = errors.New("the Kafka client is closed")

// start runs a function on a goroutine that Close waits for. It reports whether it has: a client
// that is closed starts nothing.
func (c *Client) start(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.work.Go(run)
	return true
}

// request sends a request to a broker, or to any if that is [anyBroker], and returns the answer.
func request[Response any](ctx context.Context, c *Client, broker int32, r kgoRequest) (Response, error) {
	var none Response
	if c.life.Err() != nil {
		return none, errClosed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	defer cancel()
	send := c.requests.Request
	if broker != anyBroker {
		send = c.requests.Broker(int(broker)).Request
	}
	answer, err := send(ctx, r)
	if errors.Is(err, kerr.IllegalSaslState) {
		// Kafka also says so if a connection is authenticated again within a second, as it is where
		// that takes about as long as a session lasts. It is closed then, and a new one is
		// authenticated.
		answer, err = send(ctx, r)
	}
	switch {
	case err != nil && context.Cause(ctx) == errTimeout:
		return none, errTimeout
	case err != nil:
		return none, err
	}
	response, ok := answer.(Response)
	if !ok {
		return none, fmt.Errorf("a response of type %T", answer)
	}
	return response, nil
}

// anyBroker stands for any broker of the cluster.
const anyBroker int32 = -1

// hide replaces the client's secrets in a text.
func (c *Client) hide(text string) string {
	for _, secret := range c.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}
