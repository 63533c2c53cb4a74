package emulator

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/websocket"
	"github.com/sluice-go/sluice/internal/amqp"
)

// namespace is what a [Server] and a [ServiceBus] have in common: listeners, keys, links,
// faults and counters.
type namespace struct {
	keys       map[string]Key
	issuer     *Issuer // of Entra tokens; nil: none
	defaultKey Key     // the key in the connection strings
	log        *slog.Logger
	amqp       *amqp.Server
	plain      net.Listener
	secure     net.Listener
	cert       *certificate
	faults     Faults
	links      linkSet
	meters     meterSet

	serve sync.WaitGroup
	close sync.Once
	err   error // of Close
}

// namespaceConfig is what [Config] and [ServiceBusConfig] have in common; the fields are
// documented there.
type namespaceConfig struct {
	listen, tlsListen, tlsCertOut string
	listener                      net.Listener // nil: at listen
	keys                          []Key
	issuer                        *Issuer
	idleTimeout                   time.Duration
	maxMessage                    int
	log                           *slog.Logger
	authTimeout                   time.Duration
	requests                      func(net.Listener) // gets the HTTP requests at the TLS address that open no WebSocket

	// What [AsAzure] turns on: see amqp.Config.
	connections              int
	idleLink, idleConnection time.Duration
	idleOrigin               string
}

func (c *namespaceConfig) check() error {
	switch {
	case c.listen == "-" && c.listener == nil && c.tlsListen == "":
		return errors.New("no address to listen on: neither a plain nor a TLS address is configured")
	case c.tlsCertOut != "" && c.tlsListen == "":
		return fmt.Errorf("a file for the certificate, %s, but no TLS address to listen on", c.tlsCertOut)
	}
	return nil
}

// prepare initializes everything except the listeners.
func (f *namespace) prepare(cfg *namespaceConfig, newPeer func(*amqp.Conn) amqp.Peer) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	if f.keys, err = byName(cfg.keys); err != nil {
		return err
	}
	f.issuer = cfg.issuer
	f.defaultKey = Key{Name: devKeyName, Secret: devKey}
	if len(cfg.keys) > 0 { // the first key with all rights, or the first
		f.defaultKey = cfg.keys[max(0, slices.IndexFunc(cfg.keys, func(k Key) bool { return k.Rights.has(Listen) && k.Rights.has(Send) }))]
	}
	if f.log = cfg.log; f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	authTimeout := time.Duration(0)
	if !f.open() {
		if authTimeout = cfg.authTimeout; authTimeout <= 0 {
			authTimeout = time.Minute
		}
	}
	f.amqp = amqp.NewServer(newPeer, &amqp.Config{
		MaxBuffered:    max(16<<20, 2*cfg.maxMessage),
		MaxMessageSize: cfg.maxMessage, IdleTimeout: cfg.idleTimeout, AuthTimeout: authTimeout, Log: f.log,
		Quota: cfg.connections, IdleLink: cfg.idleLink, IdleConnection: cfg.idleConnection, IdleOrigin: cfg.idleOrigin,
	})
	return nil
}

func (f *namespace) listen(cfg *namespaceConfig) error {
	if cfg.listen != "-" || cfg.listener != nil {
		l, err := cfg.listener, error(nil)
		if l == nil {
			l, err = listen(cmp.Or(cfg.listen, "127.0.0.1:0"))
		}
		if err != nil {
			return err
		}
		f.plain = l
		f.warnIfOpen(l)
		f.accept(f.webSocket().Listener(l))
	}
	if cfg.tlsListen == "" {
		return nil
	}
	l, err := listen(cfg.tlsListen)
	if err != nil {
		return err
	}
	f.secure = l
	f.warnIfOpen(l)
	if f.cert, err = newCertificate(l.Addr(), cfg.tlsListen, cfg.tlsCertOut); err != nil {
		l.Close()
		return err
	}
	streams := tls.NewListener(l, f.cert.serverConfig())
	if cfg.requests != nil {
		var requests net.Listener
		streams, requests = websocket.Split(streams, webSocketPath, firstBytes)
		cfg.requests(requests)
	}
	f.accept(f.webSocket().Listener(streams))
	return nil
}

// open reports whether clients need neither a key nor a token.
func (f *namespace) open() bool { return len(f.keys) == 0 && f.issuer == nil }

func (f *namespace) warnIfOpen(l net.Listener) {
	if f.open() {
		warnOpen(f.log, "namespace", l.Addr())
	}
}

// warnOpen warns of a server without keys that others than this machine reach.
func warnOpen(log *slog.Logger, what string, at net.Addr) {
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		log.Warn("no keys are configured: whoever reaches the address can read, write and delete; configure keys, or listen on 127.0.0.1", "server", what, "address", at.String())
	}
}

// firstBytes is how long a connection to an address that serves several protocols may take until
// its first bytes show which it is. Only a test changes it.
var firstBytes = 10 * time.Second

const webSocketPath = "/$servicebus/websocket"

// webSocket is where AMQP is spoken over WebSockets, on the same ports. The client
// libraries ask for a subprotocol of their own, the standard calls it amqp. Where there
// are no keys, the browser is all that keeps web pages from being clients.
func (f *namespace) webSocket() websocket.Endpoint {
	return websocket.Endpoint{Path: webSocketPath, Protocols: []string{"AMQPWSB10", "amqp"}, AnyOrigin: !f.open()}
}

func (f *namespace) accept(l net.Listener) {
	f.serve.Go(func() {
		if err := f.amqp.Serve(l); !errors.Is(err, amqp.ErrServerClosed) {
			f.log.Error("stopped accepting connections", "error", err)
		}
	})
}

// disconnect disconnects the clients, and waits until nothing runs for them.
func (f *namespace) disconnect() {
	f.amqp.Close()
	f.serve.Wait()
}

// Addr returns the address of the listener without TLS, "" if there is none.
func (f *namespace) Addr() string { return address(f.plain) }

// TLSAddr returns the address of the TLS listener, "" if there is none.
func (f *namespace) TLSAddr() string { return address(f.secure) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// ConnectionString returns the connection string for clients without TLS. If there is
// only a TLS listener, it is the same as TLSConnectionString.
func (f *namespace) ConnectionString() string {
	if f.plain == nil {
		return f.TLSConnectionString()
	}
	return "Endpoint=sb://" + endpoint(f.plain, "5672") + f.credentials() + ";UseDevelopmentEmulator=true"
}

// TLSConnectionString returns the connection string for clients with TLS, "" if there
// is no TLS listener. Clients must trust the certificate; unless the port is 5671, some
// also need the server's name for its verification, and the address as a custom
// endpoint.
func (f *namespace) TLSConnectionString() string {
	if f.secure == nil {
		return ""
	}
	return "Endpoint=sb://" + endpoint(f.secure, "5671") + f.credentials()
}

func (f *namespace) credentials() string {
	return ";SharedAccessKeyName=" + f.defaultKey.Name + ";SharedAccessKey=" + f.defaultKey.Secret
}

// endpoint returns the address by which clients on this machine reach a listener,
// without the port if it is the usual one.
func endpoint(l net.Listener, usual string) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	if port == usual {
		if strings.Contains(host, ":") {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, port)
}

// CertPool returns a pool with the certificate of the TLS listener, nil if there is
// none.
func (f *namespace) CertPool() *x509.CertPool {
	if f.cert == nil {
		return nil
	}
	return f.cert.pool
}

// Faults returns the server's faults, to add and remove them.
func (f *namespace) Faults() *Faults { return &f.faults }

// DropConnections closes all connections, as a failing network would, and returns how
// many there were. Clients can connect again at once.
func (f *namespace) DropConnections() int { return f.amqp.Drop() }

// DetachLinks detaches the links to an entity (an event hub, queue, topic or
// subscription), as Azure does now and then, and returns how many there were. Partition
// restricts it to the links of one partition of a hub, unless it is empty. An empty
// entity stands for all.
func (f *namespace) DetachLinks(entity, partition string) int {
	return f.links.detach(entity, partition)
}
